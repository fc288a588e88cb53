//! What the kernel and programs rely on in a filesystem, on a mount: nodes without a name, links, users,
//! caches that agree, and many threads at once.

mod support;

use rustix::{
    fs::{
        AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom,
        Timespec, Timestamps, XattrFlags, fallocate, flock, fstat, ftruncate, futimens, getxattr, mknodat,
        open, renameat_with, seek, setxattr, stat, utimensat,
    },
    io::{Errno, pread, pwrite},
    mm::{MapFlags, ProtFlags},
};
use std::{
    collections::HashSet,
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{MetadataExt, PermissionsExt, chown, symlink},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};
use support::{
    CACHES,
    command::{run, script, sh},
    mounted::{Mount, Vault},
    random::Random,
    ready, ready_as_root,
};

const NOBODY: u32 = 65534;

fn create(path: &Path) -> OwnedFd {
    open(path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC, Mode::from_raw_mode(0o644)).expect("create")
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).expect("stat").mode() & 0o7777
}

#[test]
fn an_open_file_without_a_name_works() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    for replaced in [false, true] {
        let path = mount.join("file");
        let file = create(&path);
        pwrite(&file, &[b'x'; 100_000], 0).unwrap();
        if replaced {
            fs::write(mount.join("other"), "other").unwrap();
            fs::rename(mount.join("other"), &path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        let now = fstat(&file).unwrap();
        assert_eq!((now.st_nlink, now.st_size), (0, 100_000));
        ftruncate(&file, 50_000).unwrap();
        pwrite(&file, b"tail", 200_000).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 300_000).unwrap();
        let day = Timespec { tv_sec: 86_400, tv_nsec: 7 };
        futimens(&file, &Timestamps { last_access: day, last_modification: day }).unwrap();
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600)).unwrap();
        rustix::fs::fsetxattr(&file, "user.a", b"value", XattrFlags::empty()).unwrap();
        rustix::fs::fsync(&file).unwrap();
        let now = fstat(&file).unwrap();
        assert_eq!((now.st_size, now.st_mtime, now.st_mode & 0o777), (300_000, 86_400, 0o600));
        let mut around = [1; 8];
        pread(&file, &mut around, 49_996).unwrap();
        assert_eq!(&around, b"xxxx\0\0\0\0");
        let by_proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        pread(create_again(&by_proc), &mut around[..4], 200_000).unwrap();
        assert_eq!(&around[..4], b"tail");
    }
    assert_eq!(fs::read(mount.join("file")).unwrap(), b"other");
}

fn create_again(path: &str) -> OwnedFd {
    open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("open by descriptor")
}

#[test]
fn names_lead_to_the_right_nodes() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let at = |name: &str| mount.join(name);
    fs::write(at("a"), "a").unwrap();
    fs::hard_link(at("a"), at("b")).unwrap();
    let [a, b] = ["a", "b"].map(|n| fs::metadata(at(n)).unwrap());
    assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
    fs::write(at("c"), "c").unwrap();
    fs::rename(at("c"), at("a")).unwrap();
    assert_eq!(fs::metadata(at("b")).unwrap().nlink(), 1, "a link was replaced");
    assert_eq!((fs::read(at("a")).unwrap(), fs::read(at("b")).unwrap()), (b"c".into(), b"a".into()));

    let rename = |from: &str, to: &str, flags| renameat_with(CWD, at(from), CWD, at(to), flags);
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename("a", "b", RenameFlags::WHITEOUT), Err(Errno::INVAL));
    fs::create_dir_all(at("d/e")).unwrap();
    fs::write(at("d/e/inside"), "").unwrap();
    rename("a", "d/e", RenameFlags::EXCHANGE).unwrap();
    assert!(at("a/inside").exists() && fs::read(at("d/e")).unwrap() == b"c");
    let parent = fs::metadata(at("a/..")).unwrap().ino();
    assert_eq!(parent, fs::metadata(mount.path()).unwrap().ino());
    assert_eq!(fs::rename(at("d"), at("d/e2")).unwrap_err().raw_os_error(), Some(22));

    // A name that was looked for in vain is found once it is there.
    assert!(!at("later").exists());
    symlink("a/inside", at("later")).unwrap();
    assert!(at("later").exists());
    let fifo = FileType::Fifo;
    mknodat(CWD, at("fifo"), fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert_eq!(mode(at("fifo")), 0o600);
}

