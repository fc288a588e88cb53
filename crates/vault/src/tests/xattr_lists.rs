//! Attributes that do not fit on a node.

use super::*;
use crate::{DirEntry, Part, Target};

/// No store has room for this plus the encryption overhead.
const LONG: &[u8] = &[7; 65_536];

fn set(f: &Fixture, dir: &Dir, name: &str, attribute: &str, value: &[u8]) -> Result<()> {
    let (stored, _) = f.vault.lookup(dir, OsStr::new(name)).unwrap();
    f.vault.set_xattr(Target::Entry(dir, &stored), OsStr::new(attribute), value, false, false)
}

fn get(f: &Fixture, dir: &Dir, name: &str, attribute: &str) -> Result<Vec<u8>> {
    let (stored, _) = f.vault.lookup(dir, OsStr::new(name)).unwrap();
    f.vault.get_xattr(Target::Entry(dir, &stored), OsStr::new(attribute))
}

fn remove(f: &Fixture, dir: &Dir, name: &str, attribute: &str) -> Result<()> {
    let (stored, _) = f.vault.lookup(dir, OsStr::new(name)).unwrap();
    f.vault.remove_xattr(Target::Entry(dir, &stored), OsStr::new(attribute))
}

/// Paths of the list files.
fn lists(f: &Fixture) -> Vec<PathBuf> {
    let dir = std::fs::read_dir(f.dir.path().join("warpcrypt.xattrs")).unwrap();
    dir.map(|entry| entry.unwrap().path()).collect()
}

fn entry(f: &Fixture, name: &str) -> DirEntry {
    let entries = f.vault.list(&f.root()).unwrap();
    entries.into_iter().find(|entry| entry.name == name).unwrap()
}

#[test]
fn an_attribute_moves_into_the_list_and_is_there_once() {
    let f = Fixture::new();
    let root = f.root();
    f.touch(&root, "file").unwrap();
    set(&f, &root, "file", "user.a", b"on the node").unwrap();
    set(&f, &root, "file", "user.b", b"stays there").unwrap();
    set(&f, &root, "file", "user.a", LONG).unwrap();
    assert_eq!(lists(&f).len(), 1);
    assert_eq!(std::fs::metadata(&lists(&f)[0]).unwrap().len(), LONG.len() as u64 + 6 + 6 + 32);
    let f = f.reopen();
    let root = f.root();
    assert_eq!(get(&f, &root, "file", "user.a").unwrap(), LONG);
    assert_eq!(get(&f, &root, "file", "user.b").unwrap(), b"stays there");
    let (stored, _) = f.vault.lookup(&root, OsStr::new("file")).unwrap();
    let target = Target::Entry(&root, &stored);
    let mut names = f.vault.list_xattr(target).unwrap();
    names.sort();
    assert_eq!(names, ["user.a", "user.b"]);
    let create = f.vault.set_xattr(target, OsStr::new("user.a"), b"", true, false);
    assert_eq!(errno(create), Some(Errno::EXIST));
    f.vault.set_xattr(target, OsStr::new("user.a"), b"shorter", false, true).unwrap();
    let replace = f.vault.set_xattr(target, OsStr::new("user.c"), LONG, false, true);
    assert!(matches!(replace, Err(Error::NoAttribute)));
    assert_eq!(get(&f, &root, "file", "user.a").unwrap(), b"shorter");
    remove(&f, &root, "file", "user.a").unwrap();
    assert!(matches!(get(&f, &root, "file", "user.a"), Err(Error::NoAttribute)));
    assert!(matches!(remove(&f, &root, "file", "user.a"), Err(Error::NoAttribute)));
    assert_eq!(lists(&f), Vec::<PathBuf>::new(), "an empty list has no file");
    assert_eq!(f.vault.list_xattr(target).unwrap(), ["user.b"]);
}

