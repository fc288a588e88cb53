//! A vault gets another master key: everything in it stays what it was, and nothing is under the former one.

use super::*;
use crate::{
    crypto::secret::Secret,
    vault::{OpenFile, Rotated, Step, Target, Time},
};
use std::collections::BTreeMap;

const LONG: usize = 200;

/// What stands at each path: type, content or target, attributes, time of the last change.
type Everything = BTreeMap<PathBuf, (Kind, Vec<u8>, Vec<(OsString, Vec<u8>)>, Time)>;

fn write(f: &Fixture, dir: &Dir, name: &str, content: &[u8]) {
    f.touch(dir, name).unwrap();
    let (stored, _) = f.vault.lookup(dir, OsStr::new(name)).unwrap();
    let open = f.vault.open_file(dir, &stored, true).unwrap();
    open.file.write(0, content).unwrap();
    f.vault.files().flush_at_close(&open).unwrap();
    f.vault.files().release(open);
}

fn set(f: &Fixture, dir: &Dir, name: &str, attribute: &str, value: &[u8]) {
    let (stored, _) = f.vault.lookup(dir, OsStr::new(name)).unwrap();
    let target = Target::Entry(dir, &stored);
    f.vault.set_xattr(target, OsStr::new(attribute), value, false, false).unwrap();
}

/// A tree with one of each.
fn furnish(f: &Fixture) {
    let root = f.root();
    write(f, &root, "small", b"content");
    write(f, &root, &"l".repeat(LONG), &[7; 9000]);
    f.touch(&root, "empty").unwrap();
    let dir = f.mkdir(&root, "directory");
    let deep = f.mkdir(&dir, &"d".repeat(LONG));
    write(f, &deep, "large", &vec![3; 300_000]);
    for target in ["elsewhere", &"far/".repeat(900)] {
        let name = format!("link {}", target.len());
        f.vault.symlink(&deep, OsStr::new(&name), OsStr::new(target), node(0o777)).unwrap();
        // Nobody else may give attributes to links.
        if rustix::process::geteuid().is_root() {
            set(f, &deep, &name, "trusted.colour", b"red");
        }
    }
    set(f, &root, "small", "user.colour", b"green");
    set(f, &root, "directory", "user.of a directory", b"blue");
    // No store has room for these.
    set(f, &root, "small", "user.long", &[9; 65_536]);
    set(f, &root, "directory", "user.long", &[8; 65_536]);
    let (stored, _) = f.vault.lookup(&root, OsStr::new("small")).unwrap();
    f.vault.link(Target::Entry(&root, &stored), &deep, OsStr::new("other name")).unwrap();
    f.vault.mknod(&deep, OsStr::new("pipe"), node(0o600), Kind::Fifo, 0).unwrap();
}

fn look(vault: &Vault, dir: &Arc<Dir>, path: &Path, all: &mut Everything) {
    for entry in vault.list(dir).unwrap() {
        let target = Target::Entry(dir, &entry.stored);
        let content = match entry.kind {
            Kind::File => {
                let open = vault.open_file(dir, &entry.stored, false).unwrap();
                let mut content = vec![0; open.file.size() as usize];
                open.file.read(0, &mut content).unwrap();
                content
            }
            Kind::Symlink => vault.readlink(dir, &entry.stored).unwrap().into_encoded_bytes(),
            _ => Vec::new(),
        };
        let names = vault.list_xattr(target).unwrap();
        let mut attributes: Vec<_> =
            names.into_iter().map(|n| (n.clone(), vault.get_xattr(target, &n).unwrap())).collect();
        attributes.sort();
        let time = vault.stat(target).unwrap().mtime;
        all.insert(path.join(&entry.name), (entry.kind, content, attributes, time));
        if entry.kind == Kind::Dir {
            look(vault, &vault.open_dir(dir, &entry.stored).unwrap(), &path.join(&entry.name), all);
        }
    }
}

fn everything(vault: &Vault) -> Everything {
    let mut all = BTreeMap::new();
    look(vault, &vault.root(), Path::new(""), &mut all);
    all
}

/// Writes the configuration with another master key.
fn begin(f: &Fixture) -> (crate::format::config::VaultConfig, Secret<32>) {
    let (config, id, master) = Vault::unlock_config(f.dir.path(), &unlock()).unwrap();
    let rotated = config.rotate(&master, id, &slot()).unwrap();
    Vault::write_config(f.dir.path(), &rotated.0).unwrap();
    rotated
}

fn rotate(vault: &Vault, mut steps: usize) -> Rotated {
    let mut go_on = |step| {
        if let Step::Left(path, reason) = step {
            println!("{}: {reason}", path.display());
        }
        steps = steps.saturating_sub(1);
        steps > 0
    };
    vault.rotate(&mut go_on).unwrap()
}

/// The configuration has forgotten the former key, and no file of the vault's own is left over.
fn nothing_is_left_over(f: &Fixture) {
    assert!(!Vault::read_config(f.dir.path()).unwrap().is_rotating());
    let mut directories = vec![f.dir.path().to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap());
        for (path, name) in entries.map(|e| (e.path(), e.file_name().into_string().unwrap())) {
            assert!(
                !["warpcrypt.tmp.", "warpcrypt.rewrite."].iter().any(|own| name.starts_with(own)),
                "{name}"
            );
            if let Some(long) = name.strip_suffix(".name") {
                assert!(directory.join(long).exists(), "{name}");
            }
            if path.is_dir() && !path.is_symlink() {
                directories.push(path);
            }
        }
    }
    let (lists, ownerless) = f.vault.ownerless_lists().unwrap().unwrap();
    assert_eq!((lists.store.list().unwrap().len(), ownerless), (2, vec![]));
}

