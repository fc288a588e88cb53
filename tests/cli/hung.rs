//! Beside a mount whose process does not answer.

use crate::{
    fails,
    support::{
        command::{ok, run},
        mounted::{Mount, Vault, program_path},
        ready, ready_as_root,
    },
    text,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{fs, process::Command};

/// A process that is stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn of(mount: &Mount) -> Stopped {
        kill_process(mount.pid, Signal::STOP).expect("stop");
        Stopped(mount.pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// The store of one vault lies in the mount that hangs: to look at it would mean to wait.
#[test]
fn a_mount_that_hangs_keeps_nobody_from_finding_another() {
    if !ready(&[]) {
        return;
    }
    let outer = Vault::new("aes-256-ctr");
    let hangs = outer.mount();
    let inner = Vault::at(&hangs.join("vault"), "aes-256-ctr");
    let inside = inner.mount();
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let elsewhere = vault.place_path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("mkdir");

    let stopped = Stopped::of(&hangs);
    let mut again = Vault::program();
    again.arg("mount").arg(&vault.store).arg(&elsewhere).arg("--key-file").arg(&vault.key);
    fails(&mut again, 15, &format!("already mounted for writing on {}", text(mount.path())));
    ok(Vault::program().arg("lock").arg(&vault.store), 60);
    ok(Vault::program().arg("unlock").arg(&vault.store).arg("--key-file").arg(&vault.key), 60);
    drop(stopped);
    [mount, inside, hangs].into_iter().for_each(Mount::unmount);
}

#[test]
fn nobody_waits_for_the_answer_of_a_mount_that_hangs() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let stopped = Stopped::of(&mount);
    let told = ok(Vault::program().arg("info").arg("--json").arg(&vault.store), 20);
    assert!(told.contains("\"locked\": null") && told.contains("\"frozen\": null"), "{told}");
    let hangs = "the mount's process does not answer";
    fails(Vault::program().arg("stat").arg(mount.path()), 1, hangs);
    fails(Vault::program().arg("freeze").arg(mount.path()), 1, hangs);
    drop(stopped);
    ok(Vault::program().arg("stat").arg(mount.path()), 60);
    mount.unmount();
}

/// `lock --all` in a mount namespace where only these mounts are.
fn lock_all(mounts: &[Mount]) -> Command {
    let mut command = Command::new("unshare");
    let alone = "program=$1; shift
        awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | while read -r other; do
            case \" $* \" in *\" $other \"*) ;; *) umount -i -l \"$other\" 2>/dev/null || true ;; esac
        done
        exec \"$program\" lock --all";
    command.args(["-m", "sh", "-euc", alone, "sh"]).arg(program_path());
    command.args(mounts.iter().map(Mount::path));
    command
}

#[test]
fn a_mount_that_hangs_keeps_no_other_from_being_locked() {
    if !ready_as_root(&["unshare", "awk"]) {
        return;
    }
    let vaults = [(); 3].map(|()| Vault::in_memory("aes-256-ctr"));
    let mounts = vaults.each_ref().map(Vault::mount);
    let stopped = Stopped::of(&mounts[1]);
    let done = run(&mut lock_all(&mounts), 60);
    assert_eq!(done.code(), 1, "{}", done.stderr);
    let hangs = format!("warpcrypt: {}: the mount's process does not answer", text(mounts[1].path()));
    assert!(done.stderr.starts_with(&hangs), "{}", done.stderr);
    drop(stopped);
    let locked = mounts.each_ref().map(|mount| {
        let stat = ok(Vault::program().arg("stat").arg("--json").arg(mount.path()), 60);
        stat.contains("\"locked\": true")
    });
    assert_eq!(locked, [true, false, true]);
    mounts.into_iter().for_each(Mount::unmount);
}
