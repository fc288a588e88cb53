//! `doctor`: its report on this machine, and on one where something is missing.

use crate::{
    cli::{in_namespace, users::Home, warpcrypt},
    support::{
        command::{Done, run},
        mounted::program_path,
        ready_as_root,
    },
};
use serde_json::Value;

/// The check with this name in a report.
fn check(report: &Value, name: &str) -> Value {
    let checks = report["checks"].as_array().expect("a list");
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}: {report}")).clone()
}

fn report(done: &Done) -> Value {
    let report: Value = serde_json::from_str(&done.text()).expect("JSON");
    assert_eq!(report["version"], 1);
    report
}

#[test]
fn every_lack_has_its_cost_and_what_mends_it() {
    let done = warpcrypt(["doctor", "--json"]);
    let report = report(&done);
    assert_eq!(report["can_mount"], done.code() == 0, "{}", done.stderr);
    let checks = report["checks"].as_array().expect("a list");
    for check in checks {
        let lacks = check["state"] != "ok";
        assert!(check["found"].is_string(), "{check}");
        assert!(check["cost"].is_string() == lacks && check["mend"].is_string() == lacks, "{check}");
    }
    let text = warpcrypt(["doctor"]).text();
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(lines("ok ") + lines("slower ") + lines("missing "), checks.len(), "{text}");
}

#[test]
fn root_can_mount_where_the_device_is() {
    if !ready_as_root(&[]) {
        return;
    }
    let done = warpcrypt(["doctor"]);
    assert_eq!((done.code(), done.stderr.as_str()), (0, ""));
    assert!(done.text().starts_with("ok       /dev/fuse"), "{}", done.text());

    let text = "mount -t tmpfs tmpfs /dev && exec \"$@\"";
    let done = run(in_namespace(text).arg(program_path()).arg("doctor"), 60);
    assert_eq!(done.code(), 32, "{}", done.stderr);
    assert!(done.text().starts_with("missing  /dev/fuse"), "{}", done.text());
    assert!(done.text().contains("modprobe fuse") && done.stderr.contains("/dev/fuse"), "{}", done.stderr);
}

#[test]
fn a_user_needs_the_helper_and_has_limits() {
    if !ready_as_root(&["setpriv"]) {
        return;
    }
    let home = Home::new();
    let script = "PATH=/nowhere; ulimit -n 1024; ulimit -l 0; exec ./warpcrypt doctor --json";
    let done = run(&mut home.script(script), 60);
    assert_eq!(done.code(), 32, "{}", done.stderr);
    assert!(done.stderr.contains("fusermount3"), "{}", done.stderr);
    let report = report(&done);
    let helper = check(&report, "fusermount3");
    assert_eq!((&helper["state"], &helper["blocks_mounting"]), (&"missing".into(), &true.into()), "{helper}");
    assert!(helper["mend"].as_str().is_some_and(|mend| mend.contains("fuse3")), "{helper}");
    for (name, state) in [("limit of open files", "slower"), ("limit of locked memory", "missing")] {
        let limit = check(&report, name);
        assert_eq!((&limit["state"], &limit["blocks_mounting"]), (&state.into(), &false.into()), "{limit}");
    }
}

#[test]
fn a_user_without_a_place_for_the_log_is_told() {
    if !ready_as_root(&["setpriv"]) || std::path::Path::new("/dev/log").exists() {
        return;
    }
    let home = Home::new();
    let done = run(&mut home.script("HOME=/proc ./warpcrypt doctor --json"), 60);
    let log = check(&report(&done), "log");
    assert_eq!((&log["state"], &log["blocks_mounting"]), (&"missing".into(), &false.into()), "{log}");
}