#[test]
fn a_removed_directory_is_empty() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::create_dir(mount.join("gone")).unwrap();
    let dir = File::open(mount.join("gone")).unwrap();
    fs::remove_dir(mount.join("gone")).unwrap();
    assert_eq!(dir.metadata().unwrap().nlink(), 0);
    let names = rustix::fs::Dir::new(dir.try_clone().unwrap()).unwrap().count();
    assert!(names <= 2, "only . and .. at most");
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    assert_eq!(
        rustix::fs::openat(&dir, "file", flags, Mode::from_raw_mode(0o600)).unwrap_err(),
        Errno::NOENT
    );
}

#[test]
fn a_large_directory_is_listed_whole() {
    if !ready(&[]) {
        return;
    }
    const FILES: usize = 20_000;
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let name = |i: usize| format!("file number {i}");
    for i in 0..FILES {
        File::create(mount.join(name(i))).unwrap();
    }
    let listed = || -> HashSet<String> {
        let entries = fs::read_dir(mount.path()).unwrap().map(|e| e.unwrap());
        entries.map(|e| e.file_name().into_string().unwrap()).collect()
    };
    assert_eq!(listed(), (0..FILES).map(name).collect());
    let mut dir = rustix::fs::Dir::new(open(mount.path(), OFlags::RDONLY, Mode::empty()).unwrap()).unwrap();
    assert_eq!(dir.by_ref().count(), FILES + 2);
    // Every other file goes while the directory is being read: the others are met exactly once.
    let mut met = HashSet::new();
    for entry in fs::read_dir(mount.path()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let number: usize = name.rsplit(' ').next().unwrap().parse().unwrap();
        if number.is_multiple_of(2) {
            fs::remove_file(entry.path()).unwrap();
        }
        assert!(met.insert(number), "{number} is listed twice");
    }
    assert_eq!(met.len(), FILES);
    dir.rewind();
    assert_eq!(dir.count(), FILES / 2 + 2, "read from the start, it is as it is now");
}

#[test]
fn holes_are_found_and_made() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let file = create(&mount.join("sparse"));
    const MIB: u64 = 1 << 20;
    pwrite(&file, &[b'A'; 8192], MIB).unwrap();
    ftruncate(&file, 4 * MIB).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(MIB));
    assert_eq!(seek(&file, SeekFrom::Hole(MIB)), Ok(MIB + 8192));
    assert_eq!(seek(&file, SeekFrom::Data(MIB + 8192)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Hole(4 * MIB)), Err(Errno::NXIO));
    let size = || fstat(&file).unwrap().st_size as u64;
    let (keep, punch) = (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE);
    fallocate(&file, punch, MIB + 4096, 4096).unwrap();
    fallocate(&file, FallocateFlags::ZERO_RANGE, MIB + 100, 100).unwrap();
    let mut data = vec![1; 8192];
    pread(&file, &mut data, MIB).unwrap();
    let expected: Vec<u8> =
        (0..8192).map(|i| if i < 4096 && !(100..200).contains(&i) { b'A' } else { 0 }).collect();
    assert!(data == expected);
    fallocate(&file, keep, 8 * MIB, 1000).unwrap();
    assert_eq!(size(), 4 * MIB);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 4 * MIB, 1000).unwrap();
    assert_eq!(size(), 4 * MIB + 1000);
    assert_eq!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
}

/// A shared mapping of the first `len` bytes.
struct Map(*mut u8, usize);

impl Map {
    fn new(file: &OwnedFd, len: usize) -> Map {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; it lives as long as the value.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) };
        Map(at.expect("mmap").cast(), len)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is this long, and only this value hands it out.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.0.cast(), self.1) };
    }
}

