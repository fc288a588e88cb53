//! The process behind a mount has no right that it does not need, in any thread, and another process unmounts for it.

use crate::support::{
    command::{ok, run},
    mounted::{Vault, is_mounted},
    ready,
    waiting::wait_for,
};
use serde_json::Value;
use std::{fs, path::Path};

/// Capabilities that a mount for several users may keep, by their numbers: see capabilities(7). CHOWN, DAC_OVERRIDE,
/// DAC_READ_SEARCH, FOWNER, FSETID, IPC_LOCK, SYS_ADMIN, SYS_NICE, SYS_RESOURCE, MKNOD.
const KEPT: [u32; 10] = [0, 1, 2, 3, 4, 14, 21, 23, 24, 27];

fn stat(vault: &Vault, option: &str) -> String {
    ok(Vault::program().arg("stat").arg(&vault.mount_point).arg(option), 60)
}

/// The status of each thread of a process.
fn threads(process: &str) -> Vec<String> {
    let tasks = fs::read_dir(Path::new("/proc").join(process).join("task")).expect("a process");
    tasks
        .map(|task| fs::read_to_string(task.expect("a thread").path().join("status")).expect("status"))
        .collect()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {status}")).trim()
}

#[test]
fn every_thread_has_given_up_its_rights_and_stat_says_so() {
    if !ready(&[]) {
        return;
    }
    let kept = match rustix::process::geteuid().is_root() {
        true => KEPT.iter().fold(0, |all, number| all | 1_u64 << number),
        false => 0,
    };
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::write(mount.join("file"), "content").expect("a file");
    let said: Value = serde_json::from_str(&stat(&vault, "--json")).expect("JSON");
    let threads = threads(&said["process"].to_string());
    assert!(threads.len() > 1, "{threads:?}");
    for status in &threads {
        assert_eq!(field(status, "NoNewPrivs"), "1", "{status}");
        for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
            let has = u64::from_str_radix(field(status, set), 16).expect("a set");
            assert_eq!(has & !kept, 0, "{set}: {status}");
        }
    }
    let permitted = u64::from_str_radix(field(&threads[0], "CapPrm"), 16).expect("a set");
    let confinement = &said["confinement"];
    assert_eq!(confinement["no_new_privileges"], true, "{confinement}");
    let named = confinement["capabilities"].as_array().expect("a list").len();
    assert_eq!(named, permitted.count_ones() as usize, "{confinement}");
    assert!(stat(&vault, "--all").contains("get no more rights than it has; capabilities: "));
}

/// By all ways on which its process has to unmount by itself, and it leaves no process.
#[test]
fn a_process_without_rights_still_ends_its_mount() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    for way in ["--end", "TERM"] {
        let mount = vault.mount();
        fs::write(mount.join("file"), way).expect("a file");
        let said: Value = serde_json::from_str(&stat(&vault, "--json")).expect("JSON");
        let process = said["process"].to_string();
        if way == "--end" {
            ok(Vault::program().arg("lock").arg("--end").arg(&vault.mount_point), 60);
        } else {
            run(std::process::Command::new("kill").args(["-s", way, &process]), 60);
        }
        wait_for("the mount ends", || !is_mounted(&vault.mount_point));
        wait_for("its process ends", || !Path::new("/proc").join(&process).exists());
        wait_for("the process that mounts ends", || !has_mounter(&vault));
    }
}

/// Whether a process that mounts and unmounts for this vault runs.
fn has_mounter(vault: &Vault) -> bool {
    let place = vault.mount_point.to_str().expect("UTF-8");
    fs::read_dir("/proc").expect("processes").flatten().any(|entry| {
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&str> = line.split('\0').collect();
        words.contains(&"mounter") && words.contains(&place)
    })
}
