mod interleave;

use super::*;
use content::{Error, Space, testing::context};
use std::{sync::Weak, time::Duration};
use store::{Failure, FaultyFile};

const KEY: Key = (1, 2);

/// A table with one file, whose content is written but not durable.
fn table() -> (Arc<Files>, Arc<FaultyFile>) {
    let files = Files::new(context(), 0, Box::new(|| Ok(()))).unwrap();
    let content = enter(&files, KEY);
    (files, content)
}

/// Adds a new file to a table. Its content is written but not durable.
fn enter(files: &Files, key: Key) -> Arc<FaultyFile> {
    let content = FaultyFile::new();
    let file = File::fresh(content.clone(), files.context.clone());
    file.write(0, b"content").unwrap();
    file.flush().unwrap();
    let store = Arc::new(DirFile::new(tempfile::tempfile().unwrap().into()));
    drop(files.enter(&mut files.shard(key).files.lock(), file, store, key));
    content
}

#[test]
fn the_flusher_goes_on_after_a_fault_of_its_own() {
    let faults = Arc::new(AtomicUsize::new(0));
    let syncs = faults.clone();
    let fault_once = move || {
        assert!(syncs.fetch_add(1, Ordering::Relaxed) > 0, "the fault");
        Ok(())
    };
    let files = Files::new(context(), KEY.0, Box::new(fault_once)).unwrap();
    // Enough files that one syncfs is used for all of them.
    (0..20).for_each(|inode| drop(enter(&files, (KEY.0, inode))));
    *files.cleaned.lock() -= Duration::from_secs(60);
    let end = Instant::now() + Duration::from_secs(60);
    while !files.all().iter().all(|open| open.file.is_clean()) {
        assert!(Instant::now() < end, "{} syncs of the store", faults.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Otherwise the writes that reserve their places would take the room that the flush needs.
#[test]
fn what_has_no_place_is_flushed_before_room_is_scarce() {
    let free = Arc::new(AtomicU64::new(u64::MAX));
    let told = free.clone();
    let space = Space::of(Box::new(move || Ok(told.load(Ordering::Relaxed))));
    let context = Context { space, ..Arc::into_inner(context()).unwrap() };
    let files = Arc::new(Files::without_flusher(Arc::new(context), KEY.0, Box::new(|| Ok(()))));
    files.flush_when_scarce();
    let [waiting, other] = [1, 2].map(|inode| {
        enter(&files, (KEY.0, inode));
        files.get((KEY.0, inode)).unwrap()
    });
    waiting.file.write(7, b" and more").unwrap();
    assert!(!waiting.file.is_stored());
    free.store(0, Ordering::Relaxed);
    let end = Instant::now() + Duration::from_secs(60);
    while !waiting.file.is_stored() {
        assert!(Instant::now() < end, "still without a place");
        other.file.write(0, b"other").unwrap();
    }
}

/// It also stays in the table if its last user releases it meanwhile.
#[test]
fn a_file_that_the_flusher_looks_at_is_not_in_use() {
    let files = Files::without_flusher(context(), KEY.0, Box::new(|| Ok(())));
    let file = File::fresh(FaultyFile::new(), files.context.clone());
    let store = Arc::new(DirFile::new(tempfile::tempfile().unwrap().into()));
    let open = files.enter(&mut files.shard(KEY).files.lock(), file, store, KEY);
    assert!(files.is_in_use(KEY));
    let looked_at = files.all();
    files.release(open);
    drop(looked_at);
    assert!(files.get(KEY).is_some());
    assert!(!files.is_in_use(KEY));
}

/// Each file holds a descriptor. While a slow store syncs once, programs can create thousands of files.
#[test]
fn files_that_are_made_while_others_are_cleaned_do_not_count_as_in_use() {
    const CROWD: u64 = 20;
    let next = Arc::new(AtomicU64::new(0));
    let table: Arc<Mutex<Weak<Files>>> = Arc::default();
    let make = {
        let (next, table) = (next.clone(), table.clone());
        move || {
            let files = table.lock().upgrade().unwrap();
            (0..CROWD).for_each(|_| drop(enter(&files, (KEY.0, next.fetch_add(1, Ordering::Relaxed)))));
        }
    };
    let sync = {
        let make = make.clone();
        move || {
            make();
            Ok(())
        }
    };
    let mut files = Files::without_flusher(context(), KEY.0, Box::new(sync));
    files.crowd = CROWD as usize;
    let files = Arc::new(files);
    *table.lock() = Arc::downgrade(&files);
    make();
    for _ in 0..5 {
        files.make_room();
        assert!(files.crowds() > 0, "what came during the syncs is counted as in use");
    }
}

/// Files that are being cleaned have an extra reference, and would be mistaken for files in use.
#[test]
fn who_needs_room_waits_while_another_makes_it() {
    const CROWD: u64 = 20;
    let table: Arc<Mutex<Weak<Files>>> = Arc::default();
    let (waiting, own) = (Arc::new(Mutex::new(None)), table.clone());
    let waiter = waiting.clone();
    let sync = move || {
        let files = own.lock().upgrade().unwrap();
        waiter.lock().get_or_insert_with(|| std::thread::spawn(move || files.find_room()));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiter.lock().as_ref().unwrap().is_finished(), "it goes on without room");
        Ok(())
    };
    let mut files = Files::without_flusher(context(), KEY.0, Box::new(sync));
    files.crowd = CROWD as usize;
    let files = Arc::new(files);
    *table.lock() = Arc::downgrade(&files);
    (0..CROWD * PATIENCE as u64).for_each(|inode| drop(enter(&files, (KEY.0, inode))));
    files.find_room();
    waiting.lock().take().unwrap().join().unwrap();
    assert_eq!((files.open_count(), files.in_use.load(Ordering::Relaxed)), (0, 0));
}

/// Includes failures after the file was flushed.
#[test]
fn what_keeps_a_file_from_rest_is_told() {
    for nth in 0.. {
        let files = Files::without_flusher(context(), KEY.0, Box::new(|| Ok(())));
        let content = enter(&files, KEY);
        content.fail_from(nth, Failure::Errno(libc::ENOSPC));
        match files.store_all() {
            Ok(()) => {
                assert!(nth > 0, "rest makes calls");
                return;
            }
            Err((key, Error::Store(e))) => {
                assert_eq!((key, e.raw_os_error()), (KEY, Some(libc::ENOSPC)), "call {nth}");
            }
            Err((_, e)) => panic!("call {nth}: {e}"),
        }
    }
}

#[test]
fn what_cannot_be_made_durable_at_the_end_is_said() {
    let (files, content) = table();
    content.fail_from(0, Failure::Errno(libc::EIO));
    assert!(files.shut_down().is_err());
    let (files, content) = table();
    files.shut_down().unwrap();
    assert!(content.syncs() > 0);
}

#[test]
fn what_was_lost_before_the_end_is_said_there() {
    let (files, content) = table();
    content.fail_from(0, Failure::Errno(libc::EIO));
    assert!(files.sync(&files.get(KEY).unwrap()).is_err());
    content.mend();
    files.release(files.get(KEY).unwrap());
    assert_eq!(files.open_count(), 0);
    assert!(files.shut_down().is_err());
}

/// The store reports a failure only once, and a sync of the whole store affects every file.
#[test]
fn a_failed_sync_of_the_store_concerns_every_file() {
    let failed = AtomicBool::new(false);
    let fail_once = move || match failed.swap(true, Ordering::Relaxed) {
        false => Err(io::Error::from_raw_os_error(libc::EIO)),
        true => Ok(()),
    };
    let files = Files::without_flusher(context(), KEY.0, Box::new(fail_once));
    (0..20).for_each(|inode| drop(enter(&files, (KEY.0, inode))));
    let cleaned = files.all();
    let busy = (KEY.0, 20);
    enter(&files, busy).fail_at(0, 1, Failure::Lost(libc::EIO));
    files.clean(cleaned);
    assert!(files.get(busy).unwrap().file.sync_failed(), "nobody asked the file that was not to be cleaned");
}

/// A later sync that succeeds says nothing about what the failed one lost.
#[test]
fn after_a_failed_sync_no_other_makes_anything_durable() {
    let (files, content) = table();
    let open = files.get(KEY).unwrap();
    content.fail_at(0, u64::MAX, Failure::Lost(libc::EIO));
    assert!(files.sync(&open).is_err());
    content.mend();
    let durable = open.file.durable();
    assert!(open.file.cleaner().sync().is_err());
    assert_eq!(open.file.durable(), durable);
    assert!(files.flush_at_close(&open).is_err(), "the program hears of it");
}

#[test]
fn what_was_removed_may_be_lost() {
    let (files, content) = table();
    content.fail_from(0, Failure::Errno(libc::EIO));
    assert!(files.sync(&files.get(KEY).unwrap()).is_err());
    files.forget(KEY);
    assert_eq!(files.open_count(), 0);
    files.shut_down().unwrap();
}

/// An overwrite that a close left unflushed does not wait until files are cleaned.
#[test]
fn what_was_closed_is_flushed_soon() {
    let (files, content) = table();
    let open = files.get(KEY).unwrap();
    open.file.sync().unwrap();
    open.file.write(0, b"overwritten").unwrap();
    let cleaning = files.cleaned.lock();
    files.flush_at_close(&open).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !open.file.is_stored() {
        assert!(Instant::now() < end, "still buffered");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(cleaning);
    let left = FaultyFile::killed(&content.snapshot());
    let left = File::open(left, context()).unwrap();
    let mut out = [0; 20];
    assert_eq!(left.read(0, &mut out).unwrap(), 11);
    assert_eq!(&out[..11], b"overwritten");
}

#[test]
fn a_file_that_is_being_recovered_keeps_no_other_waiting() {
    let files = Files::new(context(), 0, Box::new(|| Ok(()))).unwrap();
    let shard = files.shard(KEY);
    let beside = |key: &Key| *key != KEY && std::ptr::eq(files.shard(*key), shard);
    let other = (0..).map(|inode| (KEY.0, inode)).find(beside).unwrap();
    let store = || DirFile::new(tempfile::tempfile().unwrap().into());
    shard.files.lock().insert(KEY, TableEntry::Opening { unlinked: false });
    let opening = Opening { shard, key: KEY };
    files.open(other, store()).unwrap();
    std::thread::scope(|scope| {
        let same = scope.spawn(|| files.open(KEY, store()).unwrap().key);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!same.is_finished(), "it is not opened twice");
        drop(opening);
        assert_eq!(same.join().unwrap(), KEY);
    });
}
