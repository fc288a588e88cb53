//! Whole runs over files that change while they are read.

use super::{source::FolderContents, *};
use crypto::hash::{Digest, Function};
use rustix::fs::ftruncate;
use std::{
    fs::{self, File},
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// A change to a file, given a handle for writing.
type Change<'a> = &'a (dyn Fn(&File) + Sync);

/// Plain files that change before each read, once their size has been queried.
struct ChangingFiles<'a>(Change<'a>);

struct OpenChanging<'a> {
    file: OwnedFd,
    change: Change<'a>,
    told: AtomicBool,
}

impl Content for OpenChanging<'_> {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.told.load(Relaxed) {
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            (self.change)(&File::options().write(true).open(path).unwrap());
        }
        self.file.read_at(out, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.told.store(true, Relaxed);
        self.file.size()
    }
}

impl<'a> Source for ChangingFiles<'a> {
    type Place = <Plain as Source>::Place;
    type Folder = <Plain as Source>::Folder;
    type Stored = ();
    type Content = OpenChanging<'a>;

    fn start(&self, path: &Path) -> io::Result<(SourceKind, Self::Place)> {
        Plain::default().start(path)
    }

    fn list(&self, path: impl FnOnce() -> PathBuf, place: &Self::Place) -> io::Result<FolderContents<Self>> {
        Plain::default().list(path, place)
    }

    fn place(&self, folder: &Self::Folder, (): ()) -> Self::Place {
        Plain::default().place(folder, ())
    }

    fn size(&self, path: &Path, place: &Self::Place) -> io::Result<u64> {
        Plain::default().size(path, place)
    }

    fn open(&self, path: &Path, place: &Self::Place) -> io::Result<OpenChanging<'a>> {
        let file = Plain::default().open(path, place)?;
        Ok(OpenChanging { file, change: self.0, told: AtomicBool::new(false) })
    }
}

/// Hashes a folder with these functions; `change` runs before each read of its files.
fn records(root: &Path, names: &[&str], threads: usize, change: Change) -> Vec<HashRecord> {
    let functions: Vec<Function> = names.iter().map(|name| Function::from_name(name).unwrap()).collect();
    let (stop, progress) = (AtomicBool::new(false), Progress::default());
    let options = Options { threads, stop: &stop, progress: &progress, gpu: None };
    let mut records = Vec::new();
    run(&ChangingFiles(change), &[root.to_owned()], &functions, &options, |record| records.push(record));
    records
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 37 + i / 253 + len) as u8).collect()
}

/// A folder with files of these lengths.
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
        let run = || records(place.path(), names, 3, &|_| panic!("on purpose"));
        assert!(std::panic::catch_unwind(run).is_err());
    }
}

/// Regardless of how much is cut off.
#[test]
fn a_file_that_is_shortened_while_it_is_read_has_no_digest() {
    const LEN: u64 = (3 << 20) + 2000;
    for names in FUNCTIONS {
        for left in [0, 5000, LEN / 2, LEN - 1] {
            let (place, _) = folder(&[LEN as usize, 2 << 20, 2 << 20]);
            let cut = |file: &File| {
                if file.metadata().unwrap().len() == LEN {
                    ftruncate(file, left).unwrap();
                }
            };
            let records = records(place.path(), names, 2, &cut);
            let error = records[0].result.as_ref().unwrap_err();
            assert_eq!(error.to_string(), "it became shorter while it was read", "{names:?}, {left} left");
            for record in &records[1..] {
                let hashed = record.result.as_ref().unwrap();
                assert_eq!(hashed.digests, digests(names, &content(2 << 20)), "{names:?} of another file");
            }
        }
    }
}

#[test]
fn a_file_that_grows_is_hashed_as_long_as_it_was() {
    const LEN: usize = (2 << 20) + 100;
    for names in FUNCTIONS {
        let (place, paths) = folder(&[LEN]);
        let grow = |file: &File| ftruncate(file, file.metadata().unwrap().len() + 10_000).unwrap();
        let records = records(place.path(), names, 2, &grow);
        let hashed = records[0].result.as_ref().unwrap();
        assert_eq!((hashed.size, &hashed.digests), (LEN as u64, &digests(names, &content(LEN))));
        assert!(fs::metadata(&paths[0]).unwrap().len() > LEN as u64);
    }
}
