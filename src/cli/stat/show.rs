//! A mount's numbers as text: totals since it was mounted, or differences since the previous output.

use crate::cli::progress::counted;
use format::printable::printable;
use indicatif::{BinaryBytes, HumanDuration};
use serde_json::Value;
use std::{fmt::Write, time::Duration};

/// The numbers of `now`, minus those of `before`. Results of `write!` are ignored, because writing to a
/// string cannot fail.
pub fn text(now: &Value, before: Option<&Value>) -> String {
    let difference = |path: &[&str]| number(now, path) - before.map_or(0.0, |before| number(before, path));
    let mut text = format!("{}{}\n\n", head(now), rates(now, before));
    let _ = writeln!(
        text,
        "{:<22}{:>12}{:>11}{:>10}{:>11}{:>10}",
        "", "count", "MB", "seconds", "mean µs", "failures"
    );
    for group in ["requests", "fuse", "store", "crypto", "queue"] {
        for name in members(now, group) {
            let of = |what: &str| difference(&[group, name, what]);
            let count = of("count");
            if count + of("failures") == 0.0 {
                continue;
            }
            let _ = writeln!(
                text,
                "{:<22}{count:>12.0}{:>11.1}{:>10.3}{:>11.1}{:>10.0}",
                format!("{group} {name}"),
                of("bytes") / 1e6,
                of("seconds"),
                of("seconds") / count * 1e6,
                of("failures"),
            );
        }
    }
    text += &engines(now, before);
    for cache in members(now, "caches") {
        let [hits, misses] = ["hits", "misses"].map(|what| difference(&["caches", cache, what]));
        if hits + misses > 0.0 {
            let share = 100.0 * hits / (hits + misses);
            let _ = writeln!(text, "cache {cache}: {hits:.0} of {:.0} found ({share:.1} %)", hits + misses);
        }
    }
    text.push('\n');
    text
}

/// A summary. The first line is the mount's state, its uptime and how full the store's disk is; `disk`
/// holds total and free bytes. The second is the rates since the mount, or since `before`. Any
/// complaints follow.
pub fn brief(now: &Value, before: Option<&Value>, disk: Option<(u64, u64)>) -> String {
    let disk = disk.map_or_else(String::new, |(all, free)| {
        let used = 100.0 * all.saturating_sub(free) as f64 / all.max(1) as f64;
        format!("; its disk is {used:.0} % full, {} free", BinaryBytes(free))
    });
    let well = state(now);
    let up = HumanDuration(uptime(now));
    let open = counted(number(now, &["open_files"]) as u64, "open file");
    format!("{well}. Mounted for {up}, {open}{disk}.\n{}\n{}", rates(now, before), complaints(now))
}

