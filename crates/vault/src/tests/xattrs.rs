use super::*;
use crate::Target;
use rustix::fs::XattrFlags;

fn set(f: &Fixture, dir: &Dir, name: &str, value: &[u8]) -> Result<()> {
    f.vault.set_xattr(Target::Dir(dir), OsStr::new(name), value, false, false)
}

fn get(f: &Fixture, dir: &Dir, name: &str) -> Result<Vec<u8>> {
    f.vault.get_xattr(Target::Dir(dir), OsStr::new(name))
}

#[test]
fn attributes_of_a_directory_round_trip_in_every_namespace() {
    let f = Fixture::new();
    let dir = f.mkdir(&f.root(), "d");
    let stored = f.vault.lookup(&f.root(), OsStr::new("d")).unwrap().0;
    let entry = Target::Entry(&f.root(), &stored);
    for name in ["user.x", "user.имя", "trusted.overlay.opaque", "security.capability"] {
        for value in [&b""[..], b"value", &[0xff; 500]] {
            set(&f, &dir, name, value).unwrap();
            assert_eq!(get(&f, &dir, name).unwrap(), value);
            assert_eq!(f.vault.get_xattr(entry, OsStr::new(name)).unwrap(), value);
        }
    }
    let mut names = f.vault.list_xattr(entry).unwrap();
    names.sort();
    assert_eq!(names, ["security.capability", "trusted.overlay.opaque", "user.x", "user.имя"]);
    f.vault.remove_xattr(entry, OsStr::new("user.x")).unwrap();
    assert!(matches!(f.vault.remove_xattr(entry, OsStr::new("user.x")), Err(Error::NoAttribute)));
    assert!(matches!(get(&f, &dir, "user.x"), Err(Error::NoAttribute)));
    assert_eq!(f.vault.list_xattr(Target::Dir(&dir)).unwrap().len(), 3);
}

#[test]
fn create_and_replace_ask_for_what_is_there() {
    let f = Fixture::new();
    let root = f.root();
    let set =
        |create, replace| f.vault.set_xattr(Target::Dir(&root), OsStr::new("user.x"), b"v", create, replace);
    assert!(matches!(set(false, true), Err(Error::NoAttribute)));
    set(true, false).unwrap();
    assert_eq!(errno(set(true, false)), Some(Errno::EXIST));
    set(false, true).unwrap();
}

#[test]
fn names_that_do_not_fit_and_what_is_no_acl_are_refused() {
    let f = Fixture::new();
    let root = f.root();
    assert!(matches!(set(&f, &root, "system.other", b""), Err(Error::NotSupported(_))));
    assert!(matches!(get(&f, &root, "system.other"), Err(Error::NotSupported(_))));
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        assert!(matches!(set(&f, &root, name, b"no ACL"), Err(Error::Invalid(_))), "{name}");
        assert!(matches!(get(&f, &root, name), Err(Error::NoAttribute)), "{name}");
    }
    assert!(matches!(set(&f, &root, &format!("user.{}", "x".repeat(200)), b""), Err(Error::NameTooLong)));
    assert!(matches!(get(&f, &root, &format!("user.{}", "x".repeat(200))), Err(Error::NoAttribute)));
    for name in ["x", "user", "other.x", "users.x"] {
        assert!(matches!(set(&f, &root, name, b""), Err(Error::NotSupported(_))), "{name}");
    }
    assert!(matches!(set(&f, &root, "user.", b""), Err(Error::Invalid(_))));
}

