//! Large files with little in them.

use super::*;
use crate::store::DirFile;

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
    let pages = file.state.read().stored.tree.pages();
    // Of three levels, the ways to both ends.
    assert!(pages < 10, "{pages} pages");
}
