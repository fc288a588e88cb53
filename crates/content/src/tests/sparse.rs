//! Large files with little data.

use super::*;
use store::DirFile;

#[test]
fn a_search_for_data_keeps_no_pages_of_holes() {
    const FAR: u64 = 1 << 41;
    let context = context();
    let store = Arc::new(DirFile::new(tempfile::tempfile().unwrap().into()));
    let file = File::fresh(store.clone(), context.clone());
    file.write(0, b"first").unwrap();
    file.write(FAR, b"last").unwrap();
    clean(&file);
    drop(file);
    let file = File::open(store, context).unwrap();
    assert_eq!(file.seek(4096, true).unwrap(), FAR);
    assert_eq!(file.seek(FAR, false).unwrap(), FAR + 4);
    let pages = file.core.state.read().stored.tree.pages();
    // The paths to both ends, in a tree of three levels.
    assert!(pages < 10, "{pages} pages");
}

/// Each hole that is not flushed takes memory.
#[test]
fn a_large_range_is_punched_in_parts() {
    const CHUNKS: usize = 3000;
    let context = context();
    let store = stored(&[7; CHUNKS * 4096], &context);
    let file = open(&store, &context);
    file.punch(4096, (CHUNKS as u64 - 2) * 4096).unwrap();
    let noted = file.core.state.read().dirty.buffer.holes(0..CHUNKS as u64).len();
    assert!(noted <= 1024, "{noted} holes");
    let mut want = vec![0; CHUNKS * 4096];
    want[..4096].fill(7);
    want[(CHUNKS - 1) * 4096..].fill(7);
    assert!(read_all(&file).unwrap() == want);
    clean(&file);
    assert!(read_all(&open(&store, &context)).unwrap() == want);
}
