//! The times of files and directories.

use crate::support::{
    mounted::{Mount, Vault},
    ready,
};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, futimens, stat, utimensat};
use std::{
    fs::{self, File},
    io::Write,
};

#[test]
fn every_time_is_kept() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut mount = vault.mount();
    fs::write(mount.join("file"), "x").unwrap();
    let bounds = [i64::MIN, i64::MAX];
    let usual = [0, 1, -1, -2, 86_400, -1_000_000_000, 4_000_000_000, 1_700_000_000];
    for (seconds, kept) in bounds.iter().map(|s| (*s, false)).chain(usual.map(|s| (s, true))) {
        let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: time, last_modification: time };
        let set = utimensat(CWD, mount.join("file"), &times, AtFlags::empty());
        // What the store cannot keep it may cut or refuse, but the mount goes on.
        let now = stat(mount.join("file")).expect("the mount answers");
        if kept {
            set.unwrap();
            assert_eq!((now.st_mtime, now.st_mtime_nsec), (seconds, 123_456_789));
            assert_eq!((now.st_atime, now.st_atime_nsec), (seconds, 123_456_789));
        }
    }
    mount = mount.remount();
    assert_eq!(stat(mount.join("file")).unwrap().st_mtime, 1_700_000_000);
}

/// The kernel goes by what it was told when the directory was made, until something makes it ask anew.
#[test]
fn a_new_directory_keeps_its_times() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    for n in 0..20 {
        let dir = mount.join(n.to_string());
        fs::create_dir(&dir).unwrap();
        let times = || {
            let seen = stat(&dir).unwrap();
            [(seen.st_ctime, seen.st_ctime_nsec), (seen.st_mtime, seen.st_mtime_nsec)]
        };
        let first = times();
        assert!(fs::create_dir(&dir).is_err());
        assert_eq!(times(), first, "{n}");
    }
    mount.unmount();
}

/// As `cp -a` and tar set it: before they close the file.
#[test]
fn a_time_of_access_that_was_set_stays() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut mount = vault.mount();
    let then = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let sizes = [0, 10, 5000, 200_000, 5_000_000];
    let check = |mount: &Mount, when: &str| {
        for size in sizes {
            assert_eq!(stat(mount.join(size.to_string())).unwrap().st_atime, then.tv_sec, "{size} {when}");
        }
    };
    for round in ["new", "again"] {
        for size in sizes {
            let mut file = File::create(mount.join(size.to_string())).unwrap();
            file.write_all(&vec![7; size]).unwrap();
            futimens(&file, &Timestamps { last_access: then, last_modification: then }).unwrap();
        }
        check(&mount, round);
        mount = mount.remount();
        check(&mount, round);
    }
}
