use super::*;
use std::os::unix::{ffi::OsStrExt, fs::symlink};

#[test]
fn foreign_entries_are_left_out_and_harm_nothing() {
    let f = Fixture::new();
    let dir = f.mkdir(&f.root(), "d");
    f.touch(&dir, "mine").unwrap();
    let path = f.stored(&f.root(), "d");
    for name in ["foreign", ".hidden", "AAAA", "warpcrypt.unknown", &"A".repeat(64)] {
        std::fs::write(path.join(name), b"x").unwrap();
    }
    std::fs::write(path.join(format!("warpcrypt.long.{}", "A".repeat(43))), b"x").unwrap();
    symlink("/etc", path.join("outside")).unwrap();
    std::fs::create_dir(path.join("foreign-dir")).unwrap();
    assert_eq!(f.names(&dir), ["mine"]);
    // A name from another directory is not valid here.
    f.touch(&f.root(), "mine too").unwrap();
    let stored = f.stored(&f.root(), "mine too");
    std::fs::copy(&stored, path.join(stored.file_name().unwrap())).unwrap();
    assert_eq!(f.names(&dir), ["mine"]);
}

#[test]
fn a_broken_sidecar_hides_its_name_and_no_other() {
    let f = Fixture::new();
    let dir = f.mkdir(&f.root(), "d");
    let (one, two) = ("1".repeat(200), "2".repeat(200));
    f.touch(&dir, &one).unwrap();
    f.touch(&dir, &two).unwrap();
    let mut sidecar = f.stored(&dir, &one).into_os_string();
    sidecar.push(".name");
    let sidecar = PathBuf::from(sidecar);
    let good = std::fs::read(&sidecar).unwrap();
    let other = {
        let mut path = f.stored(&dir, &two).into_os_string();
        path.push(".name");
        std::fs::read(path).unwrap()
    };
    let mut flipped = good.clone();
    flipped[7] ^= 1;
    for bad in [&b""[..], &good[..good.len() - 1], &flipped, &other, &vec![0; 100_000]] {
        std::fs::write(&sidecar, bad).unwrap();
        assert_eq!(f.names(&dir), [OsString::from(&two)]);
        assert!(f.ino(&dir, &one).is_some(), "still found by name");
    }
    std::fs::remove_file(&sidecar).unwrap();
    for target in ["/etc/passwd", "warpcrypt.dir"] {
        symlink(target, &sidecar).unwrap();
        assert_eq!(f.names(&dir), [OsString::from(&two)]);
        std::fs::remove_file(&sidecar).unwrap();
    }
    let fifo =
        rustix::fs::mknodat(rustix::fs::CWD, &sidecar, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0);
    fifo.unwrap();
    assert_eq!(f.names(&dir), [OsString::from(&two)]);
    // Creating the name again repairs the sidecar.
    f.vault.unlink_name(&dir, OsStr::new(&one)).unwrap();
    f.touch(&dir, &one).unwrap();
    assert_eq!(f.names(&dir), [OsString::from(&one), OsString::from(&two)]);
}

/// Creates a directory with one entry; returns its path in the store and its stored name.
fn with_entry(f: &Fixture) -> (PathBuf, crate::StoredName) {
    let dir = f.mkdir(&f.root(), "d");
    f.touch(&dir, "entry").unwrap();
    (f.stored(&f.root(), "d"), f.vault.lookup(&f.root(), OsStr::new("d")).unwrap().0)
}

#[test]
fn a_tampered_id_file_is_damage_and_its_neighbours_go_on() {
    let f = Fixture::new();
    let (path, stored) = with_entry(&f);
    let id = path.join("warpcrypt.dir");
    let good = std::fs::read(&id).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        std::fs::write(&id, bad).unwrap();
        assert!(matches!(f.vault.open_dir(&f.root(), &stored), Err(Error::Damaged(_))), "byte {at}");
    }
    for bad in [&good[..31], &[&good[..], &[0]].concat()] {
        std::fs::write(&id, bad).unwrap();
        assert!(matches!(f.vault.open_dir(&f.root(), &stored), Err(Error::Damaged(_))));
    }
    std::fs::remove_file(&id).unwrap();
    assert!(matches!(f.vault.open_dir(&f.root(), &stored), Err(Error::Damaged(_))), "missing");
    symlink("/etc/hostname", &id).unwrap();
    assert!(matches!(f.vault.open_dir(&f.root(), &stored), Err(Error::Damaged(_))), "a link");
    f.mkdir(&f.root(), "neighbour");
    std::fs::remove_file(&id).unwrap();
    std::fs::write(&id, good).unwrap();
    assert_eq!(f.names(&f.vault.open_dir(&f.root(), &stored).unwrap()), ["entry"]);
}