/// One line for each complaint in the answer, and one for the number of others.
fn complaints(now: &Value) -> String {
    let all = &now["complaints"];
    let some = all["some"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = String::new();
    for complaint in some.iter().filter_map(Value::as_str) {
        let _ = writeln!(text, "  {}", printable(complaint));
    }
    let more = (all["count"].as_u64().unwrap_or(0)).saturating_sub(some.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more, which the log has");
    }
    text
}

/// The state of the mount. Failures take precedence.
fn state(now: &Value) -> String {
    let failed = members(now, "requests").filter_map(|name| {
        let failures = number(now, &["requests", name, "failures"]);
        (failures > 0.0).then(|| format!("{failures:.0} {name}"))
    });
    let failed = Vec::from_iter(failed);
    let engines = now["engines"].as_array().map(Vec::as_slice).unwrap_or_default();
    let idle = engines.iter().find(|engine| engine["in_service"] == false);
    if !failed.is_empty() {
        return format!("Requests failed ({}); the log says why", failed.join(", "));
    }
    if now["locked"] == true {
        return "Locked: programs wait until it is unlocked".to_owned();
    }
    if now["frozen"] == true {
        return "Frozen: programs wait until it is thawed".to_owned();
    }
    match idle {
        Some(engine) => format!("Engine {} is out of service", engine["name"].as_str().unwrap_or("?")),
        None if number(now, &["complaints", "count"]) > 0.0 => {
            "Something in the store is in the way".to_owned()
        }
        None => "All is well".to_owned(),
    }
}

/// Bytes and requests per second.
fn rates(now: &Value, before: Option<&Value>) -> String {
    let difference = |path: &[&str]| number(now, path) - before.map_or(0.0, |before| number(before, path));
    let seconds = difference(&["uptime_seconds"]).max(1e-9);
    let [read, written] =
        ["read", "write"].map(|kind| difference(&["requests", kind, "bytes"]) / seconds / 1e6);
    let requests = members(now, "requests").map(|name| difference(&["requests", name, "count"])).sum::<f64>();
    format!(
        "over {seconds:.1} s: read {read:.1} MB/s, written {written:.1} MB/s, {:.0} requests/s",
        requests / seconds
    )
}

fn uptime(now: &Value) -> Duration {
    Duration::try_from_secs_f64(number(now, &["uptime_seconds"])).unwrap_or_default()
}

fn head(now: &Value) -> String {
    let up = uptime(now);
    let size = |what: &str| BinaryBytes(number(now, &["memory", what]) as u64).to_string();
    format!(
        "process {}, warpcrypt {}, up {}, {} open files\nbuffers: {} in use, {} at most so far, {} allowed; {} \
         ahead of readers; {} behind writers\n",
        now["process"],
        now["program"].as_str().unwrap_or("?"),
        HumanDuration(up),
        now["open_files"],
        size("in_use"),
        size("peak"),
        size("bound"),
        size("ahead_of_readers"),
        size("behind_writers"),
    ) + &confinement(&now["confinement"])
}

/// A line about the rights that the mount's process has given up.
fn confinement(of: &Value) -> String {
    let privileges =
        if of["no_new_privileges"] == true { "no new privileges" } else { "may get new privileges" };
    let files = match of["landlock"].as_i64() {
        Some(version) => format!("Landlock {version}"),
        None => "no Landlock".to_owned(),
    };
    let calls = if of["seccomp"] == true { "seccomp" } else { "no seccomp" };
    let capabilities: Vec<&str> =
        of["capabilities"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let capabilities = if capabilities.is_empty() { "none".to_owned() } else { capabilities.join(", ") };
    format!("{:20} {privileges}, {files}, {calls}; capabilities: {capabilities}\n", "confinement")
}

/// One line for each engine.
fn engines(now: &Value, before: Option<&Value>) -> String {
    let mut text = String::new();
    let all = now["engines"].as_array().map(Vec::as_slice).unwrap_or_default();
    for engine in all {
        let name = &engine["name"];
        let then = before.and_then(|before| {
            before["engines"].as_array().into_iter().flatten().find(|then| then["name"] == *name)
        });
        let of = |what: &str| number(engine, &[what]) - then.map_or(0.0, |then| number(then, &[what]));
        let state = if engine["in_service"] == false { ", out of service" } else { "" };
        let _ = writeln!(
            text,
            "engine {} ({}): {:.0} batches, {:.0} chunks, {:.1} MB, {:.0} failed{state}",
            name.as_str().unwrap_or("?"),
            engine["description"].as_str().unwrap_or("?"),
            of("batches"),
            of("chunks"),
            of("bytes") / 1e6,
            of("failed"),
        );
    }
    text
}

/// The number at a path; zero if there is none.
fn number(of: &Value, path: &[&str]) -> f64 {
    path.iter().fold(of, |at, name| &at[*name]).as_f64().unwrap_or(0.0)
}

/// The member names of an object.
fn members<'a>(of: &'a Value, group: &str) -> impl Iterator<Item = &'a str> {
    of[group].as_object().into_iter().flat_map(|members| members.keys().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn totals_and_differences() {
        let at = |seconds: f64, reads: u64| {
            json!({
                "uptime_seconds": seconds, "process": 7, "program": "1", "open_files": 2,
                "requests": { "read": { "count": reads, "bytes": reads * 1_000_000, "seconds": 0.5, "failures": 0 },
                              "write": { "count": 0, "bytes": 0, "seconds": 0.0, "failures": 0 } },
                "caches": { "read_ahead": { "hits": 3, "misses": 1 } },
                "engines": [
                    { "name": "cpu", "description": "4 threads", "batches": reads, "chunks": 2 * reads,
                      "bytes": 5_000_000, "failed": 0, "in_service": true },
                    { "name": "gpu 0", "description": "A GPU", "batches": 1, "chunks": 16,
                      "bytes": 65536, "failed": 3, "in_service": false },
                ],
                "memory": { "in_use": 1024, "peak": 2048, "bound": 4096 },
            })
        };
        let total = text(&at(10.0, 100), None);
        for part in
            ["read 10.0 MB/s", "requests read", "3 of 4 found (75.0 %)", "1.00 KiB in use", "process 7"]
        {
            assert!(total.contains(part), "{part} in\n{total}");
        }
        assert!(!total.contains("requests write"));
        assert!(total.contains("3 failed, out of service"), "{total}");
        let mut joined = at(12.0, 400);
        joined["engines"].as_array_mut().expect("engines").swap(0, 1);
        let since = text(&joined, Some(&at(10.0, 100)));
        assert!(since.contains("cpu (4 threads): 300 batches"), "an engine is known by its name: {since}");
        let since = text(&at(12.0, 400), Some(&at(10.0, 100)));
        for part in [
            "read 150.0 MB/s",
            "engine cpu (4 threads): 300 batches, 600 chunks, 0.0 MB, 0 failed\n",
            "engine gpu 0 (A GPU): 0 batches, 0 chunks, 0.0 MB, 0 failed, out of service\n",
        ] {
            assert!(since.contains(part), "{part} in\n{since}");
        }
    }

    #[test]
    fn the_first_line_says_what_matters() {
        let with = |failures: u64, locked: bool, in_service: bool| {
            json!({
                "uptime_seconds": 90, "open_files": 1, "locked": locked, "frozen": false,
                "requests": { "write": { "count": 9, "bytes": 9, "seconds": 0.5, "failures": failures } },
                "engines": [{ "name": "gpu 0", "in_service": in_service }],
            })
        };
        let first =
            |now: &Value| brief(now, None, Some((100 << 30, 25 << 30))).lines().next().unwrap().to_owned();
        assert_eq!(
            first(&with(0, false, true)),
            "All is well. Mounted for 2 minutes, 1 open file; its disk is 75 % full, 25.00 GiB free."
        );
        assert!(first(&with(3, true, true)).starts_with("Requests failed (3 write); the log says why."));
        assert!(first(&with(0, true, true)).starts_with("Locked:"));
        assert!(first(&with(0, false, false)).starts_with("Engine gpu 0 is out of service."));
    }

    #[test]
    fn complaints_follow_and_cannot_steer_the_terminal() {
        let mut now = json!({ "uptime_seconds": 90, "complaints": { "count": 0, "some": [] } });
        assert!(
            brief(&now, None, None).starts_with("All is well.")
                && brief(&now, None, None).lines().count() == 2
        );
        now["complaints"] = json!({ "count": 3, "some": ["/a: missing", "/b\u{1b}[2J: missing"] });
        let told = brief(&now, None, None);
        assert!(told.starts_with("Something in the store is in the way."), "{told}");
        assert!(
            told.contains("\n  /a: missing\n") && told.ends_with("\n  and 1 more, which the log has\n"),
            "{told}"
        );
        assert!(!told.contains('\u{1b}'), "{told:?}");
    }

    #[test]
    fn an_answer_of_another_shape_is_no_panic() {
        let times = [json!(-1), json!(1e300)].map(|time| json!({ "uptime_seconds": time }));
        for odd in [json!(null), json!([]), json!({ "requests": 1, "engines": [1] })].into_iter().chain(times)
        {
            assert!(text(&odd, Some(&odd)).contains("process"));
            assert!(brief(&odd, Some(&odd), None).contains("Mounted for"));
        }
    }
}
