use super::*;
use std::os::unix::fs::symlink;

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|e| Errno::from_io_error(&e))
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

#[test]
fn nothing_but_single_components_is_taken() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::create_dir(outer.path().join("in")).unwrap();
    std::fs::write(outer.path().join("victim"), b"untouched").unwrap();
    let dir = StoreDir::open_path(&outer.path().join("in")).unwrap();
    dir.create_file(name("good"), 0o600).unwrap();
    for bad in ["", ".", "..", "../victim", "/etc", "a/b", "good/", "a\0b"] {
        let bad = name(bad);
        let calls = [
            dir.open_dir(bad).map(drop),
            dir.open_file(bad, OFlags::RDWR).map(drop),
            dir.create_file(bad, 0o600).map(drop),
            dir.node(bad).map(drop),
            dir.stat(bad).map(drop),
            dir.mkdir(bad, 0o700),
            dir.mknod(bad, FileType::Fifo, 0o600, 0),
            dir.symlink(name("x"), bad),
            dir.readlink(bad).map(drop),
            dir.link(name("good"), &dir, bad),
            dir.link(bad, &dir, name("new")),
            dir.unlink(bad),
            dir.rmdir(bad),
            dir.rename(name("good"), &dir, bad),
            dir.rename(bad, &dir, name("new")),
            dir.rename_new(name("good"), &dir, bad),
            dir.exchange(name("good"), &dir, bad),
            dir.node(name("good")).and_then(|node| node.link(&dir, bad)),
        ];
        for (i, call) in calls.into_iter().enumerate() {
            assert_eq!(errno(call), Some(Errno::INVAL), "call {i} with {bad:?}");
        }
    }
    assert_eq!(dir.list().unwrap().len(), 1);
    assert_eq!(std::fs::read(outer.path().join("victim")).unwrap(), b"untouched");
}

#[test]
fn links_are_never_followed() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("victim"), b"untouched").unwrap();
    let inside = tempfile::tempdir().unwrap();
    symlink(outside.path(), inside.path().join("dir")).unwrap();
    symlink(outside.path().join("victim"), inside.path().join("file")).unwrap();
    let dir = StoreDir::open_path(inside.path()).unwrap();
    assert_eq!(errno(dir.open_dir(name("dir"))), Some(Errno::NOTDIR));
    assert_eq!(errno(dir.open_file(name("file"), OFlags::RDWR)), Some(Errno::LOOP));
    assert_eq!(errno(dir.create_file(name("file"), 0o600)), Some(Errno::EXIST));
    for link in ["dir", "file"] {
        let node = dir.node(name(link)).unwrap();
        assert_eq!(FileType::from_raw_mode(node.stat().unwrap().st_mode), FileType::Symlink);
        assert_eq!(errno(node.reopen(OFlags::RDWR)), Some(Errno::LOOP));
        // The store decides whether a link can have attributes or a mode. The target must not change.
        let _ = node.chmod(0o7777);
        let _ = node.set_xattr(name("user.x"), b"x", rustix::fs::XattrFlags::empty());
        let _ = node.chown(Some(4321), Some(4321));
        let then = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
        node.set_times(then, then).unwrap();
        assert_eq!(node.stat().unwrap().st_mtime, 1);
    }
    for path in [outside.path().to_owned(), outside.path().join("victim")] {
        let stat = rustix::fs::stat(&path).unwrap();
        assert_ne!((stat.st_uid, stat.st_mtime), (4321, 1));
        assert_eq!(stat.st_mode & 0o7000, 0);
        assert_eq!(rustix::fs::listxattr(&path, &mut [0; 512][..]).unwrap(), 0);
    }
    dir.unlink(name("dir")).unwrap();
    dir.unlink(name("file")).unwrap();
    assert_eq!(std::fs::read(outside.path().join("victim")).unwrap(), b"untouched");
}

#[test]
fn a_listing_has_every_entry_with_its_type() {
    let inside = tempfile::tempdir().unwrap();
    let dir = StoreDir::open_path(inside.path()).unwrap();
    // More entries than fit in one buffer.
    for i in 0..2000 {
        dir.create_file(name(&format!("{i:0200}")), 0o600).unwrap();
    }
    dir.mkdir(name("dir"), 0o700).unwrap();
    dir.symlink(name("x"), name("link")).unwrap();
    dir.mknod(name("fifo"), FileType::Fifo, 0o600, 0).unwrap();
    let listed = dir.list().unwrap();
    assert_eq!(listed.len(), 2003);
    for entry in &listed {
        let stat = dir.stat(&entry.name).unwrap();
        assert_eq!(FileType::from_raw_mode(stat.st_mode), entry.kind);
        assert_eq!(stat.st_ino, entry.ino);
    }
    // A second listing starts from the beginning again.
    assert_eq!(dir.list().unwrap().len(), 2003);
}

#[test]
fn large_attributes_are_read_whole() {
    let inside = tempfile::tempdir().unwrap();
    let dir = StoreDir::open_path(inside.path()).unwrap();
    let node = dir.itself();
    let none = rustix::fs::XattrFlags::empty();
    let value = vec![5; 2000];
    node.set_xattr(name("user.big"), &value, none).unwrap();
    assert_eq!(node.get_xattr(name("user.big")).unwrap(), Some(value));
    assert_eq!(node.get_xattr(name("user.none")).unwrap(), None);
    node.set_xattr(name("user.empty"), b"", none).unwrap();
    assert_eq!(node.get_xattr(name("user.empty")).unwrap(), Some(Vec::new()));
    let mut names = node.list_xattr().unwrap();
    names.sort();
    assert_eq!(names, ["user.big", "user.empty"]);
    assert!(node.remove_xattr(name("user.big")).unwrap());
    assert!(!node.remove_xattr(name("user.big")).unwrap());
}

#[test]
fn an_id_that_means_leave_it_is_refused() {
    let inside = tempfile::tempdir().unwrap();
    let dir = StoreDir::open_path(inside.path()).unwrap();
    assert_eq!(errno(dir.itself().chown(Some(u32::MAX), None)), Some(Errno::INVAL));
    assert_eq!(errno(dir.itself().chown(None, Some(u32::MAX))), Some(Errno::INVAL));
}

#[test]
fn whether_there_is_any_attribute_is_told_of_the_node_itself() {
    let inside = tempfile::tempdir().unwrap();
    let dir = StoreDir::open_path(inside.path()).unwrap();
    dir.create_file(name("file"), 0o600).unwrap();
    symlink("file", inside.path().join("link")).unwrap();
    assert!(!dir.has_xattrs(name("file")).unwrap() && !dir.node(name("file")).unwrap().has_xattrs().unwrap());
    let node = dir.node(name("file")).unwrap();
    node.set_xattr(name("user.x"), b"x", rustix::fs::XattrFlags::empty()).unwrap();
    assert!(dir.has_xattrs(name("file")).unwrap() && node.has_xattrs().unwrap());
    assert!(!dir.has_xattrs(name("link")).unwrap(), "not what it leads to");
    assert_eq!(errno(dir.has_xattrs(name("none"))), Some(Errno::NOENT));
    assert_eq!(errno(dir.has_xattrs(name("../x"))), Some(Errno::INVAL));
}
