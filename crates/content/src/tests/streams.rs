//! Extents in flight while the application continues.

use super::*;
use crate::{
    background::BackgroundJob,
    in_flight::{Assigned, Ended, Loaded, SealedWrite, Stage},
};
use crossbeam_channel::Receiver;
use crypto::chunk::CHUNK;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Bytes of the first three extents.
const THREE: usize = (48 + 64 + 64) * 4096;

/// A file whose background jobs are run by the test.
fn by_hand() -> (Arc<FaultyFile>, Arc<Context>, Receiver<BackgroundJob>) {
    let (background, jobs) = Background::by_hand();
    (FaultyFile::new(), Arc::new(context_over(background)), jobs)
}

/// Starts two extents; a third one is not full.
fn two_in_flight(file: &Arc<File>, seed: u64) -> Vec<u8> {
    let data = Rng(seed).bytes(THREE - 5000);
    file.write(0, &data).unwrap();
    assert_eq!(file.core.state.read().dirty.in_flight.len(), 2);
    data
}

#[test]
fn what_is_in_flight_counts_as_buffered_and_is_read_back() {
    let (store, context, jobs) = by_hand();
    let file = open(&store, &context);
    let data = two_in_flight(&file, 1);
    let buffered = || context.buffered.chunks();
    assert_eq!((buffered(), jobs.len(), store.calls()), (THREE / 4096 - 1, 2, 0));
    assert!(!file.is_clean() && !file.cleaner().is_flushed());
    assert!(read_all(&file).unwrap() == data);
    assert!(store.calls() > 0, "a read brought them to the store");
    clean(&file);
    assert_eq!(buffered(), 0);
    jobs.try_iter().for_each(|job| job());
    assert!(read_all(&open(&store, &context)).unwrap() == data);
    assert_eq!(context.router.buffers.usage().in_use, 0);
}

#[test]
fn the_background_completes_what_is_ready_in_order() {
    let (store, context, jobs) = by_hand();
    let file = open(&store, &context);
    let data = two_in_flight(&file, 2);
    let (first, second) = (jobs.recv().unwrap(), jobs.recv().unwrap());
    second();
    assert_eq!(
        (store.calls(), file.core.state.read().dirty.in_flight.len()),
        (0, 2),
        "the second waits for the first"
    );
    first();
    assert_eq!(file.core.state.read().dirty.in_flight.len(), 0);
    let killed = open(&killed(&store.snapshot()), &context);
    assert!(read_all(&killed).unwrap() == data[..(48 + 64) * 4096]);
}

#[test]
fn a_chunk_in_flight_is_written_again() {
    for completed in [0, 1, 2] {
        let (store, context, jobs) = by_hand();
        let file = open(&store, &context);
        let mut want = two_in_flight(&file, 3);
        jobs.try_iter().take(completed).for_each(|job| job());
        for (offset, len) in [(10_000, 3), (4096, 4096), (47 * 4096 - 1, 2 * 4096), (60 * 4096, 80 * 4096)] {
            let again = Rng(offset as u64).bytes(len);
            file.write(offset as u64, &again).unwrap();
            want[offset..offset + len].copy_from_slice(&again);
        }
        assert!(read_all(&file).unwrap() == want);
        clean(&file);
        assert!(read_all(&open(&store, &context)).unwrap() == want);
    }
}

#[test]
fn other_operations_meet_what_is_in_flight() {
    type Change = fn(&Arc<File>, &mut Vec<u8>);
    let changes: [Change; 6] = [
        |file, want| {
            file.truncate(20_001).unwrap();
            want.truncate(20_001);
        },
        |file, want| {
            file.truncate(1 << 20).unwrap();
            want.resize(1 << 20, 0);
        },
        |file, want| {
            file.punch(5000, 100_000).unwrap();
            want[5000..105_000].fill(0);
        },
        |file, want| {
            file.allocate(0, 1 << 20, false).unwrap();
            want.resize(1 << 20, 0);
        },
        |file, want| assert_eq!(file.seek(0, false).unwrap(), want.len() as u64),
        |file, _| assert!(file.salt(true).unwrap().is_some()),
    ];
    for (at, change) in changes.iter().enumerate() {
        let (store, context, jobs) = by_hand();
        let file = open(&store, &context);
        let mut want = two_in_flight(&file, 4);
        change(&file, &mut want);
        jobs.try_iter().for_each(|job| job());
        assert!(read_all(&file).unwrap() == want, "change {at}");
        clean(&file);
        assert!(read_all(&open(&store, &context)).unwrap() == want, "change {at}, reopened");
    }
}

