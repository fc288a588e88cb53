//! Contents: holes, mappings, direct I/O alongside the page cache, locks, executable programs.

use crate::{
    filesystem::create,
    support::{
        CACHES,
        command::{run, sh},
        mounted::Vault,
        ready,
    },
};
use rustix::{
    fs::{
        FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom, fallocate, flock, fstat, ftruncate, open,
        seek,
    },
    io::{Errno, pread, pwrite},
    mm::{MapFlags, ProtFlags},
};
use std::{fs, os::fd::OwnedFd, process::Command};

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

/// The kernel queries holes before it has written back the dirty pages of a mapping.
#[test]
fn mapped_data_is_no_hole() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    for cache in CACHES {
        let mount = vault.mount_with(&["--cache", cache]);
        let file = create(&mount.join("mapped"));
        ftruncate(&file, 1 << 20).unwrap();
        let mut map = Map::new(&file, 1 << 20);
        map.bytes().fill(7);
        assert_eq!(seek(&file, SeekFrom::Data(4096)), Ok(4096), "{cache}");
        assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(1 << 20), "{cache}");
        sh(mount.path(), "cp --sparse=auto mapped copy && cmp mapped copy", &[], 60);
        drop((map, file));
        mount.unmount();
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
    let elsewhere = |patience: &str| {
        let mut command = Command::new("flock");
        run(command.args(["-w", patience]).arg(mount.join("lock")).arg("true"), 60).status.code()
    };
    assert_eq!(elsewhere("0"), Some(1));
    drop(file);
    // A program that another test starts has the file open, too, until it runs.
    assert_eq!(elsewhere("30"), Some(0));
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
