use super::*;
use crate::{Origin, Target};
use format::name::SIDECAR;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const SCRIPTS: [&str; 10] = [
    "plain.txt",
    "Привет мир",
    "你好.世界",
    "שלום",
    "ναι",
    "नमस्ते",
    "e\u{301}",
    "🦀🔒",
    " -leading and trailing ",
    "a\nb\tc\\",
];

#[test]
fn names_in_many_scripts_survive_a_remount() {
    let f = Fixture::new();
    for name in SCRIPTS {
        f.touch(&f.root(), name).unwrap();
    }
    let f = f.reopen();
    let mut expected: Vec<OsString> = SCRIPTS.iter().map(OsString::from).collect();
    expected.sort();
    assert_eq!(f.names(&f.root()), expected);
    for name in SCRIPTS {
        assert!(f.ino(&f.root(), name).is_some(), "{name}");
        f.vault.unlink_name(&f.root(), OsStr::new(name)).unwrap();
    }
    assert_eq!(f.names(&f.root()), Vec::<OsString>::new());
}

#[test]
fn every_byte_but_slash_and_zero_is_part_of_a_name() {
    for mode in NameMode::ALL {
        let f = Fixture::with(mode);
        let mut expected = Vec::new();
        for byte in (1..=255).filter(|&b| b != b'/') {
            let name = OsString::from_vec(vec![b'x', byte]);
            f.touch(&f.root(), &name).unwrap();
            expected.push(name);
        }
        expected.sort();
        assert_eq!(f.names(&f.root()), expected);
    }
}

#[test]
fn what_is_no_name_is_refused() {
    let f = Fixture::new();
    for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
        let name = OsStr::from_bytes(name);
        assert!(matches!(f.touch(&f.root(), name), Err(Error::Invalid(_))), "{name:?}");
        assert!(f.vault.lookup(&f.root(), name).is_err());
    }
    assert!(matches!(f.touch(&f.root(), "x".repeat(256)), Err(Error::NameTooLong)));
}

#[test]
fn names_of_every_length_are_made_found_listed_and_removed() {
    for mode in NameMode::ALL {
        let f = Fixture::with(mode);
        let dir = f.mkdir(&f.root(), "d");
        let names: Vec<String> = (1..=255).map(|len| "n".repeat(len)).collect();
        for name in &names {
            f.touch(&dir, name).unwrap();
            assert_eq!(errno(f.touch(&dir, name)), Some(Errno::EXIST));
        }
        assert_eq!(f.names(&dir).len(), 255);
        let stored = raw_names(&f.stored(&f.root(), "d"));
        assert_eq!(stored.iter().map(|name| name.len()).max(), Some(mode.stored_max()));
        for name in &names {
            assert!(f.ino(&dir, name).is_some());
        }
        for name in &names {
            f.vault.unlink_name(&dir, OsStr::new(name)).unwrap();
            assert_eq!(f.ino(&dir, name), None);
        }
        assert_eq!(f.names(&dir), Vec::<OsString>::new());
        // No sidecar outlives its name.
        assert_eq!(raw_names(&f.stored(&f.root(), "d")), ["warpcrypt.dir"]);
        f.vault.rmdir_name(&f.root(), OsStr::new("d")).unwrap();
    }
}

#[test]
fn every_kind_of_node_is_renamed_between_the_short_form_and_the_long_one() {
    for mode in [NameMode::Encrypted, NameMode::EncryptedShort] {
        let [short, long] = [mode.short_max(), mode.short_max() + 1];
        for (from, to) in [(short, short), (short, long), (long, short), (long, long)] {
            let f = Fixture::with(mode);
            let root = f.root();
            let name = |letter: &str, len| letter.repeat(len);
            f.touch(&root, name("f", from)).unwrap();
            let (file, _) = f.vault.lookup(&root, OsStr::new(&name("f", from))).unwrap();
            f.vault.link(Target::Entry(&root, &file), &root, OsStr::new(&name("h", to))).unwrap();
            let target = name("t", long);
            f.vault.symlink(&root, OsStr::new(&name("l", from)), OsStr::new(&target), node(0o777)).unwrap();
            f.touch(&f.mkdir(&root, &name("d", from)), name("i", from)).unwrap();
            let ino = f.ino(&root, name("f", from));
            for (old, new) in [("f", "F"), ("l", "L"), ("d", "D")] {
                let (old, new) = (name(old, from), name(new, to));
                let [old, new] = [&old, &new].map(|name| (&*root, OsStr::new(name)));
                f.vault.rename_name(old, new, RenameMode::NoReplace).unwrap();
            }

            let f = f.reopen();
            let root = f.root();
            let names = ["D", "F", "L", "h"].map(|letter| OsString::from(name(letter, to)));
            assert_eq!(f.names(&root), names);
            assert_eq!((f.ino(&root, name("F", to)), f.ino(&root, name("h", to))), (ino, ino));
            let (link, _) = f.vault.lookup(&root, OsStr::new(&name("L", to))).unwrap();
            assert_eq!(f.vault.readlink(&root, &link).unwrap(), *target);
            let (stored, _) = f.vault.lookup(&root, OsStr::new(&name("D", to))).unwrap();
            assert_eq!(f.names(&f.vault.open_dir(&root, &stored).unwrap()), [name("i", from).as_str()]);
            let sidecars = |dir: &Path| {
                let ends = |name: &OsString| name.as_bytes().ends_with(SIDECAR.as_bytes());
                raw_names(dir).into_iter().filter(ends).count()
            };
            assert_eq!(sidecars(f.dir.path()), if to == long { names.len() } else { 0 }, "{mode:?}");
            for letter in ["F", "L", "h"] {
                f.vault.unlink_name(&root, OsStr::new(&name(letter, to))).unwrap();
            }
            assert_eq!(sidecars(f.dir.path()), usize::from(to == long), "{mode:?}");
        }
    }
}