#[test]
fn new_directories_that_a_crash_left_without_ids_read_as_empty_and_can_go() {
    let f = Fixture::new();
    let mut dir = f.root();
    let mut stored = Vec::new();
    for name in ["a", "b", "c"] {
        let made = f.mkdir(&dir, name);
        stored.push(f.stored(&dir, name));
        dir = made;
    }
    for path in &stored {
        std::fs::remove_file(path.join("warpcrypt.dir")).unwrap();
    }
    let name = f.vault.lookup(&f.root(), OsStr::new("a")).unwrap().0;
    let file = stored[2].join("content");
    std::fs::write(&file, b"").unwrap();
    assert!(matches!(f.vault.open_dir(&f.root(), &name), Err(Error::Damaged(_))), "a file is below");
    assert_eq!(errno(f.vault.rmdir_name(&f.root(), OsStr::new("a"))), Some(Errno::NOTEMPTY));
    std::fs::remove_file(&file).unwrap();
    let a = f.vault.open_dir(&f.root(), &name).unwrap();
    assert_eq!(f.names(&a), Vec::<OsString>::new());
    assert_eq!(errno(f.touch(&a, "x")), Some(Errno::NOENT));
    assert!(!stored[0].join("warpcrypt.dir").exists(), "its id may yet be brought back");
    f.vault.rmdir_name(&f.root(), OsStr::new("a")).unwrap();
    assert!(!stored[0].exists());
}

#[test]
fn another_directory_s_id_shows_nothing_of_this_one() {
    let f = Fixture::new();
    let (path, stored) = with_entry(&f);
    std::fs::copy(f.dir.path().join("warpcrypt.dir"), path.join("warpcrypt.dir")).unwrap();
    let dir = f.vault.open_dir(&f.root(), &stored).unwrap();
    assert_eq!(f.names(&dir), Vec::<OsString>::new());
    assert_eq!(f.ino(&dir, "entry"), None);
}

#[test]
fn a_directory_that_a_crash_left_without_id_gets_one() {
    let f = Fixture::new();
    f.mkdir(&f.root(), "d");
    let stored = f.vault.lookup(&f.root(), OsStr::new("d")).unwrap().0;
    let id = f.stored(&f.root(), "d").join("warpcrypt.dir");
    for content in [None, Some(&b""[..]), Some(&[0; 32])] {
        match content {
            None => std::fs::remove_file(&id).unwrap(),
            Some(content) => std::fs::write(&id, content).unwrap(),
        }
        let reader = open(f.dir.path(), true);
        let dir = reader.open_dir(&reader.root(), &stored).unwrap();
        assert_eq!(reader.list(&dir).unwrap().len(), 0);
        assert_eq!(errno(reader.lookup(&dir, OsStr::new("x"))), Some(Errno::NOENT));
        assert_eq!(std::fs::read(&id).ok().as_deref(), content, "a reader writes nothing");

        let dir = f.vault.open_dir(&f.root(), &stored).unwrap();
        f.touch(&dir, "works").unwrap();
        assert_eq!(f.names(&f.vault.open_dir(&f.root(), &stored).unwrap()), ["works"]);
        f.vault.unlink_name(&dir, OsStr::new("works")).unwrap();
    }
}

#[test]
fn a_blank_id_file_over_files_with_content_is_damage_and_stays() {
    let f = Fixture::new();
    let (path, stored) = with_entry(&f);
    let dir = f.vault.open_dir(&f.root(), &stored).unwrap();
    let (_, _, file) = f.vault.create(&dir, OsStr::new("content"), node(0o644)).unwrap();
    file.file.write(0, b"kept").unwrap();
    f.vault.sync_file(&file).unwrap();
    drop((dir, file));
    let id = path.join("warpcrypt.dir");
    let good = std::fs::read(&id).unwrap();
    for blank in [&b""[..], &[0; 32]] {
        std::fs::write(&id, blank).unwrap();
        assert!(matches!(f.vault.open_dir(&f.root(), &stored), Err(Error::Damaged(_))));
        assert_eq!(errno(f.vault.rmdir_name(&f.root(), OsStr::new("d"))), Some(Errno::NOTEMPTY));
        assert_eq!(std::fs::read(&id).unwrap(), blank, "it may yet be brought back");
    }
    // The directory can be moved out of the way.
    let ends = |name: &'static str| (f.root(), OsStr::new(name));
    let ((from, old), (to, new)) = (ends("d"), ends("d.damaged"));
    f.vault.rename_name((&from, old), (&to, new), RenameMode::Replace).unwrap();
    std::fs::write(f.stored(&f.root(), "d.damaged").join("warpcrypt.dir"), good).unwrap();
    let stored = f.vault.lookup(&f.root(), new).unwrap().0;
    assert_eq!(f.names(&f.vault.open_dir(&f.root(), &stored).unwrap()), ["content", "entry"]);
}

