//! Files that are created without a name (O_TMPFILE) and may get one later. fuser does not know the
//! request; it arrives through rings.

use crate::support::{
    command::{ok, run},
    mounted::Vault,
    ready, ready_as_root, skip,
    store::walk,
};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, linkat, open},
    io::Errno,
};
use std::{
    fs::{self, File, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, PermissionsExt},
    },
    path::Path,
    process::Command,
    time::{Duration, UNIX_EPOCH},
};

/// Exists if the kernel supports rings for FUSE.
const OFFERED: &str = "/sys/module/fuse/parameters/enable_uring";
const RINGS: [&str; 2] = ["--io-uring", "on"];

fn have_rings() -> bool {
    ready_as_root(&[]) && (Path::new(OFFERED).exists() || skip("needs FUSE over io_uring".into()))
}

fn nameless(dir: &Path) -> io::Result<File> {
    make(dir, OFlags::empty(), 0o644)
}

fn make(dir: &Path, more: OFlags, mode: u32) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | more;
    Ok(File::from(open(dir, flags, Mode::from_raw_mode(mode))?))
}

/// Links an open file to a name, by either of the two methods.
fn name(file: &File, path: &Path, by_proc: bool) -> Result<(), Errno> {
    if by_proc {
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW)
    } else {
        linkat(file, "", CWD, path, AtFlags::EMPTY_PATH)
    }
}

fn sync_dir(dir: &Path) {
    File::open(dir).unwrap().sync_all().unwrap();
}

/// Everything that a program can observe about such a file in its lifetime, except for its inode number.
fn life(dir: &Path) -> String {
    let file = nameless(dir).unwrap();
    let mut seen = String::new();
    let mut look = |what: &str| {
        let stat = file.metadata().unwrap();
        let mut content = vec![0; 9];
        let n = file.read_at(&mut content, 0).unwrap();
        let (mode, owner) = (stat.mode(), (stat.uid(), stat.gid(), stat.nlink()));
        seen += &format!("{what}: {mode:o} {owner:?} {} {:?}\n", stat.len(), &content[..n]);
    };
    look("made");
    file.write_all_at(b"content", 0).unwrap();
    look("written");
    file.sync_all().unwrap();
    file.write_all_at(&[7; 300_000], 5).unwrap();
    look("grown");
    file.set_len(6).unwrap();
    file.set_permissions(Permissions::from_mode(0o4600)).unwrap();
    std::os::unix::fs::fchown(&file, Some(7), Some(8)).unwrap();
    look("changed");
    file.set_modified(UNIX_EPOCH + Duration::from_secs(5)).unwrap();
    assert_eq!(file.metadata().unwrap().mtime(), 5);
    fsetxattr(&file, "user.colour", b"green", XattrFlags::CREATE).unwrap();
    let mut value = [0; 9];
    let len = fgetxattr(&file, "user.colour", &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"green");
    // Another handle to the same file.
    let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    drop(file);
    let mut content = [0; 6];
    again.read_exact_at(&mut content, 0).unwrap();
    seen + &format!("again: {content:?} {}\n", fs::read_dir(dir).unwrap().count())
}

/// Modes of files created under various umasks and default ACLs.
fn modes(dir: &Path) -> String {
    const MAKE: &str = r#"
        import os, sys
        for mask in 0o022, 0o077, 0:
            os.umask(mask)
            file = os.open(sys.argv[1], os.O_TMPFILE | os.O_RDWR, 0o666)
            stat = os.fstat(file)
            acl = [name for name in os.listxattr(file) if name.startswith("system.posix")]
            print("%o %d" % (stat.st_mode, stat.st_gid), [os.getxattr(file, name) for name in acl])
    "#;
    let script: String = MAKE.lines().map(|line| line.get(8..).unwrap_or("").to_owned() + "\n").collect();
    let mut seen = String::new();
    for setup in ["chmod 755 .", "setfacl -d -m u:1234:rw,m:rwx .", "setfacl -b .; chgrp 77 .; chmod 2775 ."]
    {
        ok(Command::new("sh").args(["-c", setup]).current_dir(dir), 20);
        seen += &ok(Command::new("python3").args(["-c", &script]).arg(dir), 20);
    }
    seen
}

