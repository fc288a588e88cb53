use super::*;
use crate::{OpenFile, SetAttr, SetTime, Stat, StoredName, Target};
use content::Time;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

fn make(f: &Fixture, name: &str, content: &[u8]) -> (StoredName, Arc<OpenFile>) {
    let (stored, stat, file) = f.vault.create(&f.root(), OsStr::new(name), node(0o644)).unwrap();
    assert_eq!((stat.kind, stat.size, stat.nlink), (Kind::File, 0, 1));
    file.file.write(0, content).unwrap();
    (stored, file)
}

fn content(file: &OpenFile) -> Vec<u8> {
    let mut out = vec![0; file.file.size() as usize + 10];
    let n = file.file.read(0, &mut out).unwrap();
    out.truncate(n);
    out
}

fn size(f: &Fixture, stored: &StoredName) -> u64 {
    f.vault.stat(Target::Entry(&f.root(), stored)).unwrap().size
}

#[test]
fn what_was_written_is_there_after_a_remount_and_its_size_without_opening() {
    let f = Fixture::new();
    for len in [0, 1, 4095, 4096, 4097, 200_000, 300_000] {
        make(&f, &format!("{len}"), &vec![7; len]);
    }
    let f = f.reopen();
    for len in [0, 1, 4095, 4096, 4097, 200_000, 300_000] {
        let (stored, stat) = f.vault.lookup(&f.root(), OsStr::new(&format!("{len}"))).unwrap();
        assert_eq!(stat.size, len as u64);
        let file = f.vault.open_file(&f.root(), &stored, false).unwrap();
        assert_eq!(content(&file), vec![7; len]);
    }
}

#[test]
fn one_open_file_serves_an_inode_by_whatever_name() {
    let f = Fixture::new();
    let (stored, file) = make(&f, "one", b"content");
    let (other, stat) =
        f.vault.link(Target::Entry(&f.root(), &stored), &f.root(), OsStr::new("two")).unwrap();
    assert_eq!((stat.size, stat.nlink), (7, 2), "what is not flushed is seen");
    let again = f.vault.open_file(&f.root(), &other, false).unwrap();
    assert!(Arc::ptr_eq(&file, &again));
    f.vault.unlink_name(&f.root(), OsStr::new("one")).unwrap();
    assert_eq!(content(&again), b"content");
    let (third, _) = f.vault.link(Target::File(&file), &f.root(), OsStr::new("three")).unwrap();
    assert_eq!(f.vault.open_file(&f.root(), &third, true).unwrap().key, file.key);
}

#[test]
fn an_open_file_outlives_its_last_name() {
    let f = Fixture::new();
    let (_, file) = make(&f, "gone", b"content");
    assert_eq!(f.vault.unlink_name(&f.root(), OsStr::new("gone")).unwrap().nlink, 1);
    assert_eq!(content(&file), b"content");
    file.file.write(7, b" more").unwrap();
    file.file.flush().unwrap();
    assert_eq!(content(&file), b"content more");
    let stat = f.vault.stat(Target::File(&file)).unwrap();
    assert_eq!((stat.nlink, stat.size), (0, 12));
    let chmod = SetAttr { mode: Some(0o600), size: Some(3), ..SetAttr::default() };
    let stat = f.vault.set_attr(Target::File(&file), &chmod).unwrap();
    assert_eq!((stat.mode, stat.size), (0o600, 3));
    assert_eq!(errno(f.vault.link(Target::File(&file), &f.root(), OsStr::new("x"))), Some(Errno::NOENT));
}

#[test]
fn a_rename_over_an_open_file_leaves_its_handles_their_content() {
    let f = Fixture::new();
    let (_, old) = make(&f, "old", b"old content");
    make(&f, "new", b"new content");
    let root = f.root();
    let names = ((&*root, OsStr::new("new")), (&*root, OsStr::new("old")));
    let mode = crate::RenameMode::Replace;
    let (stored, replaced) = f.vault.rename_name(names.0, names.1, mode).unwrap();
    assert_eq!(replaced.map(|stat| stat.size), Some(11));
    assert_eq!(content(&old), b"old content");
    assert_eq!(content(&f.vault.open_file(&root, &stored, false).unwrap()), b"new content");
}

#[test]
fn sizes_of_closed_files_change_both_ways() {
    let f = Fixture::new();
    make(&f, "file", &[9; 10_000]);
    let f = f.reopen();
    let stored = f.vault.lookup(&f.root(), OsStr::new("file")).unwrap().0;
    for wanted in [12_345, 4096, 1, 0, 300_000] {
        let cut = SetAttr { size: Some(wanted), ..SetAttr::default() };
        let stat = f.vault.set_attr(Target::Entry(&f.root(), &stored), &cut).unwrap();
        assert_eq!(stat.size, wanted);
    }
    let f = f.reopen();
    assert_eq!(size(&f, &stored), 300_000);
    let file = f.vault.open_file(&f.root(), &stored, false).unwrap();
    assert!(content(&file).iter().all(|&b| b == 0));
}