#[test]
fn cached_direct_and_mapped_access_agree() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let path = mount.join("file");
    let direct =
        open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT, Mode::from_raw_mode(0o644)).unwrap();
    let aligned = create(&mount.join("buffer"));
    ftruncate(&aligned, 1 << 20).unwrap();
    let mut buffer = Map::new(&aligned, 1 << 20);
    buffer.bytes().fill(b'D');
    for piece in 0..2 {
        assert_eq!(pwrite(&direct, buffer.bytes(), piece << 20), Ok(1 << 20));
    }
    assert_eq!(pread(&direct, buffer.bytes(), 2 << 20), Ok(0));
    assert!(fs::read(&path).unwrap() == vec![b'D'; 2 << 20]);
    let mut mapped = Map::new(&direct, 8192);
    mapped.bytes()[4095..4098].copy_from_slice(b"map");
    pread(&direct, buffer.bytes(), 0).unwrap();
    assert_eq!(&buffer.bytes()[4094..4099], b"DmapD");
    let cached = create(&path);
    pwrite(&cached, b"cached", 10).unwrap();
    assert_eq!(&mapped.bytes()[9..17], b"DcachedD");
    pread(&direct, buffer.bytes(), 0).unwrap();
    assert_eq!(&buffer.bytes()[9..17], b"DcachedD");
    buffer.bytes()[..4096].fill(b'N');
    pwrite(&direct, &buffer.bytes()[..4096], 0).unwrap();
    let mut seen = [0; 16];
    pread(&cached, &mut seen, 8).unwrap();
    assert_eq!(seen, [b'N'; 16]);
    drop((mapped, buffer));
    let copied = fs::copy(&path, mount.join("copy")).unwrap();
    assert_eq!(copied, 2 << 20);
    assert!(fs::read(mount.join("copy")).unwrap() == fs::read(&path).unwrap());
}

