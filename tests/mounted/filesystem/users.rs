//! Users: permissions, and the privileges that a write removes.

use crate::{
    filesystem::mode,
    support::{
        command::{run, script},
        mounted::{Mount, Vault},
        ready_as_root,
    },
};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::{
    fs::{self, File},
    io::Write,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    process::Command,
};

const NOBODY: u32 = 65534;

/// Whether a script run as `nobody` in the mount succeeds.
fn nobody(mount: &Mount, script: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-euc", script]).current_dir(mount.path()).uid(NOBODY).gid(NOBODY);
    run(&mut command, 20).status.success()
}

#[test]
fn users_are_kept_apart() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["--allow-other"]);
    fs::set_permissions(mount.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = |name: &str, mode| {
        fs::create_dir(mount.join(name)).unwrap();
        fs::set_permissions(mount.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    dir("shared", 0o1777);
    dir("group", 0o2777);
    chown(mount.join("group"), None, Some(1)).unwrap();
    fs::set_permissions(mount.join("group"), fs::Permissions::from_mode(0o2777)).unwrap();
    fs::write(mount.join("shared/roots"), "").unwrap();
    fs::write(mount.join("secret"), "").unwrap();
    fs::set_permissions(mount.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();

    assert!(nobody(&mount, "umask 077; echo x >shared/mine; mkdir shared/dir; ln -s x shared/link"));
    let mine = fs::metadata(mount.join("shared/mine")).unwrap();
    assert_eq!((mine.uid(), mine.gid(), mine.mode() & 0o777), (NOBODY, NOBODY, 0o600));
    assert_eq!(fs::symlink_metadata(mount.join("shared/link")).unwrap().uid(), NOBODY);
    for refused in [
        "touch here",
        "cat secret",
        "rm -f shared/roots",
        "mv shared/roots shared/taken",
        "chown 0 shared/mine",
        "chmod 666 secret",
        "touch -d 2000-01-01 secret",
    ] {
        assert!(!nobody(&mount, refused), "{refused}");
    }
    assert!(nobody(&mount, "touch group/file; mkdir group/dir; rm -r group/dir; mkdir group/dir"));
    assert_eq!(fs::metadata(mount.join("group/file")).unwrap().gid(), 1);
    assert_eq!(fs::metadata(mount.join("group/dir")).unwrap().mode() & 0o2000, 0o2000);
    assert!(nobody(&mount, "umask 0222; echo x >shared/read-only; test $(cat shared/read-only) = x"));
}

#[test]
fn attributes_of_the_system_are_listed_to_root_alone() {
    if !ready_as_root(&["getfattr"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["--allow-other"]);
    fs::set_permissions(mount.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(mount.join("f"), "").unwrap();
    for name in ["trusted.of", "user.of"] {
        setxattr(mount.join("f"), name, b"x", XattrFlags::empty()).unwrap();
    }
    let lists_trusted = "getfattr -m - f | grep -q ^trusted";
    assert!(run(&mut script(mount.path(), lists_trusted), 20).status.success());
    assert!(nobody(&mount, "getfattr -m - f | grep -q ^user"));
    assert!(!nobody(&mount, lists_trusted));
}

#[test]
fn writing_takes_privileges_away() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["--allow-other"]);
    fs::set_permissions(mount.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = mount.join("file");
    fs::write(&file, "content").unwrap();
    let privileged = || {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
        // The kernel still has the old mode cached.
        assert_eq!(mode(&file), 0o6777);
    };
    for write in ["echo x >>file", ": >file", "truncate -s 3 file", "printf x | dd of=file conv=notrunc"] {
        privileged();
        assert!(nobody(&mount, &format!("{write}; test $(stat -c %a file) = 777")), "{write}");
        assert_eq!(mode(&file), 0o777, "{write}");
    }
    privileged();
    fs::write(&file, "by root").unwrap();
    assert_eq!(mode(&file), 0o6777, "root may keep them");
    chown(&file, Some(NOBODY), None).unwrap();
    assert_eq!(mode(&file), 0o777, "a new owner gets none");
}

/// As on kernel filesystems: a file that the group may not execute keeps set-group-id only if the
/// process that changes it is in the group.
#[test]
fn who_is_not_in_the_group_takes_set_group_id_away() {
    if !ready_as_root(&["setpriv", "fallocate", "truncate", "dd"]) {
        return;
    }
    const GROUP: u32 = 61_100;
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["--allow-other"]);
    fs::set_permissions(mount.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = mount.join("file");
    let changes = [
        "fallocate -l 9000 file",
        "fallocate -p -o 0 -l 4096 file",
        "fallocate -z -o 100 -l 5000 file",
        "truncate -s 5 file",
        "printf x | dd of=file conv=notrunc 2>/dev/null",
        "printf x | dd of=file conv=notrunc oflag=direct 2>/dev/null",
        "printf x | dd of=file conv=notrunc 1<>file 2>/dev/null",
    ];
    for change in changes {
        for (before, outside, inside) in
            [(0o2666, 0o666, 0o2666), (0o6666, 0o666, 0o2666), (0o6777, 0o777, 0o777), (0o2755, 0o755, 0o755)]
        {
            for (groups, after) in [("--clear-groups", outside), ("--groups=61100", inside)] {
                fs::write(&file, [1; 8192]).unwrap();
                chown(&file, Some(NOBODY), Some(GROUP)).unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
                let mut by = Command::new("setpriv");
                by.args(["--reuid=65534", "--regid=65534", groups, "sh", "-euc", change]);
                assert!(run(by.current_dir(mount.path()), 20).status.success(), "{change}");
                let now = mode(&file);
                assert_eq!(now, after, "{change} on {before:o} with {groups} leaves {now:o}, not {after:o}");
                // A program run by root keeps all of them.
                fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
                assert!(run(&mut script(mount.path(), change), 20).status.success(), "{change} by root");
                assert_eq!(mode(&file), before, "{change} by root");
            }
        }
    }
    mount.unmount();
}

#[test]
fn writing_takes_capabilities_away() {
    if !ready_as_root(&[]) {
        return;
    }
    const NAME: &str = "security.capability";
    // Version 2 of struct vfs_cap_data: CAP_NET_BIND_SERVICE, permitted.
    const VALUE: [u8; 20] = [0, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["--allow-other"]);
    fs::set_permissions(mount.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = mount.join("file");
    fs::write(&file, "content").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o777)).unwrap();
    let has = || getxattr(&file, NAME, &mut [0; 64]).is_ok();
    let writes =
        ["echo x >>file", ": >file", "truncate -s 3 file", "printf x | dd of=file conv=notrunc 2>/dev/null"];
    let spaces =
        ["fallocate -l 9000 file", "fallocate -p -o 0 -l 4096 file", "fallocate -z -o 0 -l 4096 file"];
    for write in writes.into_iter().chain(spaces) {
        let by_root = || run(&mut script(mount.path(), write), 20).status.success();
        for who in [&by_root as &dyn Fn() -> bool, &|| nobody(&mount, write)] {
            setxattr(&file, NAME, &VALUE, XattrFlags::empty()).unwrap();
            assert!(has());
            assert!(who(), "{write}");
            assert!(!has(), "{write}");
        }
    }
    let open_already = File::options().append(true).open(&file).unwrap();
    (&open_already).write_all(b"x").unwrap();
    setxattr(&file, NAME, &VALUE, XattrFlags::empty()).unwrap();
    (&open_already).write_all(b"x").unwrap();
    assert!(!has(), "given between two writes");
}