/// As on Linux, these nodes have no `user.` attributes. Others are reserved for root, so without root
/// none can be stored.
#[test]
fn links_and_special_files_have_those_of_root() {
    let f = Fixture::new();
    let root = f.root();
    let root = &*root;
    for (name, kind, device) in [("fifo", Kind::Fifo, 0), ("socket", Kind::Socket, 0)] {
        f.vault.mknod(root, OsStr::new(name), node(0o600), kind, device).unwrap();
    }
    f.vault.symlink(root, OsStr::new("link"), OsStr::new("nowhere"), node(0o777)).unwrap();
    f.vault.symlink(root, OsStr::new("link2"), OsStr::new("nowhere"), node(0o777)).unwrap();
    let stored_of = |name: &str| f.vault.lookup(root, OsStr::new(name)).unwrap().0;
    let attribute = OsStr::new("trusted.overlay.origin");
    for name in ["link", "fifo", "socket"] {
        let stored = stored_of(name);
        let target = Target::Entry(root, &stored);
        let x = OsStr::new("user.x");
        assert_eq!(errno(f.vault.set_xattr(target, x, b"v", false, false)), Some(Errno::PERM));
        assert!(matches!(f.vault.get_xattr(target, x), Err(Error::NoAttribute)), "{name}");
        assert_eq!(f.vault.list_xattr(target).unwrap(), Vec::<OsString>::new());
        assert!(matches!(f.vault.get_xattr(target, attribute), Err(Error::NoAttribute)));
        let set = f.vault.set_xattr(target, attribute, b"value", false, false);
        if !rustix::process::geteuid().is_root() {
            assert_eq!(errno(set), Some(Errno::PERM));
            continue;
        }
        set.unwrap();
        assert_eq!(f.vault.get_xattr(target, attribute).unwrap(), b"value");
        assert_eq!(f.vault.list_xattr(target).unwrap(), [attribute]);
        let path = f.stored(root, name);
        let raw = f.vault.keys().xattrs.encode_name(attribute.as_encoded_bytes()).unwrap();
        let raw = raw.replacen("user.", "trusted.", 1);
        let mut value = vec![0; 100];
        let len = rustix::fs::lgetxattr(&path, &raw, &mut value).unwrap();
        assert_eq!(len, b"value".len() + 32);
        // An attribute that is moved to another link, or to a special file of another type, does not
        // verify.
        let other = if name == "link" { "link2" } else { "link" };
        rustix::fs::lsetxattr(f.stored(root, other), &raw, &value[..len], XattrFlags::empty()).unwrap();
        let moved = stored_of(other);
        let moved = f.vault.get_xattr(Target::Entry(root, &moved), attribute);
        assert!(matches!(moved, Err(Error::Damaged(_))));
        f.vault.remove_xattr(target, attribute).unwrap();
        assert!(matches!(f.vault.get_xattr(target, attribute), Err(Error::NoAttribute)));
    }
}

#[test]
fn foreign_and_moved_attributes_are_not_taken_for_ours() {
    let f = Fixture::new();
    let (a, b) = (f.mkdir(&f.root(), "a"), f.mkdir(&f.root(), "b"));
    set(&f, &a, "user.x", b"of a").unwrap();
    set(&f, &a, "user.y", b"y of a").unwrap();
    set(&f, &b, "user.x", b"of b").unwrap();
    let (node_a, node_b) = (a.store.itself(), b.store.itself());
    let flags = XattrFlags::empty();
    for foreign in ["user.foreign", "user.warpcrypt.AAAA", "user.warpcrypt."] {
        node_a.set_xattr(OsStr::new(foreign), b"x", flags).unwrap();
    }
    let mut names = f.vault.list_xattr(Target::Dir(&a)).unwrap();
    names.sort();
    assert_eq!(names, ["user.x", "user.y"]);
    let stored = |name: &str| OsString::from(f.vault.keys().xattrs.encode_name(name.as_bytes()).unwrap());
    let value = node_a.get_xattr(&stored("user.x")).unwrap().unwrap();
    node_b.set_xattr(&stored("user.x"), &value, flags).unwrap();
    assert!(matches!(get(&f, &b, "user.x"), Err(Error::Damaged(_))), "another directory's");
    node_a.set_xattr(&stored("user.y"), &value, flags).unwrap();
    assert!(matches!(get(&f, &a, "user.y"), Err(Error::Damaged(_))), "another name's");
    assert_eq!(get(&f, &a, "user.x").unwrap(), b"of a");
}