#[test]
fn what_a_crash_left_under_a_blank_id_is_set_aside() {
    let f = Fixture::new();
    let (path, stored) = with_entry(&f);
    let entry = f.stored(&f.vault.open_dir(&f.root(), &stored).unwrap(), "entry");
    std::fs::write(path.join("warpcrypt.dir"), b"").unwrap();
    let reader = open(f.dir.path(), true);
    let dir = reader.open_dir(&reader.root(), &stored).unwrap();
    assert_eq!(reader.list(&dir).unwrap().len(), 0);
    assert!(entry.exists(), "a reader moves nothing");

    let dir = f.vault.open_dir(&f.root(), &stored).unwrap();
    assert_eq!(f.names(&dir), Vec::<OsString>::new());
    f.touch(&dir, "new").unwrap();
    assert_eq!(f.names(&dir), ["new"]);
    let aside = raw_names(&path).into_iter().find(|name| name.as_bytes().starts_with(b"warpcrypt.lost."));
    assert_eq!(raw_names(&path.join(aside.unwrap())), [entry.file_name().unwrap()]);
    f.vault.unlink_name(&dir, OsStr::new("new")).unwrap();
    f.vault.rmdir_name(&f.root(), OsStr::new("d")).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_root_that_lost_its_id_is_not_made_anew() {
    let f = Fixture::new();
    f.touch(&f.root(), "file").unwrap();
    f.mkdir(&f.root(), "d");
    let dir = f.close();
    let id = dir.path().join("warpcrypt.dir");
    let good = std::fs::read(&id).unwrap();
    for read_only in [true, false] {
        std::fs::write(&id, b"").unwrap();
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        let opened = Vault::open(dir.path(), &unlock(), options);
        assert!(matches!(opened, Err(crate::OpenError::DamagedRoot(_))));
        assert_eq!(std::fs::read(&id).unwrap(), b"");
    }
    std::fs::write(&id, good).unwrap();
    let vault = open(dir.path(), false);
    assert_eq!(vault.list(&vault.root()).unwrap().len(), 2);
}

#[test]
fn a_link_in_place_of_a_directory_leads_nowhere() {
    let f = Fixture::new();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("victim"), b"untouched").unwrap();
    f.mkdir(&f.root(), "d");
    let stored = f.vault.lookup(&f.root(), OsStr::new("d")).unwrap().0;
    let path = f.stored(&f.root(), "d");
    std::fs::remove_dir_all(&path).unwrap();
    symlink(outside.path(), &path).unwrap();
    assert_eq!(errno(f.vault.open_dir(&f.root(), &stored)), Some(Errno::NOTDIR));
    assert_eq!(errno(f.vault.rmdir_name(&f.root(), OsStr::new("d"))), Some(Errno::NOTDIR));
    let target = crate::Target::Entry(&f.root(), &stored);
    let owner = crate::SetAttr {
        uid: Some(12345),
        mtime: Some(crate::SetTime::At(Default::default())),
        ..Default::default()
    };
    let _ = f.vault.set_attr(target, &owner);
    let before = rustix::fs::stat(outside.path()).unwrap();
    assert_ne!((before.st_uid, before.st_mtime), (12345, 0));
    assert_eq!(raw_names(outside.path()), ["victim"]);
}

#[test]
fn a_link_in_place_of_a_file_is_not_followed() {
    let f = Fixture::new();
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(outside.path(), b"untouched").unwrap();
    f.touch(&f.root(), "file").unwrap();
    let stored = f.vault.lookup(&f.root(), OsStr::new("file")).unwrap().0;
    let path = f.stored(&f.root(), "file");
    std::fs::remove_file(&path).unwrap();
    symlink(outside.path(), &path).unwrap();
    assert_eq!(errno(f.vault.open_file(&f.root(), &stored, true)), Some(Errno::LOOP));
    assert!(matches!(f.vault.readlink(&f.root(), &stored), Err(Error::Damaged(_))));
    let target = crate::Target::Entry(&f.root(), &stored);
    let cut = crate::SetAttr { size: Some(0), ..Default::default() };
    assert!(f.vault.set_attr(target, &cut).is_err());
    let chmod = crate::SetAttr { mode: Some(0o777), ..Default::default() };
    assert!(f.vault.set_attr(target, &chmod).is_err());
    assert!(f.vault.set_xattr(target, OsStr::new("user.x"), b"v", false, false).is_err());
    assert_eq!(std::fs::read(outside.path()).unwrap(), b"untouched");
    f.vault.unlink_name(&f.root(), OsStr::new("file")).unwrap();
    assert!(outside.path().exists());
}