#[test]
fn a_list_goes_with_the_last_name() {
    let f = Fixture::new();
    let root = f.root();
    for name in ["one", "two"] {
        f.touch(&root, name).unwrap();
        set(&f, &root, name, "user.long", LONG).unwrap();
    }
    let (stored, _) = f.vault.lookup(&root, OsStr::new("one")).unwrap();
    f.vault.link(Target::Entry(&root, &stored), &root, OsStr::new("again")).unwrap();
    let replace = |from: &str, to: &str, mode| {
        f.vault.rename_name((&root, OsStr::new(from)), (&root, OsStr::new(to)), mode).unwrap();
    };
    replace("one", "moved", RenameMode::NoReplace);
    f.vault.unlink_name(&root, OsStr::new("moved")).unwrap();
    assert_eq!((lists(&f).len(), get(&f, &root, "again", "user.long").unwrap()), (2, LONG.to_vec()));
    replace("two", "again", RenameMode::Exchange);
    assert_eq!(lists(&f).len(), 2);
    replace("two", "again", RenameMode::Replace);
    assert_eq!(lists(&f).len(), 1, "one was replaced");
    for name in ["d", "e"] {
        f.mkdir(&root, name);
        set(&f, &root, name, "user.long", LONG).unwrap();
    }
    set(&f, &root, "d", "system.posix_acl_default", &acl(400)).unwrap();
    assert_eq!(lists(&f).len(), 3);
    assert!(f.vault.ownerless_lists().unwrap().unwrap().1.is_empty());
    replace("d", "e", RenameMode::Replace);
    assert_eq!(lists(&f).len(), 2);
    f.vault.rmdir_name(&root, OsStr::new("e")).unwrap();
    f.vault.unlink_name(&root, OsStr::new("again")).unwrap();
    assert_eq!(lists(&f), Vec::<PathBuf>::new());
}

/// An ACL with this many named users.
fn acl(users: u32) -> Vec<u8> {
    let entry =
        |tag: u16, id: u32| [&tag.to_le_bytes()[..], &4_u16.to_le_bytes(), &id.to_le_bytes()].concat();
    let fixed = |tag| entry(tag, u32::MAX);
    let users: Vec<u8> = (0..users).flat_map(|id| entry(2, id)).collect();
    [2_u32.to_le_bytes().to_vec(), fixed(1), users, fixed(4), fixed(16), fixed(32)].concat()
}

#[test]
fn a_directory_has_room_for_an_acl_of_any_length() {
    let f = Fixture::new();
    let root = f.root();
    let dir = f.mkdir(&root, "d");
    let default = acl(8185);
    set(&f, &root, "d", "system.posix_acl_default", &default).unwrap();
    assert_eq!(f.vault.default_acl(&dir).unwrap().unwrap().encode(), default);
    let f = f.reopen();
    assert_eq!(get(&f, &f.root(), "d", "system.posix_acl_default").unwrap(), default);
}

#[test]
fn a_list_that_is_changed_or_anothers_is_damage() {
    let f = Fixture::new();
    let root = f.root();
    let make = |name: &str| {
        f.touch(&root, name).unwrap();
        set(&f, &root, name, "user.long", LONG).unwrap();
        lists(&f)
    };
    let list_a = make("a").remove(0);
    let list_b = make("b").into_iter().find(|list| *list != list_a).unwrap();
    set(&f, &root, "b", "user.short", b"on the node").unwrap();
    std::fs::copy(&list_a, &list_b).unwrap();
    for attribute in ["user.long", "user.short", "user.none"] {
        let read = get(&f, &root, "b", attribute);
        assert!(matches!(read, Err(Error::Damaged(_))), "{attribute}: nobody knows which value counts");
        assert!(matches!(set(&f, &root, "b", attribute, b""), Err(Error::Damaged(_))), "{attribute}");
        assert!(matches!(remove(&f, &root, "b", attribute), Err(Error::Damaged(_))), "{attribute}");
    }
    let mut bytes = std::fs::read(&list_a).unwrap();
    bytes.push(0);
    std::fs::write(&list_a, &bytes).unwrap();
    assert!(matches!(get(&f, &root, "a", "user.long"), Err(Error::Damaged(_))), "longer");
    let flaws = f.vault.check_node(&root, &entry(&f, "a"));
    let [flaw] = &flaws[..] else { panic!("{} flaws", flaws.len()) };
    let file = list_a.file_name().unwrap().to_str().unwrap();
    assert!(matches!(flaw.part, Part::AttributeList) && flaw.reason.contains(file), "{}", flaw.reason);
    // Both files can be removed; a list without a file is an orphan.
    f.vault.unlink_name(&root, OsStr::new("a")).unwrap();
    f.vault.unlink_name(&root, OsStr::new("b")).unwrap();
    assert_eq!(lists(&f), Vec::<PathBuf>::new());
    std::fs::write(&list_a, "left").unwrap();
    assert_eq!(f.vault.ownerless_lists().unwrap().unwrap().1, [list_a.file_name().unwrap()]);
}

