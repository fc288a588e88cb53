use super::*;
use crate::{
    store::{Failure, FaultyFile},
    vault::file::test::context,
};

const KEY: Key = (1, 2);

/// A table with one file in it, whose content is written and not durable.
fn table() -> (Arc<Files>, Arc<FaultyFile>) {
    let context = context();
    let files = Files::new(context.clone(), 0, Box::new(|| Ok(()))).unwrap();
    let content = FaultyFile::new();
    let file = File::fresh(content.clone(), context);
    file.write(0, b"content").unwrap();
    file.flush().unwrap();
    let store = Arc::new(DirFile::new(tempfile::tempfile().unwrap().into()));
    drop(files.enter(&mut files.shard(KEY).lock(), file, store, KEY));
    (files, content)
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

#[test]
fn what_was_removed_may_be_lost() {
    let (files, content) = table();
    content.fail_from(0, Failure::Errno(libc::EIO));
    assert!(files.sync(&files.get(KEY).unwrap()).is_err());
    files.forget(KEY);
    assert_eq!(files.open_count(), 0);
    files.shut_down().unwrap();
}
