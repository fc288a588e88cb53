//! Compares a file's content with a plain byte vector, across reopening, kills, power cuts and failures.

use crate::{
    Background, ContentKeys, Context, Durability, Error, File,
    testing::{SINGLES_BY_HAND, context, context_of_few, context_over, context_with, read_all},
};
use crypto::{cipher::Cipher, integrity::Integrity, kdf::FileKdf, secret::Secret};
use format::layout;
use std::sync::{Arc, atomic::Ordering};
use store::{BackingFile, Failure, FaultyFile, Snapshot};

mod ahead;
mod bounds;
mod confirmed;
mod crash;
mod explore;
mod faults;
mod full;
mod hostile;
mod model;
mod rebuild;
mod recovered;
mod rekey;
mod several;
mod single;
mod sparse;
mod streams;
mod tamper;

/// A small deterministic random number generator (splitmix64).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub(super) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8 | 1).collect()
    }
}

pub(super) fn open(store: &Arc<FaultyFile>, context: &Arc<Context>) -> Arc<File> {
    File::open(store.clone(), context.clone()).unwrap()
}

/// Cleans a file as the flusher does.
pub(super) fn clean(file: &Arc<File>) {
    let rest = file.cleaner().flush().unwrap();
    file.cleaner().sync().unwrap();
    if file.cleaner().settle(rest).unwrap() {
        file.cleaner().sync().unwrap();
        file.cleaner().finish(rest).unwrap();
    }
    assert!(file.is_clean());
}

/// The store of a clean file with `content`.
pub(super) fn stored(content: &[u8], context: &Arc<Context>) -> Arc<FaultyFile> {
    let store = FaultyFile::new();
    let file = open(&store, context);
    file.write(0, content).unwrap();
    clean(&file);
    store
}

#[test]
fn a_small_file_is_one_write_and_no_sync() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    file.write(0, b"hello").unwrap();
    file.flush().unwrap();
    assert_eq!((store.calls(), store.syncs()), (2, 0), "a header page and a chunk");
    assert_eq!(store.bytes().len() as u64, layout::stored_size(5));
    assert_eq!(read_all(&open(&FaultyFile::killed(&store.snapshot()), &context)).unwrap(), b"hello");
}

#[test]
fn the_header_page_is_read_once() {
    let context = context();
    let store = stored(&[7; 10_000], &context);
    let file = open(&store, &context);
    store.tamper(|bytes| bytes[..layout::PAGE as usize].fill(0xee));
    assert_eq!(read_all(&file).unwrap(), [7; 10_000]);
    assert!(File::open(store.clone(), context.clone()).is_err());
}

#[test]
fn an_append_costs_one_sync_an_overwrite_two() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    file.write(0, &[1; 8192]).unwrap();
    file.sync().unwrap();
    let before = store.syncs();
    file.write(8192, &[2; 8192]).unwrap();
    file.sync().unwrap();
    assert_eq!(store.syncs() - before, 1);
    file.write(0, &[3; 4096]).unwrap();
    file.sync().unwrap();
    assert_eq!(store.syncs() - before, 3);
    file.truncate(4096).unwrap();
    assert_eq!(store.syncs() - before, 4);
}

#[test]
fn a_close_does_not_sync() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    let mut log = Vec::new();
    for round in 0..5 {
        file.append(&[round; 100]).unwrap();
        log.extend([round; 100]);
        file.flush_at_close().unwrap();
        assert_eq!(read_all(&file).unwrap(), log);
    }
    assert_eq!(store.syncs(), 0);
    assert_eq!(read_all(&open(&killed(&store.snapshot()), &context)).unwrap(), log[..100]);
    clean(&file);
    assert_eq!(read_all(&open(&store, &context)).unwrap(), log);
    drop(file);
    assert_eq!(context.buffered.chunks(), 0);
}

#[test]
fn an_untouched_file_is_never_written() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    file.flush().unwrap();
    assert_eq!(read_all(&file).unwrap(), b"");
    clean(&file);
    assert_eq!(store.bytes(), b"");
}

#[test]
fn every_cipher_and_integrity_function_reads_back() {
    for cipher in Cipher::ALL {
        for integrity in Integrity::ALL {
            let context = context_with(cipher, integrity, false);
            let content = Rng(3).bytes(300_000);
            let store = stored(&content, &context);
            assert_eq!(read_all(&open(&store, &context)).unwrap(), content);
        }
    }
}

