use super::*;
use crate::{RenameMode, StoredName, Target};

const SHORT: &str = "short";

fn long(c: char) -> String {
    c.to_string().repeat(250)
}

fn rename(f: &Fixture, from: (&Dir, &str), to: (&Dir, &str), mode: RenameMode) -> Result<StoredName> {
    let (stored, _) = f.vault.rename_name((from.0, OsStr::new(from.1)), (to.0, OsStr::new(to.1)), mode)?;
    assert_eq!(f.vault.lookup(to.0, OsStr::new(to.1)).unwrap().0, stored);
    Ok(stored)
}

/// Every combination of short and long names, within one directory and across two.
fn pairs() -> Vec<(String, String, bool)> {
    let mut out = Vec::new();
    for from in [SHORT.to_owned(), long('a')] {
        for to in ["other".to_owned(), long('b')] {
            out.push((from.clone(), to.clone(), false));
            out.push((from.clone(), to, true));
        }
    }
    out
}

#[test]
fn to_a_free_name() {
    for (from, to, across) in pairs() {
        for mode in [RenameMode::Replace, RenameMode::NoReplace] {
            let f = Fixture::new();
            let a = f.mkdir(&f.root(), "a");
            let b = if across { f.mkdir(&f.root(), "b") } else { a.clone() };
            f.touch(&a, &from).unwrap();
            let ino = f.ino(&a, &from);
            rename(&f, (&a, &from), (&b, &to), mode).unwrap();
            assert_eq!(f.ino(&a, &from), None);
            assert_eq!(f.ino(&b, &to), ino);
            assert_eq!(f.names(&b), [OsString::from(&to)]);
            let entries = raw_names(f.stored(&b, &to).parent().unwrap());
            assert_eq!(entries.len(), if to.len() > 160 { 3 } else { 2 }, "a sidecar for each long name");
        }
    }
}

#[test]
fn over_a_file() {
    for (from, to, across) in pairs() {
        let f = Fixture::new();
        let a = f.mkdir(&f.root(), "a");
        let b = if across { f.mkdir(&f.root(), "b") } else { a.clone() };
        f.touch(&a, &from).unwrap();
        f.touch(&b, &to).unwrap();
        let (moved, over) = (f.ino(&a, &from), f.ino(&b, &to));
        let refused = rename(&f, (&a, &from), (&b, &to), RenameMode::NoReplace);
        assert_eq!(errno(refused), Some(Errno::EXIST));
        assert_eq!((f.ino(&a, &from), f.ino(&b, &to)), (moved, over));
        let (_, replaced) =
            f.vault.rename_name((&a, OsStr::new(&from)), (&b, OsStr::new(&to)), RenameMode::Replace).unwrap();
        assert_eq!(replaced.map(|stat| stat.ino), over);
        assert_eq!((f.ino(&a, &from), f.ino(&b, &to)), (None, moved));
        assert_eq!(f.names(&b), [OsString::from(&to)]);
    }
}

#[test]
fn exchanged() {
    for (from, to, across) in pairs() {
        let f = Fixture::new();
        let a = f.mkdir(&f.root(), "a");
        let b = if across { f.mkdir(&f.root(), "b") } else { a.clone() };
        f.touch(&a, &from).unwrap();
        let inner = f.mkdir(&b, &to);
        f.touch(&inner, "inside").unwrap();
        let (one, two) = (f.ino(&a, &from), f.ino(&b, &to));
        rename(&f, (&a, &from), (&b, &to), RenameMode::Exchange).unwrap();
        assert_eq!((f.ino(&a, &from), f.ino(&b, &to)), (two, one));
        assert!(f.names(&a).contains(&OsString::from(&from)));
        assert!(f.names(&b).contains(&OsString::from(&to)));
        let stored = f.vault.lookup(&a, OsStr::new(&from)).unwrap().0;
        assert_eq!(f.names(&f.vault.open_dir(&a, &stored).unwrap()), ["inside"]);
        let missing = rename(&f, (&a, &from), (&b, "missing"), RenameMode::Exchange);
        assert_eq!(errno(missing), Some(Errno::NOENT));
    }
}