#[test]
fn a_mount_without_rings_refuses_it() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["--io-uring", "off"]);
    for _ in 0..2 {
        let refused = nameless(mount.path()).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::OPNOTSUPP));
        fs::write(mount.join("file"), "made").unwrap();
    }
    mount.unmount();
}

#[test]
fn a_store_without_such_files_refuses_it() {
    if !have_rings() {
        return;
    }
    let below = Vault::new("aes-256-ctr");
    let store = below.mount_with(&["--io-uring", "off"]);
    let vault = Vault::at(&store.join("vault"), "aes-256-ctr");
    let mount = vault.mount_with(&RINGS);
    for _ in 0..2 {
        let refused = nameless(mount.path()).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::OPNOTSUPP));
    }
    mount.unmount();
    store.unmount();
}

#[test]
fn it_lives_as_on_the_disk_and_leaves_nothing() {
    if !have_rings() || !ready(&["python3", "setfacl"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let plain = vault.place_path().join("plain");
    fs::create_dir(&plain).unwrap();
    let expected = (life(&plain), modes(&plain));
    for cache in ["auto", "direct", "write-back"] {
        let mount = vault.mount_with(&["--io-uring", "on", "--cache", cache]);
        let stored = walk(&vault.store).len();
        let dir = mount.join(cache);
        fs::create_dir(&dir).unwrap();
        assert_eq!((life(&dir), modes(&dir)), expected, "--cache {cache}");
        assert_eq!(walk(&vault.store).len(), stored + 1, "the directory's own file alone");
        let open = nameless(&dir).unwrap();
        open.write_all_at(&[3; 100_000], 0).unwrap();
        open.sync_all().unwrap();
        assert_eq!(walk(&vault.store).len(), stored + 1);
        mount.kill();
        drop(open);
        assert_eq!(walk(&vault.store).len(), stored + 1, "after a kill");
        let mount = vault.mount_with(&RINGS);
        assert_eq!(fs::read_dir(mount.join(cache)).unwrap().count(), 0);
        mount.unmount();
    }
}

#[test]
fn it_gets_a_name_later() {
    if !have_rings() {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    for (number, by_proc) in [(0, false), (1, true)] {
        let mount = vault.mount_with(&RINGS);
        let (long, inner) = ("l".repeat(250), mount.join(format!("inner{number}")));
        fs::create_dir(&inner).unwrap();
        let mut expected = Vec::new();
        for (at, synced) in [(mount.join(format!("a{number}")), false), (inner.join(&long), true)] {
            let file = make(mount.path(), OFlags::empty(), 0o640).unwrap();
            fsetxattr(&file, "user.colour", b"green", XattrFlags::CREATE).unwrap();
            file.write_all_at(b"before", 0).unwrap();
            if synced {
                file.sync_all().unwrap();
            }
            fs::write(mount.join("taken"), "").unwrap();
            assert_eq!(name(&file, &mount.join("taken"), by_proc), Err(Errno::EXIST));
            name(&file, &at, by_proc).unwrap();
            file.write_all_at(b" and after", 6).unwrap();
            let (stat, there) = (file.metadata().unwrap(), fs::metadata(&at).unwrap());
            assert_eq!((stat.ino(), stat.nlink()), (there.ino(), 1));
            assert_eq!((there.mode() & 0o7777, there.len()), (0o640, 16));
            assert_eq!(fs::read_to_string(&at).unwrap(), "before and after");
            let second = at.with_extension("2");
            name(&file, &second, by_proc).unwrap();
            fs::remove_file(&at).unwrap();
            fs::rename(&second, &at).unwrap();
            expected.push((at, there.ino()));
        }
        let mount = mount.remount();
        for (at, number) in expected {
            assert_eq!(fs::read_to_string(&at).unwrap(), "before and after");
            assert_eq!(fs::metadata(&at).unwrap().ino(), number);
            let file = File::open(&at).unwrap();
            let mut value = [0; 9];
            let len = fgetxattr(&file, "user.colour", &mut value[..]).unwrap();
            assert_eq!(&value[..len], b"green");
        }
        mount.unmount();
    }
    let done = run(
        Vault::program().args(["check", "--full"]).arg(&vault.store).arg("--key-file").arg(&vault.key),
        60,
    );
    assert!(done.status.success(), "{}", done.stderr);
}

#[test]
fn one_that_is_exclusive_or_was_removed_gets_no_name() {
    if !have_rings() {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&RINGS);
    let exclusive = make(mount.path(), OFlags::EXCL, 0o600).unwrap();
    assert_eq!(name(&exclusive, &mount.join("a"), false), Err(Errno::NOENT));
    drop(exclusive);
    let file = nameless(mount.path()).unwrap();
    name(&file, &mount.join("a"), false).unwrap();
    fs::remove_file(mount.join("a")).unwrap();
    assert_eq!(name(&file, &mount.join("a"), false), Err(Errno::NOENT));
    file.write_all_at(b"still there", 0).unwrap();
    drop(file);
    mount.unmount();
}

/// Several threads create many of them at once: each gets its own content.
#[test]
fn many_get_names_side_by_side() {
    if !have_rings() {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&RINGS);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mount = &mount;
            scope.spawn(move || {
                for i in 0..50 {
                    let file = nameless(mount.path()).unwrap();
                    file.write_all_at(format!("{thread} {i}").as_bytes(), 0).unwrap();
                    if i % 2 == 0 {
                        name(&file, &mount.join(format!("{thread}-{i}")), i % 4 == 0).unwrap();
                    }
                }
            });
        }
    });
    let mount = mount.remount();
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 100);
    for entry in fs::read_dir(mount.path()).unwrap() {
        let entry = entry.unwrap();
        let expected = entry.file_name().into_string().unwrap().replace('-', " ");
        assert_eq!(fs::read_to_string(entry.path()).unwrap(), expected);
    }
    mount.unmount();
}

