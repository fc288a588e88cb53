//! A detached mount whose process is stopped for a long time. Another mount may reuse its device number
//! meanwhile, and no command may reach that one. Hence this test runs alone.

use crate::support::{
    command::{Running, ok},
    fake::Fake,
    mounted::{Vault, is_mounted},
    ready_as_root,
    waiting::{NEVER, stop, wait_for},
};
use rustix::process::{Signal, kill_process};
use std::{process::Command, time::Duration};

/// Another user's mount claims to be the vault that is unmounted and mounted again.
#[test]
fn a_fake_mount_is_not_taken_for_the_vaults() {
    if !ready_as_root(&["unshare", "umount"]) {
        return;
    }
    let _alone = crate::alone();
    let vault = Vault::new("aes-256-ctr");
    let fake = Fake::new(&vault.store, 65534, |_| String::new());
    let mount = vault.mount();
    stop(mount.pid);
    let mut umount = Running::start(Vault::program().arg("umount").arg(mount.path()));
    wait_for("it is detached", || !is_mounted(mount.path()));
    assert!(!umount.ends(Duration::from_secs(5)), "not everything is stored yet");
    kill_process(mount.pid, Signal::CONT).expect("go on");
    assert_eq!(umount.finish(NEVER).code(), 0);
    drop(mount);

    let mount = vault.mount();
    stop(mount.pid);
    ok(Command::new("umount").arg("-l").arg(mount.path()), 60);
    let mut again = Vault::program();
    again.arg("mount").arg(&vault.store).arg(&vault.mount_point).arg("--key-file").arg(&vault.key);
    let mut next = Running::start(&mut again);
    assert!(!next.ends(Duration::from_secs(5)), "the one before it has the vault yet");
    kill_process(mount.pid, Signal::CONT).expect("go on");
    assert_eq!(next.finish(NEVER).code(), 0);
    // The fake's process keeps running, and has nothing to flush.
    ok(Vault::program().arg("umount").arg(fake.path()), 10);
    assert!(fake.heard().iter().all(Vec::is_empty), "it was asked something");
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
}
