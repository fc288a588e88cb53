//! The size of a file whose stored file has a different length.

use crate::support::{CACHES, mounted::Vault, ready};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx};
use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::{DirEntryExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
};

/// File size in bytes: more than the kernel is given when a file is opened, and more than the first
/// group of chunks. Not much more, because a fake GPU takes seconds per megabyte.
const LEN: usize = 52 << 12;
/// Bytes by which the stored file is longer while the kernel asks for the size.
const LONGER: [i64; 4] = [-4096, -4000, 4096, 100_000];

/// How the file is accessed after the kernel was told a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Read,
    Append,
    BothAtOnce,
    ByDescriptor,
    OpenBefore,
}

const THEN: [Then; 5] = [Then::Read, Then::Append, Then::BothAtOnce, Then::ByDescriptor, Then::OpenBefore];

/// After a crash, or while a copy is being restored, the stored file is too short or too long. A program
/// that asks for the size then may get a wrong one, but later opens must not use it.
#[test]
fn a_file_has_its_own_size_whatever_its_stored_file_said() {
    if !ready(&[]) {
        return;
    }
    // The engine plays no part here: over a slow one, testing one cache mode is enough.
    let slow = std::env::var_os("WARPCRYPT_TEST_ENGINE").is_some();
    for cache in if slow { &CACHES[..1] } else { &CACHES } {
        let vault = Vault::new("aes-256-ctr");
        let mount = vault.mount_with(&["--cache", cache]);
        let cases: Vec<(i64, Then)> =
            LONGER.iter().flat_map(|longer| THEN.map(|then| (*longer, then))).collect();
        let mut stored = Vec::new();
        for number in 0..cases.len() {
            let file = mount.join(number.to_string());
            fs::write(&file, content(number)).unwrap();
            stored.push(stored_file(&vault.store, &file));
        }
        // From here on, neither the kernel nor the mount has any state of the files.
        let mount = mount.remount();
        for (number, ((longer, then), stored)) in cases.into_iter().zip(&stored).enumerate() {
            let what = format!("--cache {cache}, {longer} bytes more, {then:?}");
            check(&mount.join(number.to_string()), stored, content(number), longer, (then, cache), &what);
        }
        mount.unmount();
    }
}

/// Content of a file, different for each number.
fn content(number: usize) -> Vec<u8> {
    (0..LEN).map(|at| (at / 1000 + number) as u8).collect()
}

fn check(file: &Path, stored: &Path, content: Vec<u8>, longer: i64, (then, cache): (Then, &str), what: &str) {
    let before = (then == Then::OpenBefore).then(|| File::open(file).unwrap());
    let whole = fs::read(stored).unwrap();
    let writer = File::options().write(true).open(stored).unwrap();
    writer.set_len((whole.len() as u64).wrapping_add_signed(longer)).unwrap();
    let size = told_anew(file);
    assert_eq!(size == LEN as u64, before.is_some(), "{what}: told {size}");
    fs::write(stored, &whole).unwrap();
    let mut expected = content;
    match then {
        Then::Append => {
            File::options().append(true).open(file).unwrap().write_all(b"more").unwrap();
            expected.extend(b"more");
        }
        Then::ByDescriptor => {
            let path = open(file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
            let by_proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&path));
            match fs::read(by_proc) {
                // The kernel would use the size that it has cached.
                Err(e) if cache == "write-back" => assert_eq!(e.raw_os_error(), Some(libc::ESTALE), "{what}"),
                read => assert!(read.unwrap() == expected, "{what}: by descriptor"),
            }
        }
        Then::BothAtOnce => thread::scope(|threads| {
            let read = || assert!(fs::read(file).unwrap() == expected, "{what}: one of several");
            for _ in 0..3 {
                threads.spawn(read);
            }
        }),
        Then::Read | Then::OpenBefore => {}
    }
    let read = match before {
        None => fs::read(file).unwrap(),
        Some(mut file) => {
            let mut all = Vec::new();
            file.read_to_end(&mut all).unwrap();
            all
        }
    };
    assert!(read == expected, "{what}: {} of {} bytes, or others", read.len(), expected.len());
    assert_eq!(told_anew(file), expected.len() as u64, "{what}");
}

/// The stored file of a file in a mount, found by the inode number that the mount shows.
fn stored_file(store: &Path, file: &Path) -> PathBuf {
    let number = fs::metadata(file).unwrap().ino();
    let mut found = fs::read_dir(store).unwrap().map(Result::unwrap).filter(|entry| entry.ino() == number);
    found.next().expect("a stored file").path()
}

/// The size that the mount reports now, bypassing cached attributes.
fn told_anew(path: &Path) -> u64 {
    let flags = AtFlags::from_bits_retain(libc::AT_STATX_FORCE_SYNC.cast_unsigned());
    statx(CWD, path, flags, StatxFlags::SIZE).unwrap().stx_size
}