#[test]
fn what_was_synced_is_there_under_its_name_after_a_kill() {
    if !have_rings() {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&RINGS);
    fs::create_dir(mount.join("new")).unwrap();
    let content = vec![9; 200_000];
    let file = nameless(mount.path()).unwrap();
    file.write_all_at(&content, 0).unwrap();
    file.sync_all().unwrap();
    name(&file, &mount.join("new/synced"), false).unwrap();
    sync_dir(&mount.join("new"));
    let other = nameless(mount.path()).unwrap();
    other.write_all_at(&content, 0).unwrap();
    name(&other, &mount.join("new/other"), false).unwrap();
    mount.kill();
    drop((file, other));
    let mount = vault.mount_with(&RINGS);
    assert_eq!(fs::read(mount.join("new/synced")).unwrap(), content);
    // The file may be incomplete, but nothing in it may be wrong.
    let other = fs::read(mount.join("new/other")).unwrap();
    assert_eq!(other, content[..other.len()]);
    mount.unmount();
}

#[test]
fn it_outlives_a_lock() {
    if !have_rings() {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&RINGS);
    let file = nameless(mount.path()).unwrap();
    file.write_all_at(b"content", 0).unwrap();
    ok(Vault::program().arg("lock").arg(mount.path()), 60);
    ok(Vault::program().arg("unlock").arg(mount.path()).arg("--key-file").arg(&vault.key), 60);
    file.write_all_at(b" and more", 7).unwrap();
    name(&file, &mount.join("file"), false).unwrap();
    drop(file);
    let mount = mount.remount();
    assert_eq!(fs::read_to_string(mount.join("file")).unwrap(), "content and more");
    mount.unmount();
}
