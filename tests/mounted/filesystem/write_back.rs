//! `--cache write-back`: the kernel collects writes, and uses its own sizes and times.

use crate::support::{
    CACHES, disk::Disk, mounted::Vault, random::Random, raw::Mapping, ready, ready_as_root,
};
use rustix::fs::{OFlags, SeekFrom, seek};
use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

const MIB: usize = 1 << 20;

fn new_file(path: &Path) -> File {
    File::options().create_new(true).read(true).write(true).open(path).expect("create")
}

/// The kernel asks for data and holes before it has written the data back.
#[test]
fn what_is_gathered_is_data_to_who_copies_it() {
    if !ready(&["cp"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["--cache", "write-back"]);
    let file = new_file(&mount.join("file"));
    file.write_all_at(&[7; 100_000], 0).expect("write");
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(0));
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(100_000));
    let copy =
        Command::new("cp").arg("--sparse=auto").arg(mount.join("file")).arg(mount.join("copy")).status();
    assert!(copy.expect("cp").success());
    assert!(fs::read(mount.join("copy")).expect("read") == [7; 100_000]);
    drop(file);
    mount.unmount();
}

/// A write reaches the mount later than the program issued it.
#[test]
fn a_file_has_the_time_of_its_last_write() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["--cache", "write-back"]);
    let path = mount.join("file");
    let time = |path: &Path| {
        let known = fs::metadata(path).expect("stat");
        (known.mtime(), known.mtime_nsec())
    };
    let file = new_file(&path);
    let mut past = OpenOptions::new();
    let past = past.read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(&path).expect("open");
    for round in 0..3 {
        file.write_all_at(&[round; 10_000], 5000 * u64::from(round)).expect("write");
        let written = time(&path);
        std::thread::sleep(Duration::from_millis(20));
        // Makes the kernel write the pages, but not the time.
        past.read_at(&mut [0; 4096], 0).expect("read");
        assert_eq!(time(&path), written);
        file.sync_all().expect("fsync");
    }
    file.write_all_at(b"last", 0).expect("write");
    let written = time(&path);
    drop((file, past));
    let mount = mount.remount();
    assert_eq!(time(&mount.join("file")), written);
    mount.unmount();
}

/// How a program writes to a full store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Write,
    Append,
    Past,
    Mapped,
}

/// The program's action once there is space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Rewrite,
    Append,
    Cut,
    OpenAgain,
}

const WAYS: [Way; 4] = [Way::Write, Way::Append, Way::Past, Way::Mapped];
const THEN: [Then; 4] = [Then::Rewrite, Then::Append, Then::Cut, Then::OpenAgain];

/// Bytes that fsync confirmed before the store was full, and bytes that do not fit.
const SURE: usize = MIB;
const MORE: usize = 2 * MIB;

fn write_more(way: Way, path: &Path, more: &[u8]) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = match way {
        Way::Append => options.append(true).open(path)?,
        Way::Past => options.write(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path)?,
        Way::Write | Way::Mapped => options.read(true).write(true).open(path)?,
    };
    match way {
        Way::Append => file.write_all(more)?,
        Way::Write | Way::Past => file.write_all_at(more, SURE as u64)?,
        Way::Mapped => {
            file.set_len((SURE + MORE) as u64)?;
            let mapping = Mapping::new(&file, SURE as u64, MORE, true)?;
            mapping.write(0, more);
            mapping.sync()?;
        }
    }
    file.sync_all()
}

/// Called after the write or fsync has failed. The file must have the confirmed content, accept writes,
/// and have the size that it reports.
fn go_on(then: Then, path: &Path, sure: &[u8], last: &[u8]) -> u64 {
    let mut file =
        OpenOptions::new().append(then == Then::Append).read(true).write(true).open(path).expect("open");
    match then {
        Then::Rewrite => file.write_all_at(last, SURE as u64).expect("write"),
        Then::Append => file.write_all(last).expect("append"),
        Then::Cut => {
            file.set_len(SURE as u64).expect("cut");
            file.write_all_at(last, SURE as u64).expect("write");
        }
        Then::OpenAgain => {}
    }
    file.sync_all().expect("fsync, now that there is room");
    drop(file);
    intact(then, path, sure, last)
}

/// Asserts that the confirmed content is intact. Returns the file's size.
fn intact(then: Then, path: &Path, sure: &[u8], last: &[u8]) -> u64 {
    let all = fs::read(path).expect("read");
    assert_eq!(all.len() as u64, fs::metadata(path).expect("stat").len(), "its size");
    assert!(all.starts_with(sure), "what was confirmed first");
    match then {
        Then::Rewrite => assert!(all[SURE..].starts_with(last), "what was confirmed last"),
        Then::Append => assert!(all.ends_with(last), "what was confirmed last"),
        Then::Cut => assert!(all[SURE..] == *last, "what was confirmed last"),
        Then::OpenAgain => {}
    }
    all.len() as u64
}

