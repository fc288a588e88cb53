//! Whole runs over files that are looked at in windows, and that others change while they are.

use super::{source::Listed, *};
use crate::crypto::hash::{Digest, Function};
use rustix::fs::ftruncate;
use std::{
    fs::{self, File},
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Bytes of a window: several of each file.
const WINDOW: u64 = 1 << 20;

/// What happens to a file, given a handle to write with.
type Change<'a> = &'a (dyn Fn(&File) + Sync);

/// Plain files in short windows.
struct Windowed<'a> {
    /// Once there is a window.
    on_window: Change<'a>,
    /// Before something is read.
    on_read: Change<'a>,
    /// Windows that there were.
    windows: AtomicU64,
}

struct Seen<'a> {
    file: OwnedFd,
    source: &'a Windowed<'a>,
}

impl Seen<'_> {
    fn change(&self, change: Change) {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        change(&File::options().write(true).open(path).unwrap());
    }
}

impl Content for Seen<'_> {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.change(self.source.on_read);
        self.file.read_at(out, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn window(&self, offset: u64) -> Option<Window> {
        let window = Window::new(&self.file, offset, WINDOW.min(self.size().ok()?.checked_sub(offset)?))?;
        self.source.windows.fetch_add(1, Ordering::Relaxed);
        self.change(self.source.on_window);
        Some(window)
    }
}

/// A source must be borrowed for as long as its files.
struct Shared<'a>(&'a Windowed<'a>);

impl<'a> Source for Shared<'a> {
    type Place = <Plain as Source>::Place;
    type Content = Seen<'a>;

    fn start(&self, path: &Path) -> io::Result<(Kind, Self::Place)> {
        Plain::default().start(path)
    }

    fn list(&self, path: &Path, place: &Self::Place) -> io::Result<Vec<Listed<Self::Place>>> {
        Plain::default().list(path, place)
    }

    fn size(&self, path: &Path, place: &Self::Place) -> io::Result<u64> {
        Plain::default().size(path, place)
    }

    fn open(&self, path: &Path, place: &Self::Place) -> io::Result<Seen<'a>> {
        Ok(Seen { file: Plain::default().open(path, place)?, source: self.0 })
    }
}

/// Hashes a folder by some functions, with those changes; also gives how many windows there were.
fn records(
    root: &Path,
    names: &[&str],
    threads: usize,
    on_window: Change,
    on_read: Change,
) -> (Vec<Record>, u64) {
    let functions: Vec<Function> = names.iter().map(|name| Function::from_name(name).unwrap()).collect();
    let source = Windowed { on_window, on_read, windows: AtomicU64::new(0) };
    let (stop, progress) = (AtomicBool::new(false), Progress::default());
    let options = Options { threads, stop: &stop, progress: &progress, gpu: None };
    let mut records = Vec::new();
    run(&Shared(&source), &[root.to_owned()], &functions, &options, |record| records.push(record));
    (records, source.windows.into_inner())
}

fn unchanged(_: &File) {}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 37 + i / 253 + len) as u8).collect()
}

/// Files of these lengths.
fn folder(lens: &[usize]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let place = tempfile::tempdir().unwrap();
    let paths = lens.iter().enumerate().map(|(number, len)| {
        let path = place.path().join(format!("{number:02}"));
        fs::write(&path, content(*len)).unwrap();
        path
    });
    let paths = paths.collect();
    (place, paths)
}

fn digests(names: &[&str], message: &[u8]) -> Vec<Digest> {
    names.iter().map(|name| Function::from_name(name).unwrap().digests(&[message])[0]).collect()
}

const FUNCTIONS: [&[&str]; 4] =
    [&["sha3-256"], &["k12"], &["md6-256"], &["shake128", "md6-224", "k12", "sha3-512"]];

#[test]
fn a_thread_that_panics_ends_the_run() {
    let (place, _) = folder(&[700_000, 100, 2 << 20, 3 << 20, 5000]);
    for names in FUNCTIONS {
        let run = || records(place.path(), names, 3, &unchanged, &|_| panic!("on purpose"));
        assert!(std::panic::catch_unwind(run).is_err());
    }
}

#[test]
fn windows_show_what_reading_gives() {
    let mib = 1 << 20;
    let lens =
        [200_000, mib - 1, mib, mib + 1, 4096 * 300, 3 * mib, 3 * mib + 77, 2 * mib - 4095, 5 * mib, 600_000];
    let (place, _) = folder(&lens);
    for names in FUNCTIONS {
        let (records, windows) = records(place.path(), names, 2, &unchanged, &unchanged);
        assert!(windows >= 15, "{windows} windows for {names:?}");
        for (record, len) in records.iter().zip(lens) {
            let hashed = record.result.as_ref().unwrap();
            assert_eq!(hashed.digests, digests(names, &content(len)), "{names:?} of {len} bytes");
        }
    }
}

/// However much is cut off, also less than a page, where no signal comes.
#[test]
fn a_file_that_is_shortened_while_it_is_seen_has_no_digest() {
    const LEN: u64 = (3 << 20) + 2000;
    for names in FUNCTIONS {
        for left in [0, 5000, LEN / 2, LEN - 1] {
            let (place, _) = folder(&[LEN as usize, 2 << 20, 2 << 20]);
            let cut = |file: &File| {
                if file.metadata().unwrap().len() == LEN {
                    ftruncate(file, left).unwrap();
                }
            };
            let (records, _) = records(place.path(), names, 2, &cut, &unchanged);
            let error = records[0].result.as_ref().unwrap_err();
            assert_eq!(error.to_string(), "it became shorter while it was read", "{names:?}, {left} left");
            for record in &records[1..] {
                let hashed = record.result.as_ref().unwrap();
                assert_eq!(hashed.digests, digests(names, &content(2 << 20)), "{names:?} of another file");
            }
        }
    }
}

/// What could not be seen is read, and counts as it is read. By one thread, for it is cut off again when the next part of
/// it is looked at.
#[test]
fn what_a_window_lost_is_read() {
    const LEN: usize = (2 << 20) + 100;
    let (empty, whole) = (
        |file: &File| ftruncate(file, 0).unwrap(),
        |file: &File| {
            rustix::io::pwrite(file, &content(LEN), 0).unwrap();
        },
    );
    for names in FUNCTIONS {
        let (place, _) = folder(&[LEN; 9]);
        let (records, _) = records(place.path(), names, 1, &empty, &whole);
        assert_eq!(records.len(), 9);
        for record in records {
            assert_eq!(record.result.unwrap().digests, digests(names, &content(LEN)), "{names:?}");
        }
    }
}

#[test]
fn a_file_that_grows_is_hashed_as_long_as_it_was() {
    const LEN: usize = (2 << 20) + 100;
    for names in FUNCTIONS {
        let (place, paths) = folder(&[LEN]);
        let grow = |file: &File| ftruncate(file, file.metadata().unwrap().len() + 10_000).unwrap();
        let (records, _) = records(place.path(), names, 2, &grow, &unchanged);
        let hashed = records[0].result.as_ref().unwrap();
        assert_eq!((hashed.size, &hashed.digests), (LEN as u64, &digests(names, &content(LEN))));
        assert!(fs::metadata(&paths[0]).unwrap().len() > LEN as u64);
    }
}
