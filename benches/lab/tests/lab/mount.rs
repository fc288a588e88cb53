//! `warpcrypt-bench mount` measures everything that it documents, and leaves nothing behind, whether it
//! finishes or is stopped.

use crate::support::{
    bench,
    command::{Running, run},
    ready::{ready, ready_as_root},
    text,
};
use crypto::cipher::Cipher;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{
    fs,
    path::Path,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

fn of_two(dir: &Path, more: &[&str]) -> Command {
    let mut command = bench(["mount", text(dir), "--quick", "--only", "warpcrypt,pass-through"]);
    command.args(more);
    command
}

fn mounts_below(dir: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    table.lines().filter(|line| line.contains(dir.to_str().expect("UTF-8"))).count()
}

fn is_empty(dir: &Path) -> bool {
    mounts_below(dir) == 0 && fs::read_dir(dir).expect("directory").next().is_none()
}

#[test]
fn every_group_is_measured_of_every_filesystem() {
    if !ready(&["tar", "find", "cksum", "ls", "rm"]) {
        return;
    }
    let place = tempfile::tempdir().expect("directory");
    let (dir, out) = (place.path().join("ram disk"), place.path().join("out"));
    fs::create_dir(&dir).expect("directory");
    let groups = ["--groups", "streams,random,small,sizes,counts", "--runs", "1", "--json", "--output"];
    let done = run(of_two(&dir, &groups).arg(&out), 300);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    let report: serde_json::Value = serde_json::from_str(&done.text()).expect("JSON");
    let sections = report["sections"].as_array().expect("sections");
    assert_eq!(sections.len(), 7, "five groups, what streams cost, and every value");
    for section in &sections[..6] {
        let rows = section["tables"][0]["rows"].as_array().expect("rows");
        assert!(!rows.is_empty(), "{section}");
        for row in rows {
            // A short phase may use less processor time than the clock resolves.
            let least = if row["unit"] == "s/GB" || row["unit"] == "µs each" { -1.0 } else { 0.0 };
            let measured = |name: &str| row[name].as_f64().is_some_and(|value| value > least);
            assert!(measured("warpcrypt") && measured("pass-through"), "{row}");
        }
    }
    assert!(is_empty(&dir));
    let page = fs::read_to_string(out.join("mount.html")).expect("a page");
    assert!(page.contains("<svg") && page.contains("pass-through") && !page.contains("could not be drawn"));
    assert!(out.join("mount-streams.csv").exists() && out.join("mount-values.csv").exists());
}

#[test]
fn whole_files_are_measured_with_every_cipher() {
    if !ready(&[]) {
        return;
    }
    let place = tempfile::tempdir().expect("directory");
    let done = run(&mut bench(["ramdisk", text(place.path()), "--quick", "--runs", "1", "--json"]), 300);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    let report: serde_json::Value = serde_json::from_str(&done.text()).expect("JSON");
    let rows = report["sections"][0]["tables"][0]["rows"].as_array().expect("rows");
    // Within a quick run, a slow machine only reaches the smallest size.
    let smallest =
        |row: &&serde_json::Value| row["what"].as_str().is_some_and(|what| what.ends_with("(1 KiB)"));
    let rows = Vec::from_iter(rows.iter().filter(smallest));
    assert_eq!(rows.len(), 2, "writing and reading of 1 KiB: {rows:?}");
    for row in rows {
        for cipher in Cipher::ALL.map(Cipher::name) {
            assert!(row[format!("{cipher} cpu")].as_f64().is_some_and(|rate| rate > 0.0), "{cipher}: {row}");
        }
    }
    assert!(is_empty(place.path()));
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    if !ready(&[]) {
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let running = Running::start(&mut of_two(dir.path(), &["--groups", "streams", "--runs", "1000"]));
    let end = Instant::now() + Duration::from_secs(60);
    while mounts_below(dir.path()) == 0 {
        assert!(Instant::now() < end, "nothing was mounted");
        sleep(Duration::from_millis(5));
    }
    let process = Pid::from_raw(running.pid() as i32).expect("a process");
    kill_process(process, Signal::INT).expect("a signal");
    let done = running.finish(Duration::from_secs(60));
    assert_eq!(done.code(), 130, "{}", done.stderr);
    assert!(is_empty(dir.path()));
}

/// As Ctrl-C in a terminal: the signal goes to the script and to all its descendants.
#[test]
fn an_interrupted_script_leaves_no_ram_disk_behind() {
    if !ready_as_root(&["bash", "awk", "mountpoint"]) {
        return;
    }
    let (dir, out) = (tempfile::tempdir().expect("directory"), tempfile::tempdir().expect("directory"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../mount-scripts/ramdisk-bench.sh");
    let mut command = Command::new("bash");
    command.arg(script).args(["--quick", "--runs", "1000", "--groups", "streams", "--only", "warpcrypt"]);
    command.env("WARPCRYPT_BENCH", env!("CARGO_BIN_EXE_warpcrypt-bench")).env("RAMDISK", "1G");
    command.env("TMPDIR", dir.path()).env("OUTPUT", out.path());
    let running = Running::start(&mut command);
    let end = Instant::now() + Duration::from_secs(60);
    while mounts_below(dir.path()) < 2 {
        assert!(Instant::now() < end, "no RAM disk with a vault mounted on it");
        sleep(Duration::from_millis(5));
    }
    let group = Pid::from_raw(running.pid() as i32).expect("a process");
    kill_process_group(group, Signal::INT).expect("a signal");
    let done = running.finish(Duration::from_secs(60));
    assert_eq!(done.code(), 130, "{}", done.stderr);
    assert!(is_empty(dir.path()));
}

#[test]
fn an_unknown_filesystem_is_named_with_those_that_there_are() {
    if !ready(&[]) {
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let done = run(&mut bench(["mount", "--only", "nofs", text(dir.path())]), 60);
    assert_eq!(done.code(), 2);
    assert!(done.stderr.contains("`nofs`") && done.stderr.contains("pass-through"), "{}", done.stderr);
    assert!(is_empty(dir.path()));
}