#[test]
fn what_a_later_version_keeps_is_neither_listed_nor_damage() {
    let f = Fixture::new();
    f.touch(&f.root(), "file").unwrap();
    let stored = f.vault.lookup(&f.root(), OsStr::new("file")).unwrap().0;
    let root = f.root();
    let target = Target::Entry(&root, &stored);
    f.vault.set_xattr(target, OsStr::new("user.x"), b"value", false, false).unwrap();
    let path = f.stored(&f.root(), "file");
    for name in ["user.warpcrypt.acl.later", "user.warpcrypt.later.x"] {
        rustix::fs::lsetxattr(&path, name, b"sealed", XattrFlags::empty()).unwrap();
    }
    let before = f.vault.left_out();
    assert_eq!(f.vault.list_xattr(target).unwrap(), ["user.x"]);
    assert_eq!(f.vault.left_out(), before, "nothing is reported");
    assert_eq!(f.vault.get_xattr(target, OsStr::new("user.x")).unwrap(), b"value");
}

#[test]
fn a_tampered_acl_is_damage() {
    let f = Fixture::new();
    let root = f.root();
    // u::rwx, u:7:r--, g::---, m::r--, o::---
    let entries =
        [(1_u16, 7_u16, u32::MAX), (2, 4, 7), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let encoded = entries.iter().flat_map(|(tag, rights, id)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    let acl: Vec<u8> = 2_u32.to_le_bytes().into_iter().chain(encoded).collect();
    set(&f, &root, "system.posix_acl_access", &acl).unwrap();
    assert_eq!(get(&f, &root, "system.posix_acl_access").unwrap(), acl);
    assert_eq!(
        f.vault.stat(Target::Dir(&root)).unwrap().mode & 0o777,
        0o740,
        "the mask stands for the group"
    );
    let node = root.store.itself();
    let name = OsStr::new("user.warpcrypt.acl.access");
    let mut stored = node.get_xattr(name).unwrap().unwrap();
    stored[20] ^= 1;
    node.set_xattr(name, &stored, XattrFlags::empty()).unwrap();
    assert!(matches!(get(&f, &root, "system.posix_acl_access"), Err(Error::Damaged(_))));
}

/// A default ACL in which one user may read and write, and the group has no rights.
fn default_acl() -> Vec<u8> {
    let entry = |tag: u16, rights: u16, id: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let fixed = |tag, rights| entry(tag, rights, u32::MAX);
    let parts = [fixed(1, 6), entry(2, 6, 1234), fixed(4, 0), fixed(16, 6), fixed(32, 4)];
    [2_u32.to_le_bytes().to_vec(), parts.concat()].concat()
}

const DEFAULT: &str = "system.posix_acl_default";
const ACCESS: &str = "system.posix_acl_access";

/// A vault with a file `name` that inherited an ACL and has an attribute, and the file's path in the
/// store.
fn with_attributes(name: &str) -> (Fixture, PathBuf) {
    let f = Fixture::new();
    let root = f.root();
    set(&f, &root, DEFAULT, &default_acl()).unwrap();
    let acl = f.vault.default_acl(&root).unwrap();
    let new = NewNode { default_acl: acl.as_ref(), ..node(0o666) };
    let (stored, stat, open) = f.vault.create(&root, OsStr::new(name), new).unwrap();
    assert_eq!(stat.mode & 0o777, 0o664);
    f.vault.files().release(open);
    f.vault.set_xattr(Target::Entry(&root, &stored), OsStr::new("user.x"), b"x", false, false).unwrap();
    let place = f.stored(&root, name);
    (f, place)
}

/// A power cut happens before a file with attributes is durable: its inode survives, its header does
/// not.
#[test]
fn a_file_that_never_became_durable_has_no_attributes() {
    type Later<'a> = &'a dyn Fn(&Fixture, &StoredName);
    type Cut = fn(&[u8]) -> Vec<u8>;
    let writes: Later = &|f, stored| {
        let open = f.vault.open_file(&f.root(), stored, true).unwrap();
        open.file.write(0, b"content").unwrap();
        open.file.flush().unwrap();
    };
    let sets: Later = &|f, stored| {
        let root = f.root();
        let set = |name: &str, create, replace| {
            f.vault.set_xattr(Target::Entry(&root, stored), OsStr::new(name), b"new", create, replace)
        };
        set("user.y", true, false).unwrap();
        assert!(matches!(set("user.x", false, true), Err(Error::NoAttribute)));
        set("user.x", true, false).unwrap();
    };
    let cuts: [Cut; 3] = [|_| Vec::new(), |bytes| bytes[..100].to_vec(), |bytes| vec![0; bytes.len()]];
    let names = |vault: &Vault| {
        let (root, name) = (vault.root(), OsStr::new("f"));
        let (stored, _) = vault.lookup(&root, name).unwrap();
        let target = Target::Entry(&root, &stored);
        let names = vault.list_xattr(target).unwrap();
        for attribute in ["user.x", ACCESS] {
            let got = vault.get_xattr(target, OsStr::new(attribute));
            let is_listed = names.iter().any(|name| name == attribute);
            assert!(got.is_ok() == is_listed, "{attribute}: {got:?}");
            assert!(is_listed || matches!(got, Err(Error::NoAttribute)), "{attribute}: {got:?}");
        }
        let entry = vault.list(&root).unwrap().into_iter().find(|entry| entry.name == name).unwrap();
        assert!(vault.check_node(&root, &entry).is_empty());
        names.len()
    };
    for ((later, left), cut) in [(writes, 0), (sets, 2)].into_iter().flat_map(|l| cuts.map(|cut| (l, cut))) {
        let (f, place) = with_attributes("f");
        assert_eq!(names(&f.vault), 2);
        let dir = f.close();
        std::fs::write(&place, cut(&std::fs::read(&place).unwrap())).unwrap();
        assert_eq!(names(&open(dir.path(), true)), 0, "read only");
        let f = Fixture { vault: open(dir.path(), false), dir };
        assert_eq!(names(&f.vault), 0);
        let (stored, _) = f.vault.lookup(&f.root(), OsStr::new("f")).unwrap();
        later(&f, &stored);
        assert_eq!(names(&f.vault), left);
        let f = f.reopen();
        assert_eq!(names(&f.vault), left);
        // The mask's rights are not the group's.
        assert_eq!(f.vault.lookup(&f.root(), OsStr::new("f")).unwrap().1.mode & 0o777, 0o604);
    }
}

/// Like the previous test, for a directory that loses its id.
#[test]
fn a_directory_that_never_became_durable_has_no_attributes() {
    let f = Fixture::new();
    let dir = f.mkdir(&f.root(), "d");
    set(&f, &dir, DEFAULT, &default_acl()).unwrap();
    set(&f, &dir, "user.x", b"x").unwrap();
    let id = f.stored(&f.root(), "d").join("warpcrypt.dir");
    drop(dir);
    let dir = f.close();
    std::fs::write(&id, b"").unwrap();
    let look = |vault: &Vault| {
        let root = vault.root();
        let (stored, _) = vault.lookup(&root, OsStr::new("d")).unwrap();
        let target = Target::Entry(&root, &stored);
        assert!(matches!(vault.get_xattr(target, OsStr::new("user.x")), Err(Error::NoAttribute)));
        assert_eq!(vault.list_xattr(target).unwrap(), Vec::<OsString>::new());
        let opened = vault.open_dir(&root, &stored).unwrap();
        assert!(vault.default_acl(&opened).unwrap().is_none());
        opened
    };
    look(&open(dir.path(), true));
    let f = Fixture { vault: open(dir.path(), false), dir };
    let dir = look(&f.vault);
    f.touch(&dir, "file").unwrap();
    set(&f, &dir, DEFAULT, &default_acl()).unwrap();
    assert_eq!(get(&f, &dir, DEFAULT).unwrap(), default_acl());
}

/// Attributes of a node with an identity have to authenticate.
#[test]
fn a_value_for_another_salt_stays_damage() {
    let (f, place) = with_attributes("f");
    f.touch(&f.root(), "g").unwrap();
    let (stored, _) = f.vault.lookup(&f.root(), OsStr::new("g")).unwrap();
    f.vault.set_xattr(Target::Entry(&f.root(), &stored), OsStr::new("user.x"), b"g", false, false).unwrap();
    let other = f.stored(&f.root(), "g");
    let dir = f.close();
    std::fs::write(&place, std::fs::read(other).unwrap()).unwrap();
    let vault = open(dir.path(), false);
    let (stored, _) = vault.lookup(&vault.root(), OsStr::new("f")).unwrap();
    let got = vault.get_xattr(Target::Entry(&vault.root(), &stored), OsStr::new("user.x"));
    assert!(matches!(got, Err(Error::Damaged(_))), "{got:?}");
}