/// With its write-back cache, the kernel keeps the size that the file would have had until the file is opened
/// after the release of its last handle, which the kernel sends later. Its last write-back may succeed after
/// all, and then the size is right.
fn wait_for_true_size(path: &Path, written: usize) {
    let end = Instant::now() + Duration::from_secs(5);
    let size = || File::open(path).and_then(|file| file.metadata()).expect("stat").len();
    while size() == written as u64 && Instant::now() < end {}
}

#[test]
fn a_full_store_is_said_and_loses_nothing_that_was_confirmed() {
    if !ready_as_root(&["mount"]) {
        return;
    }
    for cache in CACHES {
        let disk = Disk::new("80m");
        let vault = Vault::at(&disk.0.path().join("vault"), "aes-256-ctr");
        let mount = vault.mount_with(&["--cache", cache]);
        let mut random = Random::new("full");
        let sure = random.bytes(SURE);
        let more = random.bytes(MORE);
        let last = random.bytes(100_000);
        let ballast = disk.0.path().join("ballast");
        let cases: Vec<(usize, Way, Then)> = WAYS
            .iter()
            .flat_map(|way| THEN.map(|then| (*way, then)))
            .enumerate()
            .map(|(number, (way, then))| (number, way, then))
            .collect();
        let path = |number: usize| -> PathBuf { mount.join(number.to_string()) };
        let mut sizes = Vec::new();
        for &(number, way, then) in &cases {
            let what = format!("--cache {cache}, {way:?}, then {then:?}");
            let path = path(number);
            let file = new_file(&path);
            file.write_all_at(&sure, 0).and_then(|()| file.sync_all()).expect("there is room");
            assert!(fs::write(&ballast, vec![1; 80 * MIB]).is_err(), "{what}");
            let failed = write_more(way, &path, &more).expect_err(&what);
            assert_eq!(failed.kind(), ErrorKind::StorageFull, "{what}");
            fs::remove_file(&ballast).expect("remove");
            let end = Instant::now() + Duration::from_secs(20);
            while rustix::fs::statvfs(disk.0.path()).expect("statvfs").f_bavail * 4096 < 8 << 20 {
                assert!(Instant::now() < end, "{what}: no room");
            }
            // Another handle may report the error too, but only once.
            let _ = file.sync_all();
            file.sync_all().unwrap_or_else(|e| panic!("{what}: {e}"));
            drop(file);
            if way != Way::Mapped {
                wait_for_true_size(&path, SURE + MORE);
            }
            sizes.push(go_on(then, &path, &sure, &last));
        }
        let mount = mount.remount();
        for ((number, way, then), size) in cases.into_iter().zip(sizes) {
            let now = intact(then, &mount.join(number.to_string()), &sure, &last);
            assert_eq!(now, size, "--cache {cache}, {way:?}, then {then:?}: its size in another mount");
        }
        mount.unmount();
    }
}

/// The kernel keeps the size that a file would have had, until the file is opened after its last handle
/// was released.
#[test]
fn what_did_not_fit_is_not_shown_for_long() {
    if !ready_as_root(&["mount"]) {
        return;
    }
    let disk = Disk::new("40m");
    let vault = Vault::at(&disk.0.path().join("vault"), "aes-256-ctr");
    let mount = vault.mount_with(&["--cache", "write-back"]);
    let path = mount.join("file");
    let file = new_file(&path);
    file.sync_all().expect("there is room");
    let ballast = disk.0.path().join("ballast");
    assert!(fs::write(&ballast, vec![1; 40 * MIB]).is_err());
    // More than a mount buffers per file.
    let bytes = Random::new("more").bytes(16 * MIB);
    let failed = file.write_all_at(&bytes, 0).and_then(|()| file.sync_all());
    assert_eq!(failed.expect_err("no room").kind(), ErrorKind::StorageFull);
    fs::remove_file(&ballast).expect("remove");
    drop(file);
    wait_for_true_size(&path, bytes.len());
    let size = fs::metadata(&path).expect("stat").len();
    let mount = mount.remount();
    assert_eq!(fs::metadata(mount.join("file")).expect("stat").len(), size, "it shows what was never stored");
    for (stored, written) in fs::read(mount.join("file")).expect("read").chunks(4096).zip(bytes.chunks(4096))
    {
        let lost = stored.iter().all(|byte| *byte == 0);
        assert!(lost || written.starts_with(stored), "it has what was never written");
    }
    mount.unmount();
}
