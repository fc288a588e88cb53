//! A failing store (guarantee G3): errors are reported, committed data stays, and work continues once the
//! store has recovered.

use super::{
    super::rules::{Rule, break_rule},
    *,
};

fn errno(e: &Error) -> Option<i32> {
    match e {
        Error::Store(e) => e.raw_os_error(),
        _ => None,
    }
}

/// Makes every call of a flush fail in turn. Nothing committed may be lost, and a second attempt must
/// succeed.
fn fail_each_call(
    failure: Failure,
    prepare: &[u8],
    change: impl Fn(&Arc<File>) -> Result<(), Error>,
    want: &[u8],
) {
    for nth in 0..400 {
        let context = Arc::new(context_over(Background::at_once()));
        let store = FaultyFile::new();
        let file = open(&store, &context);
        file.write(0, prepare).unwrap();
        clean(&file);
        store.fail_from(nth, failure);
        let outcome = change(&file).and_then(|()| file.flush());
        if outcome.is_ok() {
            assert!(nth > 2, "the change makes calls");
            return;
        }
        // After a kill now, the file has its old content or partly the new, and is readable.
        let left = open(&killed(&store.snapshot()), &context);
        assert!(read_all(&left).is_ok(), "call {nth}: {:?}", read_all(&left).err());
        store.mend();
        if file.failed() {
            continue; // A failed sync, tested below.
        }
        change(&file).unwrap();
        assert!(read_all(&file).unwrap() == want, "call {nth}");
        clean(&file);
        assert!(read_all(&open(&store, &context)).unwrap() == want, "call {nth}, reopened");
    }
    panic!("never succeeded");
}

#[test]
fn a_full_store_during_new_writes() {
    let new = vec![9; 600_000];
    for failure in [ENOSPC, Failure::Partial(libc::ENOSPC)] {
        let want = [vec![1; 5000], new.clone()].concat();
        fail_each_call(failure, &[1; 5000], |f| f.write(5000, &new), &want);
    }
}

#[test]
fn a_failing_store_during_overwrites() {
    let mut want = vec![1; 600_000];
    want[3000..500_000].fill(8);
    for failure in [Failure::Errno(libc::EIO), Failure::Partial(libc::ENOSPC)] {
        fail_each_call(failure, &vec![1; 600_000], |f| f.write(3000, &vec![8; 497_000]), &want);
    }
}

/// Extents stored in the background: the next flush reports any failure, and nothing is lost.
#[test]
fn a_failing_store_during_streams() {
    let data = Rng(8).bytes(150 * 4096);
    for failure in [ENOSPC, Failure::Partial(libc::EIO)] {
        fail_each_call(failure, &[1; 5000], |f| f.write(0, &data), &data);
        fail_each_call(failure, &vec![1; 150 * 4096], |f| f.write(0, &data), &data);
    }
}

#[test]
fn a_failing_store_during_a_cut() {
    fail_each_call(Failure::Errno(libc::EIO), &vec![1; 600_000], |f| f.truncate(300_001), &vec![1; 300_001]);
}

/// Stored data past the end is erased when the file grows, even if that failed at first.
#[test]
fn a_failing_store_while_a_cut_file_grows() {
    let change = |f: &Arc<File>| {
        f.truncate(300_001)?;
        f.write(590_000, &[7; 5000])
    };
    let mut want = vec![1; 300_001];
    want.resize(590_000, 0);
    want.extend([7; 5000]);
    for failure in [ENOSPC, Failure::Partial(libc::EIO)] {
        fail_each_call(failure, &vec![1; 600_000], change, &want);
    }
}

