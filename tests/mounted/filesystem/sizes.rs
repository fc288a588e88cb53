//! The size of a file whose stored file has another length.

use crate::support::{CACHES, mounted::Vault, ready};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx};
use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::{DirEntryExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
};

/// Bytes of each file: more than the kernel is given when a file is opened, and than the first group of chunks. Little
/// beyond that, as a fake GPU takes seconds for each megabyte.
const LEN: usize = 52 << 12;
/// By how much the stored file is longer while the kernel asks for the size.
const LONGER: [i64; 4] = [-4096, -4000, 4096, 100_000];

/// How the file is opened after the kernel was told a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Read,
    Append,
    BothAtOnce,
    ByDescriptor,
    OpenBefore,
}

const THEN: [Then; 5] = [Then::Read, Then::Append, Then::BothAtOnce, Then::ByDescriptor, Then::OpenBefore];

/// A crash, or a copy that is being restored, leaves the stored file too short or too long. A program that asks for the
/// size then may be told a wrong one. What opens the file afterwards must not go by that.
#[test]
fn a_file_has_its_own_size_whatever_its_stored_file_said() {
    if !ready(&[]) {
        return;
    }
    // The engine has no part in this: where the tests run over a slow one, one way of caching is enough.
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
        // From here on neither the kernel nor the mount knows anything of the files.
        let mount = mount.remount();
        for (number, ((longer, then), stored)) in cases.into_iter().zip(&stored).enumerate() {
            let what = format!("--cache {cache}, {longer} bytes more, {then:?}");
            check(&mount.join(number.to_string()), stored, content(number), longer, (then, cache), &what);
        }
        mount.unmount();
    }
}

/// What is in a file: each has its own.
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
                // The kernel would go by the size that it has.
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

/// The stored file of a mounted one, whose inode number the mount shows.
fn stored_file(store: &Path, file: &Path) -> PathBuf {
    let number = fs::metadata(file).unwrap().ino();
    let mut found = fs::read_dir(store).unwrap().map(Result::unwrap).filter(|entry| entry.ino() == number);
    found.next().expect("a stored file").path()
}

/// The size that the mount says now, whatever it said before.
fn told_anew(path: &Path) -> u64 {
    let flags = AtFlags::from_bits_retain(libc::AT_STATX_FORCE_SYNC.cast_unsigned());
    statx(CWD, path, flags, StatxFlags::SIZE).unwrap().stx_size
}