#[test]
fn a_sparse_file_costs_nothing_and_grows_levels() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    // Beyond 128 groups (32 MiB), the tree has two levels.
    file.write(0, b"start").unwrap();
    file.flush().unwrap();
    file.write(40 << 20, b"middle").unwrap();
    file.sync().unwrap();
    file.truncate(100 << 20).unwrap();
    clean(&file);
    let file = open(&store, &context);
    let mut out = [9; 16];
    file.read((40 << 20) - 5, &mut out).unwrap();
    assert_eq!(&out, b"\0\0\0\0\0middle\0\0\0\0\0");
    assert_eq!(file.seek(1, true).unwrap(), 1);
    assert_eq!(file.seek(4096, true).unwrap(), 40 << 20);
    assert_eq!(file.seek(4096, false).unwrap(), 4096);
    assert_eq!(file.seek(40 << 20, false).unwrap(), (40 << 20) + 4096);
    assert!(matches!(file.seek(41 << 20, true), Err(Error::NoData)));
    file.truncate(5).unwrap();
    clean(&file);
    assert_eq!(read_all(&open(&store, &context)).unwrap(), b"start");
}

#[test]
fn recovery_keeps_the_modification_time() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    file.write(0, &[1; 10_000]).unwrap();
    file.flush().unwrap();
    store.set_mtime(1234, 5678).unwrap();
    drop(file);
    let file = open(&store, &context);
    assert_eq!(store.mtime().unwrap(), (1234, 5678));
    let time = crate::Time { seconds: 99, nanoseconds: 1 };
    file.times().set_mtime(time, |t| Ok(store.set_mtime(t.seconds, t.nanoseconds)?)).unwrap();
    clean(&file);
    assert_eq!(store.mtime().unwrap(), (99, 1));
}

/// A program that copies stored files by size and time must notice that more data will follow.
#[test]
fn the_store_shows_a_modification_time_only_with_all_of_its_content() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    let set = |seconds| {
        let time = crate::Time { seconds, nanoseconds: 5 };
        file.times().set_mtime(time, |t| Ok(store.set_mtime(t.seconds, t.nanoseconds)?)).unwrap();
        assert_eq!(file.times().mtime(), Some(time));
    };
    file.write(0, &[1; 20_000]).unwrap();
    clean(&file);
    set(50);
    assert_eq!(store.mtime().unwrap(), (50, 5));
    for seconds in [99, 77] {
        let before = store.mtime().unwrap();
        file.write(4096, &[2; 4096]).unwrap();
        set(seconds);
        assert_eq!(store.mtime().unwrap(), before, "the chunk is still buffered");
        file.sync().unwrap();
        assert_eq!(store.mtime().unwrap(), (seconds, 5));
    }
    clean(&file);
    assert_eq!(store.mtime().unwrap(), (77, 5));
}

#[test]
fn what_the_kernel_gathered_keeps_the_time_that_it_told() {
    let (store, context) = (FaultyFile::new(), context());
    store.set_mtime(1, 0).unwrap();
    let file = open(&store, &context);
    let before = crate::Time::now();
    file.write_gathered(0, &[1; 20_000]).unwrap();
    assert!(
        file.times().mtime().unwrap() >= before,
        "the time before is no longer right, whatever the kernel tells"
    );
    let told = crate::Time { seconds: 50, nanoseconds: 5 };
    file.times().set_mtime(told, |t| Ok(store.set_mtime(t.seconds, t.nanoseconds)?)).unwrap();
    file.write_gathered(4096, &[2; 4096]).unwrap();
    assert_eq!(file.times().mtime(), Some(told), "the time came before the write");
    clean(&file);
    assert_eq!(store.mtime().unwrap(), (50, 5));
    file.write(0, &[3; 10]).unwrap();
    assert!(file.times().mtime().unwrap() >= before);
}

#[test]
fn a_read_only_opening_writes_nothing() {
    let writer = context();
    let store = FaultyFile::new();
    let file = open(&store, &writer);
    file.write(0, &[5; 9000]).unwrap();
    file.flush().unwrap(); // Dirty on disk.
    let calls = store.calls();
    let reader = context_with(Cipher::Aes256, Integrity::Kmac128, true);
    let read = open(&store, &reader);
    assert_eq!(read_all(&read).unwrap(), [5; 9000]);
    assert!(matches!(read.write(0, b"x"), Err(Error::ReadOnly)));
    assert!(matches!(read.truncate(1), Err(Error::ReadOnly)));
    read.sync().unwrap();
    assert_eq!(store.calls(), calls);
}

pub(super) fn killed(snapshot: &Snapshot) -> Arc<FaultyFile> {
    FaultyFile::killed(snapshot)
}

pub(super) const ENOSPC: Failure = Failure::Errno(libc::ENOSPC);