/// Part of a failed write is in flight while the flusher cleans the file.
#[test]
fn a_write_that_fails_half_way_is_a_change() {
    let (store, context, jobs) = by_hand();
    let file = open(&store, &context);
    let before = Rng(6).bytes(THREE + 4096);
    file.write(0, &before).unwrap();
    let rest = file.cleaner().flush().unwrap();
    file.cleaner().sync().unwrap();
    let damage = |bytes: &mut Vec<u8>| bytes[layout::chunk_offset(THREE as u64 / 4096) as usize] ^= 1;
    store.tamper(damage);
    let again = Rng(7).bytes(THREE + 1);
    assert!(file.write(0, &again).is_err(), "needs the rest of the damaged chunk");
    store.tamper(damage);
    assert!(!file.core.state.read().dirty.in_flight.is_empty());
    assert!(!file.cleaner().settle(rest).unwrap());
    jobs.try_iter().for_each(|job| job());
    file.sync().unwrap();
    let want = [&again[..THREE], &before[THREE..]].concat();
    assert!(read_all(&open(&store, &context)).unwrap() == want);
}

#[test]
fn an_error_behind_comes_out_of_the_next_call_and_nothing_is_gone() {
    type Call = fn(&Arc<File>) -> Result<(), Error>;
    let calls: [Call; 4] =
        [|file| file.write(0, b"x"), |file| file.flush(), |file| file.sync(), |file| file.flush_at_close()];
    for nth in [0, 1, 60, 110] {
        for call in calls {
            let (store, context, jobs) = by_hand();
            let file = open(&store, &context);
            let data = two_in_flight(&file, 5);
            store.fail_from(nth, ENOSPC);
            jobs.try_iter().for_each(|job| job());
            assert_eq!(file.core.state.read().dirty.in_flight.len(), 0);
            assert!(read_all(&file).unwrap() == data, "still there");
            let error = call(&file).unwrap_err();
            assert!(matches!(error, Error::Store(e) if e.raw_os_error() == Some(libc::ENOSPC)));
            assert!(read_all(&file).unwrap() == data);
            store.mend();
            file.sync().unwrap();
            assert!(read_all(&open(&store, &context)).unwrap() == data);
        }
    }
}

#[test]
fn a_failed_sync_behind_ends_writing() {
    let (background, jobs) = Background::by_hand();
    let context = Arc::new(context_over(background));
    let store = stored(&vec![7; THREE], &context);
    jobs.try_iter().for_each(drop);
    let file = open(&store, &context);
    two_in_flight(&file, 6);
    let calls = store.calls();
    jobs.recv().unwrap()();
    let barrier = store.syncs();
    assert!(store.calls() > calls);
    // The second write also overwrites stored data: record and entries, then the sync.
    store.fail_from(2, Failure::Errno(libc::EIO));
    jobs.recv().unwrap()();
    assert_eq!(store.syncs(), barrier);
    store.mend();
    assert!(file.failed());
    assert!(file.write(0, b"x").is_err() && file.sync().is_err());
}

/// A step that panicked lost the chunks. They must not be treated as stored.
#[test]
fn a_panic_half_way_through_a_write_breaks_the_file() {
    for lost in 0..2 {
        let (store, context, jobs) = by_hand();
        let file = open(&store, &context);
        two_in_flight(&file, 3);
        file.core.state.read().dirty.in_flight[lost].stage.lock().take();
        jobs.try_iter().for_each(|job| job());
        let refused = file.sync();
        assert!(
            matches!(&refused, Err(Error::Store(e)) if e.raw_os_error() == Some(libc::EIO)),
            "{refused:?}"
        );
        assert!(file.failed() && read_all(&file).is_err(), "{lost}");
        assert!(file.write(0, b"more").is_err(), "{lost}");
        let again = open(&store, &context);
        assert!(again.size() < THREE as u64, "{lost}: nothing was confirmed");
    }
}

fn batches_of(stage: &Stage) -> usize {
    match stage {
        Stage::Loaded(Loaded { payload, .. })
        | Stage::Sealed(SealedWrite { payload })
        | Stage::Assigned(Assigned { payload, .. })
        | Stage::Ended(Ended { payload, .. }) => payload.batches.len(),
        Stage::Gone => 0,
    }
}

/// Bytes of a long extent other than the first.
const LONG: usize = 128 * 4096;

