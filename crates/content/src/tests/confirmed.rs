//! Regression tests for ways in which confirmed data was lost.

use super::*;
use format::record::RECORD;
use std::panic::{AssertUnwindSafe, catch_unwind};

const CHUNK: usize = 4096;

fn killed_and_read(store: &Arc<FaultyFile>, context: &Arc<Context>) -> Vec<u8> {
    read_all(&open(&killed(&store.snapshot()), context)).unwrap()
}

/// A power cut that loses everything since the last sync.
fn cut_off(store: &Arc<FaultyFile>) -> Arc<FaultyFile> {
    FaultyFile::at(&store.snapshot().power_cut(|_| false, |_| 0))
}

#[test]
fn what_a_failed_append_left_does_not_spoil_what_comes_after_it() {
    let context = context();
    for room in 0..40 {
        let mut content = Rng(1).bytes(11 * CHUNK);
        let store = stored(&content, &context);
        let file = open(&store, &context);
        file.write(11 * CHUNK as u64, &[7; 30 * CHUNK]).unwrap();
        store.fail_from(room, ENOSPC);
        let appended = file.sync();
        file.truncate(11 * CHUNK as u64).ok();
        store.mend();
        if appended.is_ok() {
            return;
        }
        if file.failed() {
            continue;
        }
        file.truncate(11 * CHUNK as u64).unwrap();
        file.write(60 * CHUNK as u64, &[9; CHUNK]).unwrap();
        file.sync().unwrap();
        content.resize(60 * CHUNK, 0);
        content.extend([9; CHUNK]);
        assert!(killed_and_read(&store, &context) == content, "{room}");
    }
    panic!("there never was room");
}

/// A hole is filled, which fails, and then punched: nothing is left to flush, but the store has leftovers
/// to erase.
#[test]
fn a_sync_after_a_failed_flush_forgets_what_that_left() {
    let context = context();
    for nth in 0..8 {
        let (store, mut content) = (FaultyFile::new(), vec![0; 10 * CHUNK]);
        content.extend([1; CHUNK]);
        let file = open(&store, &context);
        file.write(10 * CHUNK as u64, &[1; CHUNK]).unwrap();
        file.sync().unwrap();
        file.write(3 * CHUNK as u64, &[2; CHUNK]).unwrap();
        store.fail_from(nth, ENOSPC);
        if file.flush().is_ok() {
            assert!(nth > 1);
            return;
        }
        store.mend();
        file.punch(3 * CHUNK as u64, CHUNK as u64).unwrap();
        file.sync().unwrap();
        assert!(killed_and_read(&store, &context) == content, "{nth}");
    }
}

#[test]
fn a_cut_that_the_store_did_not_follow_has_happened() {
    let context = context();
    let mut not_followed = 0;
    for nth in 0.. {
        let mut content = Rng(2).bytes(200 * CHUNK);
        let store = stored(&content, &context);
        let file = open(&store, &context);
        store.fail_from(nth, ENOSPC);
        let cut = file.truncate(100);
        store.mend();
        if file.failed() {
            continue; // Its sync failed.
        }
        match cut {
            Ok(()) if store.len().unwrap() == layout::stored_size(100) => break,
            Ok(()) => not_followed += 1,
            Err(_) => assert!(read_all(&file).unwrap() == content),
        }
        file.truncate(100).unwrap();
        content.truncate(100);
        for (chunk, byte) in [(120, 5), (150, 6)] {
            content.resize(chunk * CHUNK, 0);
            content.extend([byte; CHUNK]);
            file.write((chunk * CHUNK) as u64, &[byte; CHUNK]).unwrap();
            file.sync().unwrap();
            assert!(read_all(&file).unwrap() == content, "{nth}");
        }
        assert!(killed_and_read(&store, &context) == content, "{nth}");
    }
    assert_eq!(not_followed, 1);
}

/// After a failed sync, reopening a file may read pages that never reached the disk.
#[test]
fn recovery_makes_durable_what_it_keeps() {
    let context = context();
    let store = stored(&[1; 20 * CHUNK], &context);
    let file = open(&store, &context);
    file.write(0, &[2; 20 * CHUNK]).unwrap();
    file.flush().unwrap();
    let left = killed(&store.snapshot());
    let calls = left.calls();
    assert!(read_all(&open(&left, &context)).unwrap() == [2; 20 * CHUNK]);
    assert!(left.calls() - calls > 20, "every chunk is written again");
    let after = cut_off(&left);
    assert!(read_all(&open(&after, &context)).unwrap() == [2; 20 * CHUNK]);
}

