//! Mounts in the ways known from other filesystems: options after `-o`, mount(8), `/etc/fstab`.

use crate::{
    cli::{fails, file, in_namespace, mount_command, text},
    support::{
        command::{copy_program, ok, run},
        mounted::{Vault, program_path},
        ready, ready_as_root, source,
        waiting::wait_for,
        which,
    },
};
use std::{fs, process::Command};

const HELPER: &str = "mount-scripts/mount.fuse.warpcrypt";
const UMOUNT_HELPER: &str = "mount-scripts/umount.fuse.warpcrypt";

/// A PATH that leads to the program under test.
fn path() -> String {
    let program = program_path().parent().expect("a folder").to_owned();
    format!("{}:/usr/bin:/bin", program.display())
}

/// The mount table's line for the vault's mount point.
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
    let mount_with = |options: &str| {
        let mut command = Command::new(source(HELPER));
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
    // The options that mount(8) passes for `mount -o remount,ro` and `remount,rw`: a remount keeps flags
    // that it does not name.
    fs::write(vault.mount_point.join("file"), "before").expect("write");
    for (change, writable) in [("ro", false), ("rw", true)] {
        let line = mount_with(&format!("{change},remount,key-file={}", text(&vault.key)));
        assert!(line.contains(&format!(" {change},nosuid,nodev,noexec")), "{line}");
        assert_eq!(fs::write(vault.mount_point.join("file"), "after").is_ok(), writable);
    }
    // An option that a remount cannot change is refused, unless its value is the current one.
    let mut command = Command::new(source(HELPER));
    command
        .arg(&vault.store)
        .arg(&vault.mount_point)
        .args(["-o", "remount,ro,cache=direct"])
        .env("PATH", path());
    let refused = run(&mut command, 60);
    assert!(refused.code() == 32 && refused.stderr.contains("`cache=direct`"), "{}", refused.stderr);
    assert!(mount_with("remount,user_id=0,x-a,password-command=echo a\\,b").contains(" rw,"));
    // A path relative to the working directory, with a trailing slash.
    let mut umount = Vault::program();
    ok(umount.current_dir(vault.place_path()).args(["umount", "mnt/"]), 60);
    wait_for("the end is logged", || vault.log_text().contains("all of it is stored"));
}

#[test]
fn options_of_other_filesystems_are_ignored_aloud() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut command = mount_command(&vault);
    command.args(["-o", "fsname=x,subtype=y,comment=z,allow_root,auto_unmount,big_writes,max_read=9,ro"]);
    let done = run(command.args(["-o", "attr_timeout=1,rw"]), 60);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    for name in ["fsname", "subtype", "allow_root", "auto_unmount", "big_writes", "max_read", "attr_timeout"]
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
fn an_owner_is_a_number() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    for (option, advice) in [("uid=ann", "`id -u ann`"), ("gid=team", "`getent group team`")] {
        fails(mount_command(&vault).args(["-o", option]), 2, &format!("`{option}` is not"));
        fails(mount_command(&vault).args(["-o", option]), 2, advice);
    }
}

/// mount(8) replaces the name of a user in `uid=` and of a group in `gid=` with its number.
#[test]
fn fstab_may_name_the_owner() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let script = "
        options=noauto,key-file=$PWD/key,log-file=$PWD/log
        echo \"$vault $PWD/mnt fuse.warpcrypt $options,uid=nobody,gid=nogroup 0 0\" >fstab
        mount --bind fstab /etc/fstab
        mount $PWD/mnt
        stat -c %U:%G mnt
        mount -o remount,ro $PWD/mnt 2>/dev/null; echo code $?
        grep -c 'warpcrypt ro,' /proc/mounts
        if mount -o remount,rw,uid=root $PWD/mnt 2>said; then exit 9; fi
        grep -o 'cannot change .uid=0.' said
        umount mnt";
    assert_eq!(installed(&vault, script), "nobody:nogroup\ncode 0\n1\ncannot change `uid=0`\n");
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
    file(vault.place_path(), "word.other", b"first:second\nmore\n");
    let mut command = Vault::program();
    ok(command.arg("mount").arg(&vault.store).arg(&vault.mount_point).args(["-o", &options]), 60);
    assert!(table_line(&vault).contains("noexec"));
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
}