#[test]
fn a_time_that_was_set_survives_what_is_flushed_later() {
    let f = Fixture::new();
    let (stored, file) = make(&f, "file", b"not flushed yet");
    let time = Time { seconds: 1_000_000_000, nanoseconds: 123_456_789 };
    let set = SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() };
    let entry = Target::Entry(&f.root(), &stored);
    assert_eq!(f.vault.set_attr(entry, &set).unwrap().mtime, time);
    file.file.flush().unwrap();
    f.vault.sync_file(&file).unwrap();
    assert_eq!(f.vault.stat(entry).unwrap().mtime, time);
    drop(file);
    let f = f.reopen();
    assert_eq!(f.vault.stat(Target::Entry(&f.root(), &stored)).unwrap().mtime, time);
    // The same applies to a closed file.
    let time = Time { seconds: -1, nanoseconds: 1 };
    let set = SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() };
    f.vault.set_attr(Target::Entry(&f.root(), &stored), &set).unwrap();
    let f = f.reopen();
    assert_eq!(f.vault.stat(Target::Entry(&f.root(), &stored)).unwrap().mtime, time);
}

#[test]
fn attributes_of_files_are_bound_to_the_file() {
    let f = Fixture::new();
    let (one, open) = make(&f, "one", b"content");
    f.touch(&f.root(), "two").unwrap();
    let two = f.vault.lookup(&f.root(), OsStr::new("two")).unwrap().0;
    let name = OsStr::new("user.x");
    f.vault.set_xattr(Target::File(&open), name, b"of one", false, false).unwrap();
    f.vault.set_xattr(Target::Entry(&f.root(), &two), name, b"of two", true, false).unwrap();
    drop(open);
    let f = f.reopen();
    let root = f.root();
    assert_eq!(f.vault.get_xattr(Target::Entry(&root, &one), name).unwrap(), b"of one");
    assert_eq!(f.vault.get_xattr(Target::Entry(&root, &two), name).unwrap(), b"of two");
    assert_eq!(size(&f, &two), 0);
    let raw = |stored: &StoredName| root.store.node(&stored.0).unwrap();
    let attribute = &raw(&one).list_xattr().unwrap()[0];
    let value = raw(&one).get_xattr(attribute).unwrap().unwrap();
    raw(&two).set_xattr(attribute, &value, rustix::fs::XattrFlags::empty()).unwrap();
    let moved = f.vault.get_xattr(Target::Entry(&root, &two), name);
    assert!(matches!(moved, Err(Error::Damaged(_))));
}

#[test]
fn a_reader_sees_files_and_writes_none() {
    let f = Fixture::new();
    let (stored, file) = make(&f, "file", b"content");
    f.vault.sync_file(&file).unwrap();
    let reader = open(f.dir.path(), true);
    let seen = reader.open_file(&reader.root(), &stored, false).unwrap();
    assert_eq!(content(&seen), b"content");
    assert!(!seen.store.writable());
    reader.shut_down().unwrap();
}

#[test]
fn a_descriptor_for_reading_is_exchanged_when_a_writer_comes() {
    let f = Fixture::new();
    make(&f, "file", b"content");
    let f = f.reopen();
    let stored = f.vault.lookup(&f.root(), OsStr::new("file")).unwrap().0;
    let path = f.stored(&f.root(), "file");
    let reading = std::fs::File::open(&path).unwrap();
    let raw = rustix::fs::fstat(&reading).unwrap();
    let store = store::DirFile::new(reading.into());
    let reader = f.vault.files().open((raw.st_dev, raw.st_ino), store).unwrap();
    assert!(!reader.store.writable());
    let cut = SetAttr { size: Some(3), ..SetAttr::default() };
    f.vault.set_attr(Target::File(&reader), &cut).unwrap();
    assert!(reader.store.writable());
    assert_eq!(content(&reader), b"con");
    let writer = f.vault.open_file(&f.root(), &stored, true).unwrap();
    assert!(Arc::ptr_eq(&reader, &writer));
}

#[test]
fn closing_a_file_and_bringing_it_to_rest_shows_in_no_time() {
    let f = Fixture::new();
    let (stored, file) = make(&f, "file", &[7; 10_000]);
    let root = f.root();
    let target = || Target::Entry(&root, &stored);
    let times = |stat: Stat| (stat.mtime, stat.ctime);
    let written = times(f.vault.stat(target()).unwrap());
    thread::sleep(Duration::from_millis(50));
    f.vault.files.flush_at_close(&file).unwrap();
    assert_eq!(times(f.vault.stat(target()).unwrap()), written);
    f.vault.files.release(file);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(times(f.vault.stat(target()).unwrap()), written);
            }
        });
        thread::sleep(Duration::from_millis(50));
        f.vault.files.clean(f.vault.files.all());
        done.store(true, Ordering::Relaxed);
        watch.join().unwrap();
    });
    assert_eq!(times(f.vault.stat(target()).unwrap()), written);
    let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert!(f.vault.set_attr(target(), &chmod).unwrap().ctime > written.1, "a change of its own shows");
}

/// The file is not clean, so it stays in the table; but its share of the read-ahead is available to
/// other readers at once.
#[test]
fn a_file_that_was_closed_takes_no_share_of_what_is_opened_ahead() {
    let f = Fixture::new();
    let (_, file) = make(&f, "file", &vec![7; 1 << 20]);
    let ahead = &f.vault.files().context().ahead;
    let second = file.clone();
    file.file.read_to(0, 65_536, &mut Vec::new(), |_| ()).unwrap();
    assert_eq!(ahead.files(), 1);
    f.vault.files.release(second);
    assert_eq!(ahead.files(), 1, "another handle is open");
    f.vault.files.release(file);
    assert_eq!((f.vault.files().open_count(), ahead.files()), (1, 0));
}
