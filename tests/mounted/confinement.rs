//! The process behind a mount holds no privilege that it does not need, in any thread; another process
//! mounts and unmounts for it. The same applies to a command that reads a vault without a mount.

use crate::support::{
    command::{ok, run},
    mounted::{Vault, is_mounted},
    ready, say,
    waiting::wait_for,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Capability numbers that a mount for several users may keep, see capabilities(7): CHOWN, DAC_OVERRIDE,
/// DAC_READ_SEARCH, FOWNER, FSETID, IPC_LOCK, SYS_ADMIN, SYS_NICE, SYS_RESOURCE, MKNOD.
const KEPT: [u32; 10] = [0, 1, 2, 3, 4, 14, 21, 23, 24, 27];

fn stat(vault: &Vault, option: &str) -> String {
    ok(Vault::program().arg("stat").arg(&vault.mount_point).arg(option), 60)
}

/// The `/proc` status of each thread of a process.
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
        assert_eq!((field(status, "NoNewPrivs"), field(status, "Seccomp")), ("1", "2"), "{status}");
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
    assert_eq!(confinement["landlock"].is_u64(), has_landlock(), "{confinement}");
    assert!(stat(&vault, "--all").contains("no new privileges, "));
}

/// Whether this machine has Landlock support that a mount can use.
fn has_landlock() -> bool {
    let report = confined();
    let has = report["in_force"]["landlock"].is_u64();
    if !has {
        say(format_args!("SKIPPED: no Landlock here: {report}"));
    }
    has
}

/// Reports which operations were denied to a process confined like that of a mount.
fn confined() -> Value {
    serde_json::from_str(&ok(Vault::program().arg("confined"), 60)).expect("JSON")
}

#[test]
fn a_confined_process_opens_no_other_file_and_uses_no_program_or_network() {
    if !ready(&[]) {
        return;
    }
    let refused = &confined()["refused"];
    assert_eq!((&refused["programs"], &refused["network"]), (&true.into(), &true.into()), "{refused}");
    assert_eq!(refused["files"], has_landlock(), "{refused}");
    let doctor: Value =
        serde_json::from_slice(&run(Vault::program().args(["doctor", "--json"]), 60).stdout).expect("JSON");
    let check =
        doctor["checks"].as_array().expect("a list").iter().find(|check| check["name"] == "confinement");
    let state = if has_landlock() { "ok" } else { "missing" };
    assert_eq!(check.expect("a check")["state"], state, "{check:?}");
}

/// Each attempt is made in the command's own process, after the command has finished.
#[test]
fn a_command_that_reads_a_vault_opens_no_other_file_and_uses_no_program_or_network() {
    if !ready(&[]) {
        return;
    }
    let has_landlock = has_landlock();
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::create_dir(mount.join("dir")).expect("a directory");
    fs::write(mount.join("dir/file"), "content\n").expect("a file");
    mount.unmount();
    let place = vault.place_path();
    let [target, source] = ["target", "source"].map(|name| place.join(name).display().to_string());
    fs::create_dir(&target).expect("a directory");
    fs::create_dir(&source).expect("a directory");
    fs::write(Path::new(&source).join("new"), "more").expect("a file");
    let [list, state, anchor] =
        ["list", "state", "anchor"].map(|name| Path::new(&target).join(name).display().to_string());
    let store = vault.store.display().to_string();
    // The directory in which access is attempted, and whether the command may write there.
    for (command, from, writes) in [
        (&["check", &store][..], &store, false),
        (&["check", &store, "--full", "--resume", &state], &store, false),
        (&["check", &store, "--anchor", &anchor, "--accept"], &store, false),
        (&["check", &store, "--repair"], &store, true),
        (&["ls", &store, "--recursive"], &store, false),
        (&["cat", &store, "dir/file"], &store, false),
        (&["export", &store, "/", &target], &store, false),
        (&["export", &store, "/", &target], &target, true),
        (&["import", &store, &source, "/"], &store, true),
        (&["import", &store, &source, "/"], &source, false),
        (&["hash", "--vault", &store], &store, false),
        (&["hash", "--vault", &store, "--known", &list, "--append"], &store, false),
        (&["match", "--vault", &store], &store, false),
    ] {
        let mut confined = Vault::program();
        confined.arg("confined").args(command).arg("--key-file").arg(&vault.key).current_dir(from);
        let done = run(&mut confined, 60);
        assert!(done.status.success(), "{command:?}: {done:?}");
        assert!(!done.stderr.contains("the process "), "{command:?}: {done:?}");
        let text = done.text();
        let report: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        let refused = &report["refused"];
        for what in ["programs", "network", "connections"] {
            assert_eq!(refused[what], true, "{what} after {command:?}: {report}");
        }
        assert_eq!(refused["files"], has_landlock, "{command:?}: {report}");
        assert_eq!(refused["writing"], has_landlock && !writes, "{command:?} in {from}: {report}");
    }
    assert_eq!(fs::read_to_string(Path::new(&target).join("dir/file")).expect("a copy"), "content\n");
}