/// The command that `mount -t fuse warpcrypt#VAULT MOUNT` runs.
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

/// mount(8) and umount(8) look for the helpers in /sbin and for the program in the usual directories. In
/// a private mount namespace a test can install them there.
fn installed(vault: &Vault, script: &str) -> String {
    let sbin = vault.place_path().join("sbin");
    fs::create_dir(&sbin).expect("mkdir");
    for helper in [HELPER, UMOUNT_HELPER] {
        let helper = source(helper);
        copy_program(&helper, &sbin.join(helper.file_name().expect("a name")));
    }
    let program = program_path().parent().expect("a folder").to_owned();
    let text =
        format!("mount --bind sbin /sbin; mount --bind \"$1\" /usr/local/bin; export vault=\"$2\"; {script}");
    let mut command = in_namespace(&text);
    command.arg(program).arg(&vault.store);
    let done = run(command.current_dir(vault.place_path()), 120);
    assert_eq!(done.code(), 0, "{}{}", done.text(), done.stderr);
    done.text() + &done.stderr
}

#[test]
fn umount_of_the_system_waits_until_all_is_stored() {
    if !ready_as_root(&["flock"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    // That the lock is free immediately shows that umount(8) waited until all data was stored.
    let script = "
        mount -t tmpfs tmpfs /run
        for way in mnt mnt/ $PWD/mnt; do
            mount -t fuse.warpcrypt -o key-file=key,log-file=log \"$vault\" mnt
            for n in $(seq 200); do echo $n >mnt/$n; done
            head -c 20000000 /dev/zero >mnt/large
            umount \"$way\"
            flock -n \"$vault\"/warpcrypt.lock echo stored
            if grep $PWD/mnt /run/mount/utab; then exit 9; fi
        done
        mount -t fuse.warpcrypt -o key-file=key,log-file=log \"$vault\" mnt
        cd mnt
        if umount ../mnt 2>said; then exit 9; fi
        grep 'is in use' said
        umount -l ../mnt; cd ..; findmnt mnt || echo gone";
    let said = installed(&vault, script);
    assert!(
        said.matches("stored").count() == 3 && said.contains("is in use") && said.ends_with("gone\n"),
        "{said}"
    );
}

#[test]
fn a_remount_does_not_open_for_writing_what_was_opened_for_reading() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let script = "
        mount -t fuse.warpcrypt -o ro,key-file=key,log-file=log \"$vault\" mnt
        if mount -o remount,rw mnt; then exit 9; else echo code $?; fi
        grep warpcrypt /proc/mounts
        umount mnt";
    let said = installed(&vault, script);
    assert!(said.contains("code 32") && said.contains("reading only") && said.contains(" ro,"), "{said}");
}

#[test]
fn a_remount_accepts_an_option_of_fstab_with_a_comma() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let script = "
        mkdir plain; touch 'plain/a,b' plain/c
        warpcrypt init --reverse plain --key-file key
        options=\"reverse,key-file=$PWD/key,log-file=$PWD/log,exclude=a\\\\,[b]\"
        printf '%s\\n' \"$PWD/plain $PWD/mnt fuse.warpcrypt $options 0 0\" >fstab
        mount --bind fstab /etc/fstab
        mount mnt
        warpcrypt ls mnt --key-file key
        mount -o remount,ro,noexec mnt
        grep ' fuse.warpcrypt ' /proc/mounts
        umount mnt";
    let said = installed(&vault, script);
    assert!(said.contains("\nc\n") && !said.contains("a,b\n") && said.contains("noexec"), "{said}");
    assert!(said.contains("`exclude=a[b]` counts from the next mount on"), "{said}");
}
