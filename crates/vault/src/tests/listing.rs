use super::*;
use crate::DirEntry;
use std::collections::HashSet;

const MANY: usize = 3000;

fn many(f: &Fixture) -> Arc<Dir> {
    let dir = f.mkdir(&f.root(), "d");
    (0..MANY).for_each(|i| f.touch(&dir, format!("file {i}")).unwrap());
    dir
}

#[test]
fn every_entry_is_listed_once_while_others_go_and_come() {
    let f = Fixture::new();
    let dir = many(&f);
    let mut listing = f.vault.read_dir(dir.clone()).unwrap();
    let (mut seen, mut position) = (HashSet::new(), 0);
    loop {
        let piece = f.vault.entries(&mut listing, position).unwrap().to_vec();
        let Some(last) = piece.last() else { break };
        position = last.next;
        for entry in piece.iter().filter(|e| !e.is_dots()) {
            assert!(seen.insert(entry.name.clone()), "{:?} is listed twice", entry.name);
            if entry.name.as_encoded_bytes().starts_with(b"file") {
                f.vault.unlink_name(&dir, &entry.name).unwrap();
            }
        }
        f.touch(&dir, format!("new {position}")).unwrap();
    }
    let old = seen.iter().filter(|name| name.as_encoded_bytes().starts_with(b"file")).count();
    assert_eq!(old, MANY);
    assert!(f.vault.list(&dir).unwrap().iter().all(|e| e.name.as_encoded_bytes().starts_with(b"new")));
}

#[test]
fn a_listing_continues_at_any_position_and_starts_anew() {
    let f = Fixture::new();
    let dir = many(&f);
    let mut listing = f.vault.read_dir(dir.clone()).unwrap();
    let (mut all, mut position) = (Vec::new(), 0);
    loop {
        let piece = f.vault.entries(&mut listing, position).unwrap();
        let Some(last) = piece.last() else { break };
        position = last.next;
        all.extend_from_slice(piece);
    }
    assert_eq!(all.len(), MANY + 2);
    assert_eq!(all.iter().filter(|e| e.is_dots()).count(), 2);
    assert!(f.vault.entries(&mut listing, position).unwrap().is_empty(), "still at the end");
    for at in [0, 1, 2, 500, 501, 1, MANY - 1, MANY, 700] {
        let piece = f.vault.entries(&mut listing, all[at].next).unwrap();
        assert_eq!(piece[0].name, all[at + 1].name);
    }
    f.touch(&dir, "one more").unwrap();
    assert!(f.vault.entries(&mut listing, 0).unwrap().len() > 1);
    assert_eq!(f.vault.list(&dir).unwrap().len(), MANY + 1);
}

#[test]
fn a_directory_that_is_gone_ends() {
    let f = Fixture::new();
    let dir = f.mkdir(&f.root(), "d");
    let mut listing = f.vault.read_dir(dir.clone()).unwrap();
    f.vault.rmdir_name(&f.root(), OsStr::new("d")).unwrap();
    assert!(f.vault.entries(&mut listing, 0).unwrap().iter().all(DirEntry::is_dots));
}