#[test]
fn a_failing_store_on_the_way_to_rest() {
    for nth in 0..400 {
        let context = Arc::new(context_over(Background::at_once()));
        let store = FaultyFile::new();
        let file = open(&store, &context);
        file.write(0, &vec![1; 600_000]).unwrap();
        clean(&file);
        file.write(3000, &vec![8; 497_000]).unwrap();
        store.fail_from(nth, Failure::Errno(libc::EIO));
        let steps = || {
            let step = file.cleaner().flush()?;
            file.cleaner().sync()?;
            if file.cleaner().settle(step)? {
                file.cleaner().sync()?;
                file.cleaner().finish(step)?;
            }
            Ok::<(), Error>(())
        };
        let outcome = steps();
        store.mend();
        if outcome.is_ok() {
            assert!(nth > 2, "rest makes calls");
            return;
        }
        if file.failed() {
            continue; // A failed sync, tested below.
        }
        clean(&file);
        let read = read_all(&open(&store, &context));
        let read = read.unwrap_or_else(|e| panic!("call {nth}: {e}"));
        assert!(read[3000..500_000].iter().all(|byte| *byte == 8) && read.len() == 600_000, "call {nth}");
    }
    panic!("never succeeded");
}

#[test]
fn the_error_reaches_the_application_and_the_data_stays() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    store.fail_from(0, ENOSPC);
    file.write(0, &[4; 100]).unwrap();
    assert_eq!(errno(&file.flush().unwrap_err()), Some(libc::ENOSPC));
    assert_eq!(errno(&file.sync().unwrap_err()), Some(libc::ENOSPC));
    assert_eq!(read_all(&file).unwrap(), [4; 100]);
    store.mend();
    file.sync().unwrap();
    assert_eq!(read_all(&open(&store, &context)).unwrap(), [4; 100]);
}

/// Close reports a full store, although data that needs a sync is left to the flusher.
#[test]
fn a_close_leaves_nothing_behind_that_a_full_store_has_no_place_for() {
    let context = context();
    let old = vec![1; 50 * 4096 + 100];
    for (offset, len) in [(old.len() - 1, 2), (old.len(), 100_000), (4096 * 1000, 1)] {
        let store = stored(&old, &context);
        let file = open(&store, &context);
        store.fail_from(0, ENOSPC);
        file.write(0, &[2; 4096]).unwrap();
        file.flush_at_close().unwrap(); // Replaces stored data.
        file.write(offset as u64, &vec![3; len]).unwrap();
        assert_eq!(errno(&file.flush_at_close().unwrap_err()), Some(libc::ENOSPC), "{len} bytes at {offset}");
        store.mend();
        let syncs = store.syncs();
        file.flush_at_close().unwrap();
        assert_eq!(store.syncs(), syncs, "still the flusher's");
        clean(&file);
        let mut want = old.clone();
        want[..4096].fill(2);
        want.resize(want.len().max(offset + len), 0);
        want[offset..offset + len].fill(3);
        assert!(read_all(&open(&store, &context)).unwrap() == want);
    }
}

/// Data left to the flusher at close has reserved space, even if the store fills up right after.
#[test]
fn what_a_close_left_has_its_place() {
    let context = context();
    // In the group of the header page; in a hole of another group; past the end, in a last group that is
    // a hole.
    for (size, chunk) in [(40, 3), (2000, 500), (1000, 1000), (1000, 1003)] {
        let store = stored(&[1; 4096], &context);
        let file = open(&store, &context);
        file.truncate(size * 4096).unwrap();
        clean(&file);
        drop(file);
        let file = open(&store, &context);
        let syncs = store.syncs();
        file.write(chunk * 4096, &[2; 4096]).unwrap();
        file.flush_at_close().unwrap();
        assert_eq!(store.syncs(), syncs, "left to the flusher");
        store.fill(libc::ENOSPC, false);
        file.flush().unwrap_or_else(|e| panic!("chunk {chunk} of {size}: {e}"));
        file.sync().unwrap();
    }
}

#[test]
fn a_full_buffer_on_a_full_store_takes_no_more() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    store.fail_from(0, ENOSPC);
    let piece = vec![1; 1 << 20];
    let failed = (0..100).find_map(|_| file.append(&piece).err());
    assert_eq!(failed.as_ref().and_then(errno), Some(libc::ENOSPC));
}

