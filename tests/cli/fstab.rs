//! Mounts as people know them from other filesystems: options after `-o`, mount(8), `/etc/fstab`.

use crate::{
    eventually, fails, file, mount_command,
    support::{
        command::{ok, run},
        mounted::Vault,
        ready, ready_as_root, which,
    },
    text,
};
use std::{fs, path::Path, process::Command};

/// A PATH by which the program under test is found.
fn path() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_warpcrypt")).parent().expect("a folder");
    format!("{}:/usr/bin:/bin", program.display())
}

/// The line of the mount table that has the vault's mount point.
fn table_line(vault: &Vault) -> String {
    let table = fs::read_to_string("/proc/self/mounts").expect("table");
    table.lines().find(|l| l.contains(text(&vault.mount_point))).expect("mounted").to_owned()
}

#[test]
fn options_of_fstab() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let helper = concat!(env!("CARGO_MANIFEST_DIR"), "/mount-scripts/mount.fuse.warpcrypt");
    let mount_with = |options: &str| {
        let mut command = Command::new(helper);
        command.arg(&vault.store).arg(&vault.mount_point).args(["-n", "-o", options, "-t", "fuse.warpcrypt"]);
        ok(command.env("PATH", path()), 60);
        table_line(&vault)
    };
    let options = format!(
        "rw,noexec,nofail,x-systemd.automount,key-file={},log-file={}",
        text(&vault.key),
        text(&vault.log)
    );
    let line = mount_with(&options);
    assert!(
        line.contains("fuse.warpcrypt") && line.contains("noexec") && line.contains(text(&vault.store)),
        "{line}"
    );
    assert!(vault.log_text().contains("mounted"), "{}", vault.log_text());
    // What mount(8) makes of `mount -o remount,ro` and of `remount,rw`: a remount keeps what it does not name.
    fs::write(vault.mount_point.join("file"), "before").expect("write");
    for (change, writable) in [("ro", false), ("rw", true)] {
        let line = mount_with(&format!("{change},remount,key-file={}", text(&vault.key)));
        assert!(line.contains(&format!(" {change},nosuid,nodev,noexec")), "{line}");
        assert_eq!(fs::write(vault.mount_point.join("file"), "after").is_ok(), writable);
    }
    // An argument relative to the working directory, and with a slash behind it.
    let mut umount = Vault::program();
    ok(umount.current_dir(vault.place_path()).args(["umount", "mnt/"]), 60);
    eventually("the end is logged", || vault.log_text().contains("all of it is stored"));
}

#[test]
fn options_of_other_filesystems_are_ignored_aloud() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut command = mount_command(&vault);
    command
        .args(["-o", "fsname=x,subtype=y,comment=z,allow_root,auto_unmount,uid=1,big_writes,max_read=9,ro"]);
    let done = run(command.args(["-o", "attr_timeout=1,rw"]), 60);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    for name in
        ["fsname", "subtype", "allow_root", "auto_unmount", "uid", "big_writes", "max_read", "attr_timeout"]
    {
        assert_eq!(done.stderr.matches(&format!("`{name}` is ignored")).count(), 1, "{}", done.stderr);
    }
    assert!(!done.stderr.contains("comment"), "{}", done.stderr);
    let line = table_line(&vault);
    assert!(line.starts_with(text(&vault.store)) && line.contains(" fuse.warpcrypt rw,"), "{line}");
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
    fails(mount_command(&vault).args(["-o", "umask=077"]), 2, "permission bits of their own");
}

#[test]
fn a_directory_with_content_is_hidden_if_that_is_asked_for() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    fs::write(vault.mount_point.join("hidden"), "").expect("write");
    fails(&mut mount_command(&vault), 22, "-o nonempty");
    let mount = vault.mount_with(&["-o", "nonempty"]);
    assert_eq!(fs::read_dir(mount.path()).expect("list").count(), 0);
    mount.unmount();
    assert!(vault.mount_point.join("hidden").exists());
    let mut above = Vault::program();
    above.arg("mount").arg(&vault.store).arg(vault.place_path()).arg("--key-file").arg(&vault.key);
    fails(above.args(["-o", "nonempty"]), 2, "the vault is inside the mount point");
}

#[test]
fn a_password_command_with_a_comma() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let word = file(vault.place_path(), "word", b"first,second");
    let mut add = Vault::program();
    add.args([
        "key",
        "add",
        text(&vault.store),
        "--key-file",
        text(&vault.key),
        "--new-password-file",
        &word,
    ]);
    ok(&mut add, 60);
    let options =
        format!("noexec,password-command=tr : \\, <{word}.other,nodev,log-file={}", text(&vault.log));
    file(vault.place_path(), "word.other", b"first:second");
    let mut command = Vault::program();
    ok(command.arg("mount").arg(&vault.store).arg(&vault.mount_point).args(["-o", &options]), 60);
    assert!(table_line(&vault).contains("noexec"));
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
}

/// What `mount -t fuse warpcrypt#VAULT MOUNT` calls.
#[test]
fn mount_fuse_finds_the_program() {
    if !ready_as_root(&["mount.fuse3"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut command = Command::new(which("mount.fuse3").expect("checked"));
    command.arg(format!("warpcrypt#{}", text(&vault.store))).arg(&vault.mount_point);
    let options =
        format!("rw,noexec,max_read=4096,key-file={},log-file={}", text(&vault.key), text(&vault.log));
    ok(command.args(["-o", &options]).env("PATH", path()), 60);
    assert!(table_line(&vault).contains("fuse.warpcrypt rw,noexec"));
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
}