#[test]
fn a_mount_makes_no_directory_for_measurements_where_nothing_is_measured() {
    if !ready(&[]) {
        return;
    }
    let doctor: Value =
        serde_json::from_slice(&run(Vault::program().args(["doctor", "--json"]), 60).stdout).expect("JSON");
    let gpu = doctor["checks"].as_array().expect("a list").iter().find(|check| check["name"] == "GPU");
    if !gpu.expect("a check")["found"].as_str().expect("text").starts_with("none") {
        return say(format_args!("SKIPPED: a GPU is measured: {gpu:?}"));
    }
    let vault = Vault::new("aes-256-ctr");
    let home = vault.place_path().join("home");
    fs::create_dir(&home).expect("a directory");
    let mut command = Vault::program();
    command.arg("mount").arg(&vault.store).arg(&vault.mount_point).arg("--key-file").arg(&vault.key);
    command.arg("--log-file").arg(&vault.log).env("HOME", &home).env_remove("XDG_CACHE_HOME");
    ok(&mut command, 60);
    let mount = vault.mounted(&[]);
    fs::write(mount.join("file"), "content").expect("a file");
    mount.unmount();
    assert_eq!(fs::read_dir(&home).expect("the directory").count(), 0);
}

/// For every way of ending a mount, neither its process nor the mounting process survives, and the
/// latter keeps nothing busy before that.
#[test]
fn no_process_outlives_its_mount() {
    if !ready(&["umount", "fusermount3"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let root = rustix::process::geteuid().is_root();
    for way in ["umount", "lock --end", "TERM", "umount(8)", "fusermount3", "lazily", "KILL", "KILL mounter"]
    {
        if way == "umount(8)" && !root {
            continue;
        }
        let mount = vault.mount();
        let place = &vault.mount_point;
        fs::write(mount.join("file"), way).expect("a file");
        let said: Value = serde_json::from_str(&stat(&vault, "--json")).expect("JSON");
        let process = said["process"].to_string();
        let mounter = mounter_of(&vault).expect("a process that mounts");
        assert_eq!(parent(&mounter), process, "{way}");
        for used in links(&mounter) {
            assert!(!used.starts_with(place) && !used.starts_with(&vault.store), "{way}: {}", used.display());
        }
        let kill = |signal: &str, whom: &str| ok(Command::new("kill").args(["-s", signal, whom]), 60);
        let held = (way == "lazily").then(|| fs::File::open(mount.join("file")).expect("the file"));
        match way {
            "umount" => ok(Vault::program().arg("umount").arg(place), 60),
            "lock --end" => ok(Vault::program().args(["lock", "--end"]).arg(place), 60),
            "umount(8)" => ok(Command::new("umount").arg(place), 60),
            "fusermount3" => ok(Command::new("fusermount3").arg("-u").arg(place), 60),
            "lazily" => ok(Command::new("fusermount3").arg("-uz").arg(place), 60),
            "KILL mounter" => {
                kill("KILL", &mounter);
                wait_for("the process that mounts ends", || mounter_of(&vault).is_none());
                fs::write(mount.join("file"), "still served").expect("a file");
                ok(Vault::program().arg("umount").arg(place), 60)
            }
            signal => kill(signal, &process),
        };
        drop(held);
        wait_for("its process ends", || !Path::new("/proc").join(&process).exists());
        wait_for("the process that mounts ends", || mounter_of(&vault).is_none());
        if way == "KILL" {
            ok(Command::new("fusermount3").arg("-u").arg(place), 60);
        }
        wait_for("the mount ends", || !is_mounted(place));
    }
}

/// The process that mounts and unmounts this vault, if it is running.
fn mounter_of(vault: &Vault) -> Option<String> {
    let place = vault.mount_point.to_str().expect("UTF-8");
    let mut processes = fs::read_dir("/proc").expect("processes").flatten();
    let found = processes.find(|entry| {
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&str> = line.split('\0').collect();
        words.contains(&"mounter") && words.contains(&place)
    });
    Some(found?.file_name().to_string_lossy().into_owned())
}

fn parent(process: &str) -> String {
    let status = fs::read_to_string(Path::new("/proc").join(process).join("status")).expect("a process");
    field(&status, "PPid").to_owned()
}

/// The working directory and open files of a process, if the caller may see them (only root may).
fn links(process: &str) -> Vec<PathBuf> {
    let of = Path::new("/proc").join(process);
    let open = fs::read_dir(of.join("fd")).into_iter().flatten().flatten().map(|fd| fd.path());
    open.chain([of.join("cwd")]).filter_map(|link| fs::read_link(link).ok()).collect()
}