#[test]
fn names_longer_than_any_that_the_vault_writes_are_strays() {
    for (mode, damaged, strays) in [(NameMode::Encrypted, 3, 3), (NameMode::EncryptedShort, 1, 5)] {
        let f = Fixture::with(mode);
        let name = "n".repeat(mode.short_max());
        let dir = f.mkdir(&f.root(), "d");
        f.touch(&dir, &name).unwrap();
        let store = f.stored(&f.root(), "d");
        let copied = f.stored(&dir, &name).into_os_string().into_string().unwrap() + "0123456789";
        std::fs::write(copied, "").unwrap();
        for len in [127, 128, 129, 150, 235, 236] {
            std::fs::write(store.join("A".repeat(len)), "").unwrap();
        }
        let contents = f.vault.inspect_dir(&dir).unwrap();
        assert_eq!((contents.damaged.len(), contents.strays.len()), (damaged, strays + 1), "{mode:?}");
        let is_copy = |origin: &Origin| matches!(origin, Origin::CopyOf(of) if *of == *name);
        assert_eq!(contents.strays.iter().filter(|(_, origin)| is_copy(origin)).count(), 1, "{mode:?}");
        assert_eq!(f.names(&dir), [OsString::from(&name)]);
        assert_eq!(f.vault.left_out(), damaged, "{mode:?}");
    }
}

#[test]
fn nothing_of_a_name_is_seen_in_the_store() {
    let f = Fixture::new();
    let dir = f.mkdir(&f.root(), "visible-marker");
    f.touch(&dir, "visible-marker").unwrap();
    f.touch(&dir, "visible-marker".repeat(16)).unwrap();
    let inner = f.stored(&f.root(), "visible-marker");
    for name in raw_names(f.dir.path()).into_iter().chain(raw_names(&inner)) {
        assert!(!name.as_bytes().windows(6).any(|w| w == b"marker"), "{name:?}");
    }
    // The same name is stored differently in another directory.
    assert_ne!(f.stored(&dir, "visible-marker").file_name(), inner.file_name());
}

#[test]
fn plain_names_stay_and_reserved_ones_are_kept_apart() {
    let f = Fixture::with(NameMode::Plain);
    let names = ["hello", "warpcrypt.json", "warpcrypt.tmp.x", "warpcrypt.plain.y", "warpcrypt.dir"];
    for name in names {
        f.touch(&f.root(), name).unwrap();
    }
    let f = f.reopen();
    let mut expected: Vec<OsString> = names.iter().map(OsString::from).collect();
    expected.sort();
    assert_eq!(f.names(&f.root()), expected);
    assert!(f.dir.path().join("hello").exists());
    for name in names {
        f.vault.unlink_name(&f.root(), OsStr::new(name)).unwrap();
    }
    f.reopen();
}