#[test]
fn extents_over_stored_data_share_a_sync() {
    let (background, jobs) = Background::by_hand();
    let context = Arc::new(context_of_few(background));
    let store = stored(&vec![7; 6 * LONG], &context);
    jobs.try_iter().for_each(drop);
    let file = open(&store, &context);
    let batches = || -> Vec<usize> {
        file.core.state.read().dirty.in_flight.iter().map(|write| batches_of(&write.stage.lock())).collect()
    };
    let data = Rng(9).bytes(5 * LONG - 16 * 4096);
    file.write(0, &data[..4 * LONG]).unwrap();
    assert_eq!((batches(), jobs.len()), (vec![1, 1, 1], 3), "three on their way, one waits");
    file.write(4 * LONG as u64, &data[4 * LONG..]).unwrap();
    assert_eq!((batches(), jobs.len()), (vec![1, 1, 2], 4), "two go together, and push the first one on");
    let syncs = store.syncs();
    jobs.try_iter().for_each(|job| job());
    assert_eq!((batches(), store.syncs()), (vec![], syncs + 3));
    file.flush().unwrap();
    let want = [&data[..], &vec![7; 6 * LONG - data.len()]].concat();
    assert!(read_all(&file).unwrap() == want);
    clean(&file);
    assert!(read_all(&open(&store, &context)).unwrap() == want);
}

#[test]
fn a_file_counts_as_streamed_until_it_is_flushed() {
    let context = Arc::new(context_of_few(Background::at_once()));
    let streams = || context.buffered.streams.load(Ordering::Relaxed);
    let files: Vec<_> = (0..3).map(|_| open(&FaultyFile::new(), &context)).collect();
    files[0].write(0, &[1; 4096]).unwrap();
    assert_eq!(streams(), 0, "one chunk is no stream");
    files.iter().for_each(|file| file.write(0, &vec![1; 3 * LONG]).unwrap());
    assert_eq!(streams(), 3);
    files[0].write(3 * LONG as u64, &vec![1; LONG]).unwrap();
    assert_eq!(streams(), 3);
    files[0].flush().unwrap();
    assert_eq!(streams(), 2);
    drop(files);
    assert_eq!(streams(), 0);
}

/// The files' writes never complete on their own, so the first files take as much memory as they can get.
#[test]
fn every_stream_gets_an_extent() {
    let (background, jobs) = Background::by_hand();
    let context = Arc::new(context_of_few(background));
    let files: Vec<_> = (0..18).map(|_| open(&FaultyFile::new(), &context)).collect();
    let data = Rng(11).bytes(9 * LONG - 5000);
    for file in &files {
        file.write(0, &data).unwrap();
        assert_eq!(context.buffered.single.load(Ordering::Relaxed), 0);
    }
    assert_eq!(context.router.buffers.usage().bound, context.budget.buffers);
    assert!(context.router.buffers.usage().in_use <= context.budget.buffers / 4 * 3);
    jobs.try_iter().for_each(|job| job());
    assert!(files.iter().all(|file| read_all(file).unwrap() == data));
}

/// Streams from random positions while the number of other streams changes, which mixes long and short
/// extents.
#[test]
fn extents_of_all_lengths_side_by_side() {
    let context = Arc::new(context_of_few(Background::default()));
    for seed in 0..20 {
        let (store, rng) = (FaultyFile::new(), &mut Rng(seed));
        let mut file = open(&store, &context);
        let mut model = vec![0; 3 * LONG];
        let mut lengths = std::collections::BTreeSet::new();
        file.truncate(model.len() as u64).unwrap();
        for _ in 0..60 {
            context.buffered.streams.fetch_xor(1 << 20, Ordering::Relaxed);
            let from = rng.below(model.len() as u64) as usize;
            let len = rng.below(400_000) as usize;
            let data = rng.bytes(len.min(model.len() - from));
            file.write(from as u64, &data).unwrap();
            model[from..][..data.len()].copy_from_slice(&data);
            {
                let st = file.core.state.read();
                lengths.extend(st.dirty.buffer.extents().iter().map(|extent| extent.bytes()));
                let mut ends: Vec<_> =
                    st.dirty.buffer.extents().iter().map(|s| (s.first(), s.end())).collect();
                ends.sort_unstable();
                assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ends:?}");
            }
            match rng.below(12) {
                0 => file.flush().unwrap(),
                1 => {
                    clean(&file);
                    file = open(&store, &context);
                }
                _ => {}
            }
        }
        assert!(read_all(&file).unwrap() == model, "seed {seed}");
        clean(&file);
        assert!(read_all(&open(&store, &context)).unwrap() == model, "seed {seed}");
        assert_eq!(lengths.len(), 2, "long ones and short ones");
    }
}

