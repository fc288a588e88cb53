//! A mount kept alive by another mount namespace. A new namespace copies every existing mount, including
//! those of other tests, so this test runs alone.

use crate::support::{
    command::{Running, run},
    mounted::{Vault, is_mounted},
    ready_as_root,
};
use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

#[test]
fn an_unmount_names_the_namespace_that_keeps_the_mount() {
    if !ready_as_root(&["unshare"]) {
        return;
    }
    let _alone = crate::alone();
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::write(mount.join("f"), b"content").expect("write");
    let mut other = Running::out_of_turn(Command::new("unshare").args(["-m", "sleep", "100"]));
    let table = format!("/proc/{}/mountinfo", other.pid());
    let entered =
        || fs::read_link(format!("/proc/{}/exe", other.pid())).is_ok_and(|exe| !exe.ends_with("unshare"));
    let end = Instant::now() + Duration::from_secs(20);
    while !entered() {
        assert!(Instant::now() < end, "unshare(1) makes no namespace here");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(fs::read_to_string(table).is_ok_and(|t| t.contains(&mount.path().display().to_string())));
    let done = run(Vault::program().arg("umount").arg(mount.path()), 60);
    assert_eq!(done.code(), 23, "{}", done.stderr);
    assert!(done.stderr.contains("namespace") && !is_mounted(mount.path()), "{}", done.stderr);
    other.kill();
    let end = Instant::now() + Duration::from_secs(20);
    while mount.alive() {
        assert!(Instant::now() < end, "nobody has the mount any more, but it is still served");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(mount);
    let mount = vault.mount();
    assert_eq!(fs::read(mount.join("f")).expect("read"), b"content");
    mount.unmount();
}