#[test]
fn after_a_failed_sync_nothing_is_confirmed_any_more() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    file.write(0, &[1; 4096]).unwrap();
    file.sync().unwrap();
    file.write(4096, &[2; 4096]).unwrap();
    file.flush().unwrap();
    store.fail_from(0, Failure::Errno(libc::EIO));
    assert!(file.sync().is_err());
    store.mend();
    assert!(file.failed());
    assert_eq!(errno(&file.sync().unwrap_err()), Some(libc::EIO));
    assert_eq!(errno(&file.write(0, b"x").unwrap_err()), Some(libc::EIO));
    let file = open(&killed(&store.snapshot()), &context);
    assert_eq!(read_all(&file).unwrap()[..4096], [1; 4096]);
}

/// A store that writes overwritten data elsewhere may run full on an overwrite, so close must report it.
#[test]
fn a_close_leaves_nothing_to_a_store_that_copies_on_write() {
    let context = Arc::new(Context { overwrites_in_place: false, ..context_over(Background::at_once()) });
    let store = stored(&[1; 50_000], &context);
    let file = open(&store, &context);
    file.write(0, &[2; 4096]).unwrap();
    store.fail_from(0, ENOSPC);
    assert_eq!(errno(&file.flush_at_close().unwrap_err()), Some(libc::ENOSPC));
    store.mend();
    file.flush_at_close().unwrap();
    assert!(file.is_stored());
    let left = read_all(&open(&killed(&store.snapshot()), &context)).unwrap();
    assert!(left[..4096] == [2; 4096] && left[4096..] == [1; 50_000 - 4096]);
}

#[test]
fn a_punch_that_fails_shows_nothing_older() {
    let context = Arc::new(context_over(Background::at_once()));
    let stored = stored(&[1; 300 * 4096], &context);
    let place = 200 * 4096;
    for nth in 0..100 {
        let store = FaultyFile::at(&stored.snapshot());
        let file = open(&store, &context);
        file.write(place, &[2; 4096]).unwrap();
        store.fail_at(nth, 1, Failure::Errno(libc::EIO));
        let punched = file.punch(place, 4096);
        store.calm();
        let mut chunk = [0; 4096];
        file.read(place, &mut chunk).unwrap();
        if punched.is_ok() {
            assert!(nth > 0, "the punch makes calls");
            return assert_eq!(chunk, [0; 4096]);
        }
        assert!(chunk == [2; 4096] || chunk == [0; 4096], "call {nth}: reads {}", chunk[0]);
    }
    panic!("never succeeded");
}

/// With a wrong time, a program that copies by size and time would copy the file again, or never.
#[test]
fn a_clean_that_fails_anywhere_leaves_the_modification_time() {
    let time = crate::Time { seconds: 99, nanoseconds: 1 };
    for nth in 0.. {
        let (store, context) = (FaultyFile::new(), context());
        let file = open(&store, &context);
        // Several groups, so that there are node pages, and older slots to erase.
        file.write(0, &[1; 600_000]).unwrap();
        file.sync().unwrap();
        file.write(4096, &[2; 9000]).unwrap();
        file.sync().unwrap();
        file.times().set_mtime(time, |t| Ok(store.set_mtime(t.seconds, t.nanoseconds)?)).unwrap();
        assert_eq!(store.mtime().unwrap(), (99, 1));
        store.fail_from(nth, Failure::Errno(libc::ENOSPC));
        let step = file.cleaner().flush();
        let cleaned = step.and_then(|step| {
            file.cleaner().sync()?;
            if file.cleaner().settle(step)? {
                file.cleaner().sync()?;
                file.cleaner().finish(step)?;
            }
            Ok(())
        });
        assert!(file.is_stored());
        assert_eq!(store.mtime().unwrap(), (99, 1), "call {nth}: {cleaned:?}");
        if cleaned.is_ok() {
            assert!(nth > 4 && file.is_clean(), "after {nth} calls");
            return;
        }
    }
}