#[test]
fn everything_stays_what_it_was() {
    for names in [NameMode::Encrypted, NameMode::Plain] {
        let f = Fixture::with(names);
        furnish(&f);
        let before = everything(&f.vault);
        let (config, master) = begin(&f);
        f.vault.take_up(&config, &master).unwrap();
        assert_eq!(everything(&f.vault), before);
        assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Whole { aside: 0 });
        assert_eq!(everything(&f.vault), before);
        nothing_is_left_over(&f);
        let f = f.reopen();
        assert!(!f.vault.is_rotating());
        assert_eq!(everything(&f.vault), before);
        assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Whole { aside: 0 });
    }
}

#[test]
fn names_of_both_keys_are_read_where_nothing_may_be_written() {
    let f = Fixture::new();
    furnish(&f);
    let before = everything(&f.vault);
    begin(&f);
    let dir = f.close();
    for steps in 1.. {
        assert_eq!(everything(&open(dir.path(), true)), before, "before round {steps}");
        let vault = open(dir.path(), false);
        let rotated = rotate(&vault, steps);
        vault.shut_down().unwrap();
        if rotated != Rotated::Stopped {
            assert_eq!(rotated, Rotated::Whole { aside: 0 });
            drop(vault);
            assert_eq!(everything(&open(dir.path(), true)), before);
            return assert!(steps > 2);
        }
    }
}

#[test]
fn what_is_damaged_keeps_the_former_key() {
    let f = Fixture::new();
    furnish(&f);
    let place = f.stored(&f.root(), "small");
    f.vault.shut_down().unwrap();
    let mut bytes = std::fs::read(&place).unwrap();
    bytes[4096] ^= 1;
    std::fs::write(&place, &bytes).unwrap();
    let f = f.reopen();
    let (config, master) = begin(&f);
    f.vault.take_up(&config, &master).unwrap();
    assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Left);
    let f = f.reopen();
    assert!(f.vault.is_rotating());
    f.vault.unlink(&f.root(), &f.vault.find(&f.root(), OsStr::new("small")).unwrap()).unwrap();
    let deep = f.vault.lookup(&f.root(), OsStr::new("directory")).unwrap().0;
    let deep = f.vault.open_dir(&f.root(), &deep).unwrap();
    let name = "d".repeat(LONG);
    let deep = f.vault.open_dir(&deep, &f.vault.lookup(&deep, OsStr::new(&name)).unwrap().0).unwrap();
    f.vault.unlink(&deep, &f.vault.find(&deep, OsStr::new("other name")).unwrap()).unwrap();
    assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Whole { aside: 0 });
}

/// A crash cut the rewriting of a file short: its records are new, the rest is not in place.
#[test]
fn an_unfinished_file_is_finished_before_the_rotation_ends() {
    for whole in [false, true] {
        let f = Fixture::new();
        furnish(&f);
        let before = everything(&f.vault);
        begin(&f);
        let f = f.reopen();
        let (name, _) = f.vault.lookup(&f.root(), OsStr::new("small")).unwrap();
        let open = f.vault.open_file(&f.root(), &name, true).unwrap();
        assert!(open.file.rekey().unwrap());
        f.vault.files().release(open);
        let place = f.stored(&f.root(), "small");
        f.vault.shut_down().unwrap();
        let new = std::fs::read(&place).unwrap();
        let (head, rest) = new.split_at(1024);
        std::fs::write(f.dir.path().join("warpcrypt.rewrite.0123456789abcdef01234567"), &new).unwrap();
        let rest = if whole { rest.to_vec() } else { vec![0; rest.len()] };
        std::fs::write(&place, [head, &rest].concat()).unwrap();
        let without_times = |all: Everything| all.into_iter().map(|(path, (k, c, a, _))| (path, (k, c, a)));
        let before: Vec<_> = without_times(before).collect();
        let f = f.reopen();
        assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Whole { aside: 0 });
        nothing_is_left_over(&f);
        assert_eq!(without_times(everything(&f.vault)).collect::<Vec<_>>(), before);
        assert_eq!(without_times(everything(&f.reopen().vault)).collect::<Vec<_>>(), before);
    }
}

/// Whoever goes through the directories does not meet it. Under a name it could be read by nobody once the key is forgotten.
#[test]
fn a_file_that_had_no_name_during_a_rotation_gets_none() {
    let f = Fixture::new();
    let make = || {
        let (_, file) = f.vault.create_nameless(&f.root(), node(0o600)).unwrap();
        file.file.write(0, b"content").unwrap();
        f.vault.sync_file(&file).unwrap();
        file
    };
    let (old, unwritten) = (make(), f.vault.create_nameless(&f.root(), node(0o600)).unwrap().1);
    let (config, master) = begin(&f);
    f.vault.take_up(&config, &master).unwrap();
    let link = |file: &OpenFile, name| f.vault.link(Target::File(file), &f.root(), OsStr::new(name));
    assert_eq!(errno(link(&old, "old")), Some(Errno::NOENT));
    link(&make(), "meanwhile").unwrap();
    assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Whole { aside: 0 });
    assert_eq!(errno(link(&old, "old")), Some(Errno::NOENT));
    unwritten.file.write(0, b"content").unwrap();
    link(&unwritten, "unwritten").unwrap();
    link(&make(), "new").unwrap();
    drop((old, unwritten));
    let f = f.reopen();
    let read: Vec<_> = everything(&f.vault).into_values().map(|(_, content, ..)| content).collect();
    assert_eq!(read, vec![b"content".to_vec(); 3]);
}
