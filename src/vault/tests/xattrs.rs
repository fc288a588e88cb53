use super::*;
use crate::vault::Target;
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

/// As Linux has it: no attribute in `user.`; others for root alone, without whom nothing of this can be stored.
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
        // One moved to another link, or to a special file of another type, does not verify.
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
