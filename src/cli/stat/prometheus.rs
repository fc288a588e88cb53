//! A mount's numbers in the text format of Prometheus and its node exporter (version 0.0.4).

use serde_json::Value;
use std::{fmt::Write, path::Path};

/// The numbers of an activity: key, metric name and description.
const COUNTED: [(&str, &str, &str); 4] = [
    ("count", "warpcrypt_activity_total", "How often something was done."),
    ("bytes", "warpcrypt_activity_bytes_total", "Bytes that it moved."),
    ("seconds", "warpcrypt_activity_seconds_total", "Time that it took, summed over threads."),
    ("failures", "warpcrypt_activity_failures_total", "Requests answered with an error of input or output."),
];
/// The groups of activities.
const GROUPS: [&str; 5] = ["requests", "fuse", "store", "crypto", "queue"];

/// All numbers, labelled with the mount point. Writing to a string cannot fail.
pub fn text(now: &Value, mount: &Path) -> String {
    let mount = escaped(&mount.to_string_lossy());
    let mut text = String::new();
    let mut put = |name: &str, help: &str, kind: &str, lines: Vec<(String, &Value)>| {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in lines {
            let value = if let Value::Bool(on) = value {
                f64::from(u8::from(*on))
            } else {
                value.as_f64().unwrap_or(0.0)
            };
            let _ = writeln!(text, "{name}{{mount=\"{mount}\"{labels}}} {value}");
        }
    };
    for (key, name, help) in COUNTED {
        let mut lines = Vec::new();
        for group in GROUPS {
            for (activity, numbers) in now[group].as_object().into_iter().flatten() {
                let activity = escaped(activity);
                lines.push((format!(",group=\"{group}\",activity=\"{activity}\""), &numbers[key]));
            }
        }
        put(name, help, "counter", lines);
    }
    for (key, help) in
        [("hits", "Lookups that a cache answered."), ("misses", "Lookups that it did not answer.")]
    {
        let caches = now["caches"].as_object().into_iter().flatten();
        let lines = caches.map(|(cache, numbers)| (format!(",cache=\"{}\"", escaped(cache)), &numbers[key]));
        put(&format!("warpcrypt_cache_{key}_total"), help, "counter", lines.collect());
    }
    let engines = [
        ("batches", "warpcrypt_engine_batches_total", "Batches that an engine ran.", "counter"),
        ("chunks", "warpcrypt_engine_chunks_total", "Chunks in them.", "counter"),
        ("bytes", "warpcrypt_engine_bytes_total", "Bytes that it sealed or opened in them.", "counter"),
        ("failed", "warpcrypt_engine_failed_total", "Batches that it failed at.", "counter"),
        ("in_service", "warpcrypt_engine_in_service", "Whether it is in service.", "gauge"),
    ];
    for (key, name, help, kind) in engines {
        let all = now["engines"].as_array().into_iter().flatten();
        let lines = all.map(|engine| {
            let called = escaped(engine["name"].as_str().unwrap_or_default());
            (format!(",engine=\"{called}\""), &engine[key])
        });
        put(name, help, kind, lines.collect());
    }
    let memory = now["memory"].as_object().into_iter().flatten();
    let lines = memory.map(|(what, bytes)| (format!(",what=\"{}\"", escaped(what)), bytes));
    put("warpcrypt_memory_bytes", "Memory for contents.", "gauge", lines.collect());
    put("warpcrypt_open_files", "Open files.", "gauge", vec![(String::new(), &now["open_files"])]);
    put(
        "warpcrypt_uptime_seconds",
        "Time since the mount.",
        "gauge",
        vec![(String::new(), &now["uptime_seconds"])],
    );
    text
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_line_is_a_comment_or_a_sample() {
        let now = json!({
            "requests": { "read": { "count": 3, "bytes": 9, "seconds": 0.25, "failures": 0 } },
            "caches": { "read_ahead": { "hits": 1, "misses": 2 } },
            "engines": [{ "name": "a \"gpu\"", "batches": 4, "chunks": 9, "bytes": 8, "failed": 0, "in_service": true }],
            "memory": { "in_use": 5 }, "open_files": 6, "uptime_seconds": 1.5,
        });
        let text = text(&now, Path::new("/m\"n"));
        for line in [
            "warpcrypt_activity_seconds_total{mount=\"/m\\\"n\",group=\"requests\",activity=\"read\"} 0.25",
            "warpcrypt_engine_in_service{mount=\"/m\\\"n\",engine=\"a \\\"gpu\\\"\"} 1",
            "warpcrypt_engine_chunks_total{mount=\"/m\\\"n\",engine=\"a \\\"gpu\\\"\"} 9",
            "warpcrypt_memory_bytes{mount=\"/m\\\"n\",what=\"in_use\"} 5",
            "warpcrypt_open_files{mount=\"/m\\\"n\"} 6",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(text.lines().all(|l| l.starts_with("# ") || l.starts_with("warpcrypt_") && l.contains("} ")));
    }
}