#[test]
fn a_directory_is_empty_although_it_holds_left_overs() {
    let f = Fixture::new();
    f.mkdir(&f.root(), "d");
    let path = f.stored(&f.root(), "d");
    std::fs::write(path.join("warpcrypt.tmp.1"), b"").unwrap();
    std::fs::create_dir(path.join("warpcrypt.tmp.2")).unwrap();
    std::fs::write(path.join("warpcrypt.tmp.2/warpcrypt.dir"), b"x").unwrap();
    std::fs::write(path.join(format!("warpcrypt.long.{}.name", "A".repeat(43))), b"x").unwrap();
    f.vault.rmdir_name(&f.root(), OsStr::new("d")).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_directory_with_anything_in_it_stays_as_it_is() {
    let f = Fixture::new();
    let dir = f.mkdir(&f.root(), "d");
    let path = f.stored(&f.root(), "d");
    let id = std::fs::read(path.join("warpcrypt.dir")).unwrap();
    for name in ["short".to_owned(), "long".repeat(60)] {
        f.touch(&dir, &name).unwrap();
        assert_eq!(errno(f.vault.rmdir_name(&f.root(), OsStr::new("d"))), Some(Errno::NOTEMPTY));
        assert_eq!(std::fs::read(path.join("warpcrypt.dir")).unwrap(), id);
        assert_eq!(f.names(&dir), [OsString::from(&name)]);
        f.vault.unlink_name(&dir, OsStr::new(&name)).unwrap();
    }
    // A foreign file with a reserved name belongs to somebody, so it is not removed with the directory.
    // Nor is a copy of a sidecar.
    let copy = format!("warpcrypt.long.{}.sync-conflict-20260101-120000-ABCDEFG.name", "A".repeat(43));
    for name in ["warpcrypt.json", "warpcrypt.long.name", &copy] {
        std::fs::write(path.join(name), b"x").unwrap();
        assert_eq!(errno(f.vault.rmdir_name(&f.root(), OsStr::new("d"))), Some(Errno::NOTEMPTY), "{name}");
        assert_eq!(std::fs::read(path.join("warpcrypt.dir")).unwrap(), id);
        std::fs::remove_file(path.join(name)).unwrap();
    }
    f.vault.rmdir_name(&f.root(), OsStr::new("d")).unwrap();
}

#[test]
fn removal_that_fails_puts_the_id_back() {
    let f = Fixture::new();
    let dir = f.mkdir(&f.root(), "d");
    let path = f.stored(&f.root(), "d");
    let id = std::fs::read(path.join("warpcrypt.dir")).unwrap();
    let stored = f.vault.lookup(&f.root(), OsStr::new("d")).unwrap().0;
    let place = f.vault.place(&f.root(), OsStr::new("d")).unwrap();
    let (root, again) = (f.root(), Dir::new(f.root().store.open_dir(&stored.0).unwrap(), None));
    let result = f.vault.take_away((&root, &place), (&again, None), || {
        // Another thread adds a name first.
        f.touch(&dir, "new").unwrap();
        root.store.rmdir(&stored.0)
    });
    assert_eq!(errno(result), Some(Errno::NOTEMPTY));
    assert_eq!(std::fs::read(path.join("warpcrypt.dir")).unwrap(), id);
    assert_eq!(f.names(&f.vault.open_dir(&f.root(), &stored).unwrap()), ["new"]);
}

#[test]
fn a_directory_whose_id_cannot_go_back_takes_no_names_until_it_does() {
    let f = Fixture::new();
    let dir = f.mkdir(&f.root(), "d");
    let id = f.stored(&f.root(), "d").join("warpcrypt.dir");
    let stored = f.vault.lookup(&f.root(), OsStr::new("d")).unwrap().0;
    let place = f.vault.place(&f.root(), OsStr::new("d")).unwrap();
    let (root, again) = (f.root(), Dir::new(f.root().store.open_dir(&stored.0).unwrap(), None));
    let result = f.vault.take_away((&root, &place), (&again, None), || {
        std::fs::create_dir(&id).unwrap();
        Err(Errno::IO.into())
    });
    assert_eq!(errno(result), Some(Errno::IO));
    f.touch(&dir, "new").unwrap_err();
    f.vault.mkdir(&dir, OsStr::new("new"), node(0o755)).unwrap_err();
    f.touch(&root, "another").unwrap();
    std::fs::remove_dir(&id).unwrap();
    f.touch(&dir, "new").unwrap();
    drop(again);
    let f = f.reopen();
    assert_eq!(f.names(&f.vault.open_dir(&f.root(), &stored).unwrap()), ["new"]);
}

#[test]
fn a_missing_name_is_enoent_everywhere() {
    let f = Fixture::new();
    let (root, name) = (f.root(), OsStr::new("missing"));
    assert_eq!(errno(f.vault.lookup(&root, name)), Some(Errno::NOENT));
    assert_eq!(errno(f.vault.unlink_name(&root, name)), Some(Errno::NOENT));
    assert_eq!(errno(f.vault.rmdir_name(&root, name)), Some(Errno::NOENT));
    let stored = f.vault.place(&root, name).unwrap().stored;
    assert_eq!(errno(f.vault.open_dir(&root, &stored)), Some(Errno::NOENT));
    assert_eq!(errno(f.vault.open_file(&root, &stored, false)), Some(Errno::NOENT));
    assert_eq!(errno(f.vault.stat(Target::Entry(&root, &stored))), Some(Errno::NOENT));
}

#[test]
fn an_unfinished_directory_goes_without_a_trace() {
    let f = Fixture::new();
    f.mkdir(&f.root(), "d");
    let before = raw_names(f.dir.path());
    assert_eq!(errno(f.vault.mkdir(&f.root(), OsStr::new("d"), node(0o755))), Some(Errno::EXIST));
    assert_eq!(raw_names(f.dir.path()), before);
}