/// Two writers of one file, each also reading its data, and a thread that syncs.
#[test]
fn several_threads_at_once() {
    const PIECE: usize = 100_000;
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    let content = |writer: u64, round: u64| Rng(writer * 1000 + round).bytes(PIECE);
    let place = |writer: u64, round: u64| (round * 2 + writer) * PIECE as u64;
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..60 {
                    file.write(place(writer, round), &content(writer, round)).unwrap();
                    let seen = round.saturating_sub(round % 7);
                    let mut out = vec![0; PIECE];
                    assert_eq!(file.read(place(writer, seen), &mut out).unwrap(), PIECE);
                    assert!(out == content(writer, seen));
                }
            });
        }
        scope.spawn(|| (0..20).for_each(|_| file.sync().unwrap()));
    });
    clean(&file);
    let file = open(&store, &context);
    for (writer, round) in (0..2).flat_map(|writer| (0..60).map(move |round| (writer, round))) {
        let mut out = vec![0; PIECE];
        file.read(place(writer, round), &mut out).unwrap();
        assert!(out == content(writer, round));
    }
}

/// A long read unlocks the file while it reads the store. Chunks overwritten meanwhile must not count as
/// damaged.
#[test]
fn what_is_overwritten_while_it_is_read_is_read_again() {
    const LEN: usize = 300_000;
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    let (ended, read) = (AtomicBool::new(false), AtomicUsize::new(0));
    file.write(0, &[1; LEN]).unwrap();
    file.flush().unwrap();
    let in_place = || {
        let mut out = vec![0; LEN.next_multiple_of(CHUNK)];
        let read = file.read_whole_chunks(0, &mut out).unwrap().unwrap();
        out.truncate(read);
        out
    };
    let lent = || file.read_to(0, LEN, &mut Vec::new(), <[u8]>::to_vec).unwrap();
    std::thread::scope(|scope| {
        let ways: [&(dyn Fn() -> Vec<u8> + Sync); 2] = [&in_place, &lent];
        for way in ways {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let content = way();
                    assert_eq!(content.len(), LEN);
                    assert!(
                        content
                            .chunks(CHUNK)
                            .all(|chunk| chunk[0] > 0 && *chunk == vec![chunk[0]; chunk.len()])
                    );
                    read.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 2..200 {
            file.write(0, &[round; LEN]).unwrap();
            file.flush().unwrap();
        }
        while read.load(Ordering::Relaxed) < 4 {
            std::thread::yield_now();
        }
        ended.store(true, Ordering::Relaxed);
    });
}

/// The kernel has several writes of a stream in flight, and they arrive in any order.
#[test]
fn gathered_writes_in_any_order_leave_no_zeros_after_a_kill() {
    for seed in 0..300 {
        let (store, context, jobs) = by_hand();
        let file = open(&store, &context);
        // At times, other files use so much memory that any file with buffered data flushes it.
        let (others, all) = (&context.buffered.single, 3 * context.budget.behind / CHUNK - 1);
        let mut random = Rng(seed);
        let data = random.bytes(THREE);
        let pages = data.len() / CHUNK;
        let mut cuts =
            Vec::from_iter((0..random.below(12)).map(|_| random.below(pages as u64) as usize * CHUNK));
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let mut parts = Vec::from_iter(cuts.windows(2).map(|pair| pair[0]..pair[1]));
        let mut came = 0;
        while !parts.is_empty() {
            let part = parts.remove(random.below(parts.len().min(3) as u64) as usize);
            let taken = random.below(2) as usize * all.saturating_sub(others.load(Ordering::Relaxed));
            others.fetch_add(taken, Ordering::Relaxed);
            file.write_gathered(part.start as u64, &data[part.clone()]).unwrap();
            others.fetch_sub(taken, Ordering::Relaxed);
            came += part.len();
            if random.below(2) == 0 {
                jobs.try_iter().for_each(|job| job());
            }
            let killed = read_all(&open(&killed(&store.snapshot()), &context)).unwrap();
            assert!(killed == data[..killed.len()], "seed {seed}: {} bytes after {came}", killed.len());
        }
        file.sync().unwrap();
        assert!(read_all(&open(&killed(&store.snapshot()), &context)).unwrap() == data, "seed {seed}");
    }
}

/// Bytes that never arrive are a hole. A file with writes far apart does not stay in memory.
#[test]
fn gathered_writes_far_apart_go_to_the_store() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    let data = Rng(9).bytes(1 << 16);
    for part in 1..=200 {
        file.write_gathered(part * (1 << 20), &data).unwrap();
    }
    assert!(context.buffered.chunks() * CHUNK < 8 << 20);
    file.sync().unwrap();
    let mut found = vec![0; 1 << 16];
    open(&killed(&store.snapshot()), &context).read(77 << 20, &mut found).unwrap();
    assert!(found == data);
}