#[test]
fn locks_of_whole_files_hold() {
    if !ready(&["flock"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let file = create(&mount.join("lock"));
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let other = create(&mount.join("lock"));
    assert_eq!(flock(&other, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
    let elsewhere = |code| {
        let done = run(Command::new("flock").arg("-n").arg(mount.join("lock")).arg("true"), 10);
        assert_eq!(done.status.code(), Some(code));
    };
    elsewhere(1);
    drop(file);
    elsewhere(0);
}

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

/// Whether a script succeeds as `nobody` in the mount.
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
fn a_program_that_runs_is_not_truncated() {
    if !ready(&["sleep"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    for cache in CACHES {
        let mount = vault.mount_with(&["--cache", cache]);
        let program = mount.join("program");
        sh(mount.path(), "cp $(command -v sleep) program", &[], 60);
        let content = fs::read(&program).unwrap();
        let mut sleep = Command::new(&program).arg("60").spawn().expect("runs");
        for flags in [OFlags::WRONLY, OFlags::WRONLY | OFlags::TRUNC, OFlags::RDONLY | OFlags::TRUNC] {
            let refused = open(&program, flags, Mode::empty()).expect_err("it runs");
            assert_eq!(refused, Errno::TXTBSY, "--cache {cache}, {flags:?}");
        }
        assert!(fs::read(&program).unwrap() == content, "--cache {cache}: changed");
        assert!(sleep.try_wait().unwrap().is_none(), "--cache {cache}: it ended");
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        drop(open(&program, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()).expect("it ended"));
        assert_eq!(fs::metadata(&program).unwrap().len(), 0, "--cache {cache}");
        mount.unmount();
    }
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
        // The kernel knows the old mode well.
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

/// As the kernel's filesystems have it: what the group may not execute keeps set-group-id only if who changes the
/// file is in the group.
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
                // By a program of root's it all stays.
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

/// Whoever asks for a file's size while its stored file is too short or too long (a crash leaves it so, or a copy that
/// is being restored) may be told a wrong one; who opens it then must not go by that.
#[test]
fn a_file_has_its_own_size_whatever_its_stored_file_said() {
    if !ready(&[]) {
        return;
    }
    const LEN: usize = 1 << 20;
    let content: Vec<u8> = (0..LEN).map(|at| (at / 1000) as u8).collect();
    for cache in CACHES {
        let vault = Vault::new("aes-256-ctr");
        let mut mount = vault.mount_with(&["--cache", cache]);
        let file = mount.join("file");
        for other in [-4096_i64, -4000, 4096, 100_000] {
            for then in ["read", "append", "both at once", "by descriptor", "open before"] {
                let what = format!("--cache {cache}, {other} bytes more, {then}");
                fs::write(&file, &content).unwrap();
                mount = mount.remount();
                let stored = stored_file(&vault.store);
                let before = (then == "open before").then(|| File::open(&file).unwrap());
                let whole = fs::read(&stored).unwrap();
                let store = File::options().write(true).open(&stored).unwrap();
                store.set_len((whole.len() as u64).wrapping_add_signed(other)).unwrap();
                let size = told_anew(&file);
                assert_eq!(size == LEN as u64, before.is_some(), "{what}: told {size}");
                fs::write(&stored, &whole).unwrap();
                let mut expected = content.clone();
                match then {
                    "append" => {
                        File::options().append(true).open(&file).unwrap().write_all(b"more").unwrap();
                        expected.extend(b"more");
                    }
                    "by descriptor" => {
                        let path = open(&file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
                        let by_proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&path));
                        assert!(fs::read(by_proc).unwrap() == expected, "{what}: by descriptor");
                    }
                    "both at once" => thread::scope(|threads| {
                        let read = || assert!(fs::read(&file).unwrap() == content, "{what}: one of several");
                        for _ in 0..3 {
                            threads.spawn(read);
                        }
                    }),
                    _ => {}
                }
                let read = match before {
                    None => fs::read(&file).unwrap(),
                    Some(mut file) => {
                        let mut all = Vec::new();
                        file.read_to_end(&mut all).unwrap();
                        all
                    }
                };
                assert!(read == expected, "{what}: {} of {} bytes, or others", read.len(), expected.len());
                assert_eq!(told_anew(&file), expected.len() as u64, "{what}");
            }
        }
        mount.unmount();
    }
}

/// The one regular file that a store of this test has beside the vault's own.
fn stored_file(store: &Path) -> PathBuf {
    let is_ours = |path: &PathBuf| path.is_file() && fs::metadata(path).unwrap().len() > 1 << 20;
    let mut found = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path()).filter(is_ours);
    found.next().expect("a stored file")
}

/// The size that the mount says now, whatever it said before.
fn told_anew(path: &Path) -> u64 {
    let flags = AtFlags::from_bits_retain(libc::AT_STATX_FORCE_SYNC.cast_unsigned());
    rustix::fs::statx(CWD, path, flags, rustix::fs::StatxFlags::SIZE).unwrap().stx_size
}

/// Files whose content and attribute both say who they are, moved about by many threads: whatever is opened
/// is whole.
#[test]
fn nothing_is_mistaken_for_another_under_many_hands() {
    if !ready(&[]) {
        return;
    }
    // Memory gives each inode a number of its own; a disk gives numbers away again at once.
    many_hands(&Vault::in_memory("aes-256-ctr"));
    many_hands(&Vault::new("aes-256-ctr"));
}

fn many_hands(vault: &Vault) {
    let mount = vault.mount();
    for dir in ["a", "b", "a/c", "b/d"] {
        fs::create_dir(mount.join(dir)).unwrap();
    }
    let end = Instant::now() + Duration::from_secs(6);
    thread::scope(|scope| {
        for hand in 0..6 {
            let root = mount.path();
            scope.spawn(move || {
                let mut random = Random::from_seed(hand);
                let mut round = 0;
                while Instant::now() < end {
                    round += 1;
                    shuffle(root, hand, round, &mut random);
                }
            });
        }
    });
    drop(mount.remount());
}

fn shuffle(root: &Path, hand: u64, round: u64, random: &mut Random) {
    let mut place = || -> PathBuf {
        let dir = ["a", "b", "a/c", "b/d", "a/d", "b/c"][random.below(6) as usize];
        root.join(dir).join(format!("{}", random.below(4)))
    };
    let (one, two) = (place(), place());
    let exchange = || renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE);
    match random.below(9) {
        0 | 1 => {
            let name = format!("{hand} {round} ").repeat(300);
            let new = root.join(format!("new {hand}"));
            fs::write(&new, &name).expect("nobody else knows this name");
            setxattr(&new, "user.name", &name.as_bytes()[..20], XattrFlags::empty()).expect("set");
            let _ = fs::rename(&new, &one);
        }
        2 => drop(fs::rename(&one, &two)),
        3 => drop(fs::hard_link(&one, &two)),
        4 => drop(fs::remove_file(&one)),
        5 => drop(exchange()),
        6 => {
            let (from, to) =
                [("a/c", "b/c"), ("b/c", "a/c"), ("b/d", "a/d"), ("a/d", "b/d")][random.below(4) as usize];
            let _ = fs::rename(root.join(from), root.join(to));
        }
        7 => drop(fs::read_dir(one.parent().expect("below the root")).map(|d| d.count())),
        _ => check(&one),
    }
}

fn check(path: &Path) {
    let Ok(mut file) = File::open(path) else { return };
    let (mut content, mut name) = (String::new(), [0; 64]);
    file.read_to_string(&mut content).expect("read");
    let len = rustix::fs::fgetxattr(&file, "user.name", &mut name).expect("attribute of an open file");
    assert_eq!(content.as_bytes()[..20], name[..len]);
    let piece = content.len() / 300;
    assert!(content.as_bytes().chunks(piece).all(|c| c == &content.as_bytes()[..piece]));
    let _ = getxattr(path, "user.name", &mut name);
}

/// The first opening of a small file brings its content to the kernel: whoever opens, reads, cuts and writes
/// at that moment finds what was there.
#[test]
fn small_files_are_whole_whoever_opens_them_first() {
    if !ready(&[]) {
        return;
    }
    const FILES: usize = 150;
    let vault = Vault::new("aes-256-ctr");
    let mut mount = vault.mount();
    let size = |i: usize| [1, 4095, 4096, 10_000, 65_536, 65_537][i % 6];
    for round in 0..4 {
        for i in 0..FILES {
            fs::write(mount.join(i.to_string()), vec![i as u8; size(i)]).unwrap();
        }
        mount = mount.remount();
        let mount = &mount;
        thread::scope(|scope| {
            for reader in 0..4 {
                scope.spawn(move || {
                    for i in (0..FILES).map(|i| (i + reader * round) % FILES) {
                        let read = fs::read(mount.join(i.to_string())).unwrap();
                        // Until a cut is answered the kernel keeps the old size, and fills up to it with zeros.
                        let cut = i % 3 == 0;
                        let known = |&byte: &u8| byte == i as u8 || byte == 0xee || cut && byte == 0;
                        assert!(read.iter().all(known), "file {i}");
                    }
                });
            }
            scope.spawn(move || {
                for i in (0..FILES).step_by(3) {
                    let file = File::options().write(true).open(mount.join(i.to_string())).unwrap();
                    file.set_len(size(i) as u64 / 2).unwrap();
                    pwrite(&file, &[0xee; 10], 0).unwrap();
                }
            });
        });
        for i in 0..FILES {
            let read = fs::read(mount.join(i.to_string())).unwrap();
            let mut expected = vec![i as u8; size(i)];
            if i % 3 == 0 {
                expected.truncate(size(i) / 2);
                expected.resize(expected.len().max(10), i as u8);
                expected[..10].fill(0xee);
            }
            assert_eq!(read, expected, "file {i}");
        }
    }
}

/// A file cut by its name before anybody opened it.
#[test]
fn a_small_file_cut_before_it_is_opened_ends_there() {
    if !ready(&["python3"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    for i in 0..50 {
        fs::write(mount.join(format!("file {i}")), [7; 9000]).unwrap();
    }
    let mount = mount.remount();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for i in 0..50 {
                let read = fs::read(mount.join(format!("file {i}"))).unwrap();
                assert!(read.len() <= 9000 && read.iter().all(|&byte| byte == 7));
            }
        });
        let cut = "import os, sys\nfor i in range(0, 50, 10): os.truncate(f'{sys.argv[1]}/file {i}', 5000)";
        let cut = Command::new("python3").args(["-c", cut]).arg(mount.path()).status();
        assert!(cut.is_ok_and(|status| status.success()));
        reader.join().unwrap();
    });
    for i in 0..50 {
        let len = if i % 10 == 0 { 5000 } else { 9000 };
        assert_eq!(fs::read(mount.join(format!("file {i}"))).unwrap(), vec![7; len]);
    }
}