#[test]
fn a_directory_keeps_its_id_and_all_below_it() {
    let f = Fixture::new();
    let (a, b) = (f.mkdir(&f.root(), "a"), f.mkdir(&f.root(), "b"));
    let moved = f.mkdir(&a, "moved");
    f.touch(&moved, "inside").unwrap();
    let stored = rename(&f, (&a, "moved"), (&b, &long('m')), RenameMode::Replace).unwrap();
    assert_eq!(f.names(&moved), ["inside"]);
    assert_eq!(f.names(&f.vault.open_dir(&b, &stored).unwrap()), ["inside"]);
}

#[test]
fn a_directory_over_others() {
    let f = Fixture::new();
    let root = f.root();
    let full = f.mkdir(&root, "full");
    f.touch(&full, "inside").unwrap();
    let empty = f.mkdir(&root, "empty");
    f.touch(&empty, long('x')).unwrap();
    f.vault.unlink_name(&empty, OsStr::new(&long('x'))).unwrap();
    f.touch(&root, "file").unwrap();

    let onto = |from, to| errno(rename(&f, (&root, from), (&root, to), RenameMode::Replace));
    assert_eq!(onto("empty", "full"), Some(Errno::NOTEMPTY));
    assert_eq!(onto("full", "file"), Some(Errno::NOTDIR));
    assert_eq!(onto("file", "full"), Some(Errno::ISDIR));
    assert_eq!(onto("full", "full"), None);
    assert_eq!(f.names(&full), ["inside"]);
    assert_eq!(onto("full", "empty"), None);
    assert_eq!(f.names(&root), ["empty", "file"]);
    assert_eq!(f.names(&full), ["inside"]);
    // A directory cannot be moved into itself, and the one that it was to replace keeps its id.
    let sub = f.mkdir(&full, "sub");
    let into =
        f.vault.rename_name((&root, OsStr::new("empty")), (&full, OsStr::new("sub")), RenameMode::Replace);
    assert_eq!(errno(into), Some(Errno::INVAL));
    f.touch(&sub, "still usable").unwrap();
    let stored = f.vault.lookup(&full, OsStr::new("sub")).unwrap().0;
    assert_eq!(f.names(&f.vault.open_dir(&full, &stored).unwrap()), ["still usable"]);
}

#[test]
fn a_link_over_another_link_of_the_same_file_changes_nothing() {
    let f = Fixture::new();
    let root = f.root();
    let other = long('l');
    f.touch(&root, SHORT).unwrap();
    let stored = f.vault.lookup(&root, OsStr::new(SHORT)).unwrap().0;
    f.vault.link(Target::Entry(&root, &stored), &root, OsStr::new(&other)).unwrap();
    for (from, to) in [(SHORT, &other[..]), (&other, SHORT), (&other, &other)] {
        rename(&f, (&root, from), (&root, to), RenameMode::Replace).unwrap();
        let mut names = f.names(&root);
        names.sort_by_key(|name| name.len());
        assert_eq!(names, [SHORT, &other]);
    }
    assert_eq!(f.vault.unlink_name(&root, OsStr::new(SHORT)).unwrap().nlink, 2);
    assert_eq!(f.names(&root), [OsString::from(&other)]);
    assert_eq!(f.vault.unlink_name(&root, OsStr::new(&other)).unwrap().nlink, 1);
}

/// As with rename(2), an impossible rename is reported before an obstacle.
#[test]
fn a_directory_into_itself_is_refused_as_such() {
    let f = Fixture::new();
    let outer = f.mkdir(&f.root(), "outer");
    let inner = f.mkdir(&outer, "inner");
    let other = f.mkdir(&f.root(), "other");
    f.touch(&other, "file").unwrap();
    for filled in [false, true] {
        if filled {
            f.touch(&inner, "file").unwrap();
        }
        for mode in [RenameMode::Replace, RenameMode::Exchange] {
            let refused = rename(&f, (&f.root(), "outer"), (&outer, "inner"), mode);
            assert_eq!(errno(refused), Some(Errno::INVAL), "{mode:?}");
        }
    }
    let refused = rename(&f, (&f.root(), "outer"), (&f.root(), "other"), RenameMode::Replace);
    assert_eq!(errno(refused), Some(Errno::NOTEMPTY));
    assert_eq!((f.names(&inner), f.names(&other)), (vec!["file".into()], vec!["file".into()]));
}