#[test]
fn without_the_key_no_chunk_becomes_zeros() {
    let context = context();
    let content = Rng(3).bytes(30 * CHUNK + 100);
    let resting = stored(&content, &context);
    let good = resting.bytes();
    // A state that exists briefly during a mount, and that an attacker may keep.
    let flushed = FaultyFile::new();
    let file = open(&flushed, &context);
    file.write(0, &content).unwrap();
    file.flush().unwrap();
    let dirty = flushed.bytes();
    let blank = |bytes: &mut Vec<u8>, chunks: &[usize]| {
        chunks.iter().for_each(|chunk| bytes[1024 + 64 * chunk..][..64].fill(0));
    };
    for sectors in [&[0][..], &[1], &[0, 1]] {
        for chunks in [&[5, 7, 20][..], &[0], &[]] {
            for (from, records) in [(&good, None), (&dirty, None), (&good, Some(&dirty))] {
                let mut bytes = from.clone();
                if let Some(records) = records {
                    bytes[..2 * RECORD].copy_from_slice(&records[..2 * RECORD]);
                }
                sectors.iter().for_each(|sector| bytes[sector * RECORD..][..RECORD].fill(0));
                blank(&mut bytes, chunks);
                let store = FaultyFile::new();
                store.tamper(|all| *all = bytes);
                let Ok(file) = File::open(store, context.clone()) else { continue };
                for index in 0..layout::chunks(file.size()) as usize {
                    let mut out = vec![0; CHUNK];
                    let Ok(len) = file.read((index * CHUNK) as u64, &mut out) else { continue };
                    let want = &content[index * CHUNK..];
                    assert!(out[..len] == want[..len], "chunk {index} without {sectors:?} {chunks:?}");
                }
            }
        }
    }
    // Everything of a small file except the first record.
    let store = stored(&content[..100], &context);
    store.tamper(|bytes| bytes[512..4096].fill(0));
    let file = open(&store, &context);
    assert!(file.read(0, &mut [0; 100]).is_err());
}

#[test]
fn a_killed_stream_is_the_beginning_of_what_was_written() {
    let context = Arc::new(context_over(Background::at_once()));
    let content = Rng(4).bytes(300 * CHUNK + 77);
    let store = FaultyFile::new();
    let file = open(&store, &context);
    store.record_every(5);
    for piece in content.chunks(10_000) {
        file.append(piece).unwrap();
    }
    file.flush().unwrap();
    let states = store.recorded();
    assert!(states.len() > 50);
    let sizes: Vec<usize> = states
        .iter()
        .map(|state| {
            let read = read_all(&open(&killed(state), &context)).unwrap();
            assert!(content.starts_with(&read), "{} bytes", read.len());
            read.len()
        })
        .collect();
    assert!(sizes.is_sorted() && sizes.last() == Some(&content.len()), "{sizes:?}");
}

#[test]
fn after_a_panic_a_file_only_fails_until_it_is_opened_anew() {
    let context = context();
    let store = stored(&[1; 10_000], &context);
    let file = open(&store, &context);
    file.write(0, &[2; 100]).unwrap();
    file.sync().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut st = file.core.state.write();
        st.dirty.size = 5; // Half of a change.
        panic!("in the middle of it");
    }));
    assert!(panicked.is_err() && file.failed() && file.sync_failed());
    assert!(file.write(0, b"x").is_err() && file.sync().is_err());
    assert!(file.read(0, &mut [0; 10]).is_err() && file.read(0, &mut [0; 50_000]).is_err());
    let read = read_all(&open(&store, &context)).unwrap();
    assert!(read[..100] == [2; 100] && read[100..] == [1; 9_900]);
}

#[test]
fn what_follows_a_blank_header_is_set_aside_before_it_is_overwritten() {
    let kept: Arc<parking_lot::Mutex<Vec<u64>>> = Arc::default();
    let keep = kept.clone();
    let vacate = Box::new(move |file: &dyn BackingFile| {
        let len = file.len()?;
        keep.lock().extend((len > 0).then_some(len));
        Ok(())
    });
    let context = Arc::new(Context { vacate, ..context_over(Background::default()) });
    let store = stored(&[1; 500_000], &context);
    let len = store.len().unwrap();
    store.tamper(|bytes| bytes[..4096].fill(0));
    let file = open(&store, &context);
    assert!(file.is_blank() && file.size() == 0);
    assert_eq!(store.len().unwrap(), len, "reading changes nothing");
    file.write(0, b"new").unwrap();
    file.sync().unwrap();
    assert_eq!(*kept.lock(), [len]);
    assert_eq!(read_all(&open(&killed(&store.snapshot()), &context)).unwrap(), b"new");
    // The leftovers of our own failed first flush are not set aside.
    let store = FaultyFile::new();
    let file = open(&store, &context);
    file.write(0, &[1; 50_000]).unwrap();
    store.fail_from(3, ENOSPC);
    assert!(file.sync().is_err() && store.len().unwrap() > 0);
    store.mend();
    file.sync().unwrap();
    assert_eq!(kept.lock().len(), 1);
}

/// Recovery reads what was written, not the whole address range of the file.
#[test]
fn recovery_of_a_vast_sparse_file_takes_few_calls() {
    const PLACES: u64 = 50;
    let context = context();
    let store = FaultyFile::new();
    let file = open(&store, &context);
    file.truncate(1 << 40).unwrap();
    clean(&file);
    for place in 0..PLACES {
        file.write((place * 20) << 30, &[place as u8 + 1; CHUNK]).unwrap();
    }
    file.flush().unwrap();
    let left = killed(&store.snapshot());
    let file = open(&left, &context);
    let calls = left.asked().len() as u64;
    assert!(calls < 100 * PLACES, "{calls} calls");
    for place in 0..PLACES {
        let mut out = [0; 2 * CHUNK];
        file.read((place * 20) << 30, &mut out).unwrap();
        assert!(out[..CHUNK] == [place as u8 + 1; CHUNK] && out[CHUNK..] == [0; CHUNK]);
    }
    assert_eq!(file.size(), 1 << 40);
}