/// If the store passes one file off as another, the file does not get the other's attributes.
#[test]
fn a_list_is_no_other_files_whose_records_were_changed() {
    let f = Fixture::new();
    let root = f.root();
    for name in ["a", "b"] {
        f.touch(&root, name).unwrap();
        set(&f, &root, name, "user.short", b"on the node").unwrap();
    }
    set(&f, &root, "b", "user.long", LONG).unwrap();
    let (a, b) = (f.stored(&root, "a"), f.stored(&root, "b"));
    drop(root);
    let f = f.reopen();
    let root = f.root();
    let (mut of_a, of_b) = (std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
    for record in [0, 512] {
        of_a[record + 24..record + 56].copy_from_slice(&of_b[24..56]);
    }
    std::fs::write(&a, of_a).unwrap();
    assert!(matches!(get(&f, &root, "a", "user.long"), Err(Error::Damaged(_))));
    let (stored, _) = f.vault.lookup(&root, OsStr::new("a")).unwrap();
    assert!(matches!(f.vault.list_xattr(Target::Entry(&root, &stored)), Err(Error::Damaged(_))));
    assert!(matches!(set(&f, &root, "a", "user.long", b""), Err(Error::Damaged(_))));
    assert!(matches!(remove(&f, &root, "a", "user.long"), Err(Error::Damaged(_))));
    assert_eq!(get(&f, &root, "b", "user.long").unwrap(), LONG);
}

/// As root this proves little, because root sees everything.
#[test]
fn a_list_belongs_to_a_node_whose_permission_bits_hide_it() {
    let f = Fixture::new();
    let root = f.root();
    let dir = f.mkdir(&root, "d");
    f.touch(&dir, "file").unwrap();
    set(&f, &root, "d", "user.long", LONG).unwrap();
    set(&f, &dir, "file", "user.long", LONG).unwrap();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    let (path, file) = (f.stored(&root, "d"), f.stored(&dir, "file"));
    mode(&file, 0);
    mode(&path, 0);
    assert_eq!(f.vault.ownerless_lists().unwrap().unwrap().1, Vec::<OsString>::new());
    mode(&path, 0o755);
    assert_eq!(f.names(&root), ["d"], "the lists are no entry");
}

/// Readers of attributes and removers of directories must lock ids and lists in the same order.
#[test]
fn attributes_are_read_while_directories_go() {
    let f = Fixture::new();
    let root = f.root();
    f.mkdir(&root, "d");
    f.touch(&root, "file").unwrap();
    set(&f, &root, "d", "user.short", b"value").unwrap();
    set(&f, &root, "file", "user.long", LONG).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(get(&f, &root, "d", "user.short").unwrap(), b"value");
            }
        });
        for _ in 0..300 {
            f.mkdir(&root, "gone");
            f.vault.rmdir_name(&root, OsStr::new("gone")).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_list_stays_while_either_record_names_its_file() {
    let f = Fixture::new();
    f.touch(&f.root(), "file").unwrap();
    set(&f, &f.root(), "file", "user.a", LONG).unwrap();
    let f = f.reopen();
    let path = f.stored(&f.root(), "file");
    let mut bytes = std::fs::read(&path).unwrap();
    let sectors = bytes[..1024].chunks(512).map(<[u8]>::to_vec);
    let record = sectors.into_iter().find(|sector| sector.starts_with(b"warpfile")).unwrap();
    for damaged in [0, 512] {
        bytes[..1024].copy_from_slice(&record.repeat(2));
        bytes[damaged + 24] ^= 1; // in the salt
        std::fs::write(&path, &bytes).unwrap();
        let (_, left) = f.vault.ownerless_lists().unwrap().unwrap();
        assert!(left.is_empty(), "record at {damaged}");
    }
}