/// Call `nth` of a truncation fails while the file is on its way to a clean record, before the second
/// step or the last one. Returns the content after a kill, and whether the truncation failed.
fn cut_between_steps(before_settle: bool, nth: u64) -> (Result<Vec<u8>, Error>, bool) {
    let (store, context) = (FaultyFile::new(), Arc::new(context_over(Background::at_once())));
    let file = open(&store, &context);
    let cut = || {
        store.fail_at(nth, 1, Failure::Landed(libc::EIO));
        let failed = file.truncate(100_001).is_err();
        store.mend();
        failed
    };
    file.write(0, &[1; 300_000]).unwrap();
    clean(&file);
    file.write(0, &[2; 300_000]).unwrap();
    let step = file.cleaner().flush().unwrap();
    file.cleaner().sync().unwrap();
    let mut failed = before_settle && cut();
    if !file.failed() && file.cleaner().settle(step).unwrap() {
        file.cleaner().sync().unwrap();
        failed |= !before_settle && cut();
        if !file.failed() {
            file.cleaner().finish(step).unwrap();
        }
    }
    (File::open(killed(&store.snapshot()), context).and_then(|left| read_all(&left)), failed)
}

/// No clean record may be written over the leftovers of a failed truncation.
#[test]
fn a_failing_store_during_a_cut_between_the_steps_of_a_clean_record() {
    let mut found = false;
    for before_settle in [true, false] {
        let is_right = |(left, _): &(Result<Vec<u8>, Error>, bool)| {
            left.as_ref().is_ok_and(|left| *left == [2; 300_000] || *left == [2; 100_001])
        };
        let each = || (0..60).map(|nth| cut_between_steps(before_settle, nth));
        assert!(each().filter(|(_, failed)| *failed).count() > 2, "cuts fail");
        for (nth, outcome) in each().enumerate() {
            assert!(
                is_right(&outcome),
                "call {nth}, before the second step: {before_settle}: {:?}",
                outcome.0.err()
            );
        }
        break_rule(Some(Rule::FailureVoidsCleanStep));
        found |= !each().all(|outcome| is_right(&outcome));
        break_rule(None);
    }
    assert!(found, "without the rule nothing is lost");
}

/// Data left buffered at close has space in a store that is full afterwards, even if the file only had a
/// hole there.
#[test]
fn a_store_that_is_full_after_a_close_into_a_hole() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    file.write(0, &[1; 8192]).unwrap();
    file.truncate(10 << 20).unwrap();
    clean(&file);
    file.write(1000 * 4096, &[2; 4096]).unwrap();
    file.flush_at_close().unwrap();
    store.fill(libc::ENOSPC, false);
    file.sync().unwrap();
    let read = read_all(&open(&killed(&store.snapshot()), &context)).unwrap();
    assert!(read[1000 * 4096..][..4096] == [2; 4096]);
}

/// An allocated range can be written once the store is full, including the entries before it.
#[test]
fn a_store_that_is_full_after_an_allocation() {
    for first in [0, 4096, 300 * 4096] {
        let (store, context) = (FaultyFile::new(), context());
        let file = open(&store, &context);
        file.allocate(first, 1 << 20, false).unwrap();
        file.sync().unwrap();
        store.fill(libc::ENOSPC, false);
        file.write(first + 4096, &[2; 40_000]).unwrap();
        file.sync().unwrap();
        let read = read_all(&open(&store, &context)).unwrap();
        assert!(read[first as usize + 4096..][..40_000] == [2; 40_000], "from {first}");
    }
}

/// fsync covers all of a file. The steps of a commit, and fdatasync, cover only its content.
#[test]
fn one_sync_of_an_fsync_is_for_attributes_too() {
    let (store, context) = (FaultyFile::new(), context());
    let file = open(&store, &context);
    file.write(0, &[1; 8192]).unwrap();
    file.sync().unwrap();
    assert_eq!(store.whole_syncs(), 0);
    for round in 1..3 {
        file.sync_whole().unwrap(); // Even with nothing to flush.
        assert_eq!(store.whole_syncs(), round);
    }
    file.write(0, &[2; 4096]).unwrap();
    file.sync_whole().unwrap();
    assert_eq!((store.whole_syncs(), store.syncs()), (3, 5));
    store.fail_from(0, Failure::Errno(libc::EIO));
    assert!(file.sync_whole().is_err() && file.failed());
}
