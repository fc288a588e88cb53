//! A mounted vault with `--engine gpu`, over the made-up driver.

use crate::{
    fake::{self, order},
    support::{
        command::{ok, run, sh},
        mounted::Vault,
        random::Random,
        ready,
    },
};
use std::{
    fs,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

#[test]
fn a_mount_over_the_gpu() {
    if ready(&["cp", "cmp"]) {
        fake::run_here("mounted::over_fake_copies", &[], 400);
    }
}

#[test]
#[ignore = "runs over the made-up driver"]
fn over_fake_copies() {
    for cipher in ["aes-256-ctr", "kuznyechik-ctr"] {
        let vault = Vault::in_memory(cipher);
        let place = tempfile::tempdir().expect("directory");
        let file = place.path().join("file");
        fs::write(&file, Random::new(cipher).bytes((700 << 10) + 777)).expect("file");
        let mount = vault.mount_with(&["--engine", "gpu"]);
        let copy = "cp \"$1\" \"$2/a\"; sync \"$2/a\"; cmp \"$1\" \"$2/a\"";
        sh("/", copy, &[&file, mount.path()], 120);
        let mount = mount.remount();
        sh("/", "cmp \"$1\" \"$2/a\"", &[&file, mount.path()], 120);
        mount.unmount();
        let log = vault.log_text();
        assert!(log.contains("engine: Fake GPU"), "{log}");
        // Written in the first mount, read in the second.
        let done: Vec<u64> = log.split("gpu: did ").skip(1).map(number).collect();
        assert!(done.len() == 2 && done.iter().all(|batches| *batches > 0), "{log}");
        // What the GPU wrote, the CPU reads.
        let mount = vault.mount_with(&["--engine", "cpu"]);
        sh("/", "cmp \"$1\" \"$2/a\"", &[&file, mount.path()], 120);
        mount.unmount();
    }
}

fn number(text: &str) -> u64 {
    text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
}

#[test]
fn a_mount_survives_its_gpu() {
    if ready(&["cp", "cmp"]) {
        fake::run_here("mounted::over_fake_fails_under_a_mount", &[], 400);
    }
}

#[test]
#[ignore = "runs over the made-up driver"]
fn over_fake_fails_under_a_mount() {
    let vault = Vault::in_memory("aes-256-ctr");
    let place = tempfile::tempdir().expect("directory");
    let file = place.path().join("file");
    fs::write(&file, Random::new("mount").bytes(200 << 10)).expect("file");
    let mount = vault.mount_with(&["--engine", "gpu"]);
    let copies = "for n in 1 2 3 4; do cp \"$1\" \"$2/$n\" && sync \"$2/$n\" & done; wait
        for n in 1 2 3 4; do cmp \"$1\" \"$2/$n\"; done";
    for (number, fault) in ["error", "lost", "wrong", "hang"].into_iter().enumerate() {
        order("cuLaunchKernel:3", fault);
        sh("/", copies, &[&file, mount.path()], 150);
        await_line(&vault, "the CPU works in its place", number + 1);
        await_line(&vault, "in service again", number + 1);
    }
    order("none", "none");
    let mount = mount.remount();
    sh("/", "for n in 1 2 3 4; do cmp \"$1\" \"$2/$n\"; done", &[&file, mount.path()], 120);
    mount.unmount();
}

fn await_line(vault: &Vault, line: &str, times: usize) {
    let end = Instant::now() + Duration::from_secs(60);
    while vault.log_text().matches(line).count() < times {
        assert!(Instant::now() < end, "{times} times {line:?}:\n{}", vault.log_text());
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_devices_are_shown_and_measured_once() {
    fake::run_here("mounted::over_fake_shows_devices", &[], 300);
}

#[test]
#[ignore = "runs over the made-up driver"]
fn over_fake_shows_devices() {
    let devices = |json: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpcrypt"));
        command.arg("devices").args(json.then_some("--json"));
        ok(&mut command, 120)
    };
    let text = devices(false);
    assert!(text.contains("Fake GPU, driver for CUDA 13.0") && text.contains("kuznyechik-ctr"), "{text}");
    // The second time it is read, not measured: the same numbers.
    let (first, second) = (devices(true), devices(true));
    assert_eq!(first, second);
    let value: serde_json::Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(value["engines"][1]["measured"].as_array().map(Vec::len), Some(12));
    assert!(value["engines"][1]["measured"][0]["gpu"][0]["nanoseconds"].as_u64() > Some(0));
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpcrypt"));
    let done = run(command.args(["devices", "--json"]).env("FAKE_CUDA_DEVICES", "0"), 60);
    let value: serde_json::Value = serde_json::from_str(&done.text()).expect("JSON");
    assert_eq!(value["engines"][1]["reason"], "the NVIDIA driver knows no device");
}
