//! The times of files and directories.

use crate::support::{
    CACHES,
    mounted::{Mount, Vault},
    ready,
    waiting::wait_for,
};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, Stat, Timespec, Timestamps, futimens, lstat, mknodat, open,
        stat, utimensat,
    },
    time::{ClockId, clock_gettime},
};
use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::symlink,
    path::Path,
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
        // The store may clamp or refuse a time that it cannot represent, but the mount must keep
        // working.
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

/// The kernel caches the times that it got when the directory was created, until something invalidates
/// them.
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

/// As make and rsync compare times: a file created after another was written is not older.
#[test]
fn what_is_made_after_a_file_is_not_older() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let modified = |path: &Path| {
        let stat = lstat(path).unwrap();
        (stat.st_mtime, stat.st_mtime_nsec)
    };
    for n in 0..300 {
        let [file, link, dir, pipe] =
            ["file", "link", "dir", "pipe"].map(|name| mount.join(format!("{name} {n}")));
        fs::write(&file, "content").unwrap();
        let written = modified(&file);
        let later = match n % 3 {
            0 => {
                symlink("target", &link).unwrap();
                link
            }
            1 => {
                fs::create_dir(&dir).unwrap();
                dir
            }
            _ => {
                mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
                pipe
            }
        };
        assert!(written <= modified(&later), "{n}: {written:?}, {later:?}");
        assert!(modified(&file) <= modified(&later), "{n}: {later:?}");
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

/// Waits until the coarse clock that kernel filesystems use has advanced.
fn tick() {
    let now = clock_gettime(ClockId::Realtime);
    wait_for("the clock goes on", || clock_gettime(ClockId::RealtimeCoarse) > now);
}

/// Changes of access times visible to programs, as mail programs and cleanup tools rely on them.
fn accesses(dir: &Path) -> Vec<(&'static str, bool)> {
    let (file, link, inner) = (dir.join("mail"), dir.join("link"), dir.join("inner"));
    let accessed = |s: Stat| (s.st_atime, s.st_atime_nsec);
    let is_new = |s: Stat| (s.st_mtime, s.st_mtime_nsec) > (s.st_atime, s.st_atime_nsec);
    let at = || stat(&file).unwrap();
    let read = |flags| {
        let mut content = Vec::new();
        File::from(open(&file, OFlags::RDONLY | flags, Mode::empty()).unwrap())
            .read_to_end(&mut content)
            .unwrap();
        content.len()
    };
    let mut seen = Vec::new();
    fs::write(&file, "a first mail").unwrap();
    let hour = Timespec { tv_sec: at().st_mtime - 3600, tv_nsec: 0 };
    let before = Timespec { tv_sec: hour.tv_sec - 10, tv_nsec: 0 };
    let times = Timestamps { last_access: before, last_modification: hour };
    utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
    tick();
    read(OFlags::NOATIME);
    seen.push(("new, read by a backup", is_new(at())));
    read(OFlags::empty());
    let first = at();
    seen.push(("read", is_new(first)));
    tick();
    read(OFlags::empty());
    seen.push(("the first reading counts", accessed(at()) == accessed(first)));
    let mut writer = File::options().append(true).open(&file).unwrap();
    writer.write_all(&[b'x'; 100_000]).unwrap();
    seen.push(("more came", is_new(at())));
    writer.sync_all().unwrap();
    seen.push(("and is stored", is_new(at()) && accessed(at()) == accessed(first)));
    tick();
    read(OFlags::empty());
    seen.push(("read while it is open for writing", is_new(at())));
    writer.write_all(&[b'x'; 100_000]).unwrap();
    writer.sync_all().unwrap();
    // The kernel sends the release asynchronously, so the file may still be open.
    drop(writer);
    tick();
    read(OFlags::empty());
    seen.push(("read at once", is_new(at())));
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("file"), "").unwrap();
    tick();
    assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
    let listed = stat(&inner).unwrap();
    seen.push(("a directory that was listed", is_new(listed)));
    symlink("nowhere", &link).unwrap();
    tick();
    let made = lstat(&link).unwrap();
    fs::read_link(&link).unwrap();
    seen.push(("a link that was read", accessed(lstat(&link).unwrap()) > accessed(made)));
    seen
}

#[test]
fn times_of_access_are_as_relatime_has_them() {
    if !ready(&[]) {
        return;
    }
    for cache in CACHES {
        let vault = Vault::new("aes-256-ctr");
        let plain = vault.place_path().join("plain");
        fs::create_dir(&plain).unwrap();
        let expected = accesses(&plain);
        let mount = vault.mount_with(&["--cache", cache]);
        assert_eq!(accesses(mount.path()), expected, "--cache {cache}");
        mount.unmount();
        let mount = vault.mount_with(&["-o", "noatime"]);
        let file = mount.join("mail");
        fs::write(&file, "more").unwrap();
        let before = stat(&file).unwrap();
        tick();
        fs::read(&file).unwrap();
        let after = stat(&file).unwrap();
        assert_eq!((after.st_atime, after.st_atime_nsec), (before.st_atime, before.st_atime_nsec));
        mount.unmount();
    }
}
