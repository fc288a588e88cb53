//! A vault gets another master key: its content stays the same, and nothing remains under the former
//! key.

use super::{
    users::{as_user, as_user_again, directory, fixture},
    *,
};
use crate::{Begun, OpenError, OpenFile, Rotated, SetAttr, Step, Target};
use content::Time;
use crypto::secret::Secret;
use format::{config::VaultConfig, master_secret::MasterSecret};
use std::collections::BTreeMap;

const LONG: usize = 200;

/// Type, content or target, attributes and modification time of the node at each path.
pub(super) type Everything = BTreeMap<PathBuf, (Kind, Vec<u8>, Vec<(OsString, Vec<u8>)>, Time)>;

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

/// Creates a tree with one node of each type.
pub(super) fn furnish(f: &Fixture) {
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
        // Only root may set attributes of links.
        if rustix::process::geteuid().is_root() {
            set(f, &deep, &name, "trusted.colour", b"red");
        }
    }
    set(f, &root, "small", "user.colour", b"green");
    set(f, &root, "directory", "user.of a directory", b"blue");
    // No store has room for these values.
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

pub(super) fn everything(vault: &Vault) -> Everything {
    let mut all = BTreeMap::new();
    look(vault, &vault.root(), Path::new(""), &mut all);
    all
}

/// Clears the times.
pub(super) fn without_times(mut all: Everything) -> Everything {
    all.values_mut().for_each(|(.., time)| *time = Time { seconds: 0, nanoseconds: 0 });
    all
}

/// Stores everything, and writes a configuration with another master key.
pub(super) fn begin(f: &Fixture) -> (VaultConfig, Secret<32>) {
    f.vault.files().store_all().unwrap();
    begin_at(f.dir.path())
}

pub(super) fn begin_at(path: &Path) -> (VaultConfig, Secret<32>) {
    begin_with(&open(path, true), path)
}

fn begin_with(vault: &Vault, path: &Path) -> (VaultConfig, Secret<32>) {
    let rotated = list_with(vault, path);
    Vault::lock_config(path).unwrap().write(path, &rotated.0).unwrap();
    rotated
}

/// Does everything that precedes writing the new configuration, and returns that.
pub(super) fn list_at(path: &Path) -> (VaultConfig, Secret<32>) {
    list_with(&open(path, true), path)
}

fn list_with(vault: &Vault, path: &Path) -> (VaultConfig, Secret<32>) {
    let mut rotated = prepare_at(path);
    let mut told = Vec::new();
    let begun = vault.list_for_rotation(&mut rotated.0, &rotated.1, &mut |step| {
        told.extend(if let Step::Left(path, reason) = step { Some((path, reason)) } else { None });
        true
    });
    assert_eq!(begun.unwrap(), Begun::Listed, "{told:?}");
    rotated
}

/// Creates another master key, and a configuration that accepts nothing under the present one. Writes
/// neither.
pub(super) fn prepare_at(path: &Path) -> (VaultConfig, Secret<32>) {
    let (config, id, master) = Vault::unlock_config(path, &unlock()).unwrap();
    config.rotate(&master, id, &slot()).unwrap()
}

pub(super) fn rotate(vault: &Vault, mut steps: usize) -> Rotated {
    let mut go_on = |step| {
        if let Step::Left(path, reason) = step {
            println!("{}: {reason}", path.display());
        }
        steps = steps.saturating_sub(1);
        steps > 0
    };
    vault.rotate(&mut go_on).unwrap()
}

/// Checks that the configuration has forgotten the former key, and that no internal file is left over.
fn nothing_is_left_over(f: &Fixture) {
    assert!(!Vault::read_config(f.dir.path()).unwrap().is_rotating());
    let mut directories = vec![f.dir.path().to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap());
        for (path, name) in entries.map(|e| (e.path(), e.file_name().into_string().unwrap())) {
            assert!(
                !["warpcrypt.tmp.", "warpcrypt.rewrite.", "warpcrypt.former."]
                    .iter()
                    .any(|own| name.starts_with(own)),
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
pub(super) fn everything_stays_what_it_was() {
    for names in NameMode::ALL {
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

/// Copies the content of a directory, including links as such.
pub(super) fn copy_tree(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status();
    assert!(copied.unwrap().success());
}

/// An attacker who can write to the store plants an entry whose name is under no key, to keep the former
/// key in use, and later a file written with that key.
#[test]
fn an_entry_under_no_key_does_not_keep_the_former_one() {
    let f = Fixture::new();
    furnish(&f);
    let before = without_times(everything(&f.vault));
    f.vault.shut_down().unwrap();
    let copy = tempfile::tempdir().unwrap();
    copy_tree(f.dir.path(), copy.path());
    let planted = |name: &str| f.dir.path().join(name.repeat(43));
    std::fs::write(planted("A"), [0x5a; 5000]).unwrap();
    std::fs::create_dir(planted("B")).unwrap();
    std::fs::write(planted("B").join("C".repeat(43)), [0x5a; 5000]).unwrap();
    let f = f.reopen();
    let (config, master) = begin(&f);
    f.vault.take_up(&config, &master).unwrap();
    assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Whole { aside: 0 });
    assert_eq!(without_times(everything(&f.vault)), before);

    let forger = open(copy.path(), false);
    let (name, _) = forger.lookup(&forger.root(), OsStr::new("small")).unwrap();
    let forged = forger.open_file(&forger.root(), &name, true).unwrap();
    forged.file.write(0, b"forged!").unwrap();
    forger.files().release(forged);
    forger.shut_down().unwrap();
    let place = f.stored(&f.root(), "small");
    f.vault.shut_down().unwrap();
    std::fs::copy(copy.path().join(&name.0), place).unwrap();
    let f = f.reopen();
    let (name, _) = f.vault.lookup(&f.root(), OsStr::new("small")).unwrap();
    assert!(f.vault.open_file(&f.root(), &name, false).is_err());
}

/// A crash interrupted the rewriting of a file: its records are new, but the rest is not in place.
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
        assert!(open.file.rekey(&|| true).unwrap());
        f.vault.files().release(open);
        let place = f.stored(&f.root(), "small");
        f.vault.shut_down().unwrap();
        let new = std::fs::read(&place).unwrap();
        let (head, rest) = new.split_at(1024);
        std::fs::write(f.dir.path().join("warpcrypt.rewrite.0123456789abcdef01234567"), &new).unwrap();
        let rest = if whole { rest.to_vec() } else { vec![0; rest.len()] };
        std::fs::write(&place, [head, &rest].concat()).unwrap();
        let before = without_times(before);
        let f = f.reopen();
        assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Whole { aside: 0 });
        nothing_is_left_over(&f);
        assert_eq!(without_times(everything(&f.vault)), before);
        assert_eq!(without_times(everything(&f.reopen().vault)), before);
    }
}

/// A walk through the directories does not find such a file. If it got a name, nobody could read it once
/// the former key is forgotten.
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

/// Creates a file with an attribute.
fn make(vault: &Vault, dir: &Dir, name: &str) -> StoredName {
    let (stored, _, file) = vault.create(dir, OsStr::new(name), node(0o644)).unwrap();
    file.file.write(0, b"content").unwrap();
    vault.files().flush_at_close(&file).unwrap();
    vault.files().release(file);
    vault.set_xattr(Target::Entry(dir, &stored), OsStr::new("user.x"), b"v", false, false).unwrap();
    stored
}

fn chmod(vault: &Vault, dir: &Dir, name: &StoredName, mode: u32) {
    vault.set_attr(Target::Entry(dir, name), &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
}

/// Linux requires write permission for a file to set `user.` attributes, even from its owner.
#[test]
fn attributes_of_what_its_owner_may_not_write_are_renewed() {
    as_user(|path| {
        let vault = fixture(path);
        let (stored, _) = vault.mkdir(&vault.root(), OsStr::new("d"), node(0o755)).unwrap();
        let inner = vault.open_dir(&vault.root(), &stored).unwrap();
        for dir in [&vault.root(), &inner] {
            for name in ["0", "200", "444"] {
                make(&vault, dir, name);
            }
        }
        let before = everything(&vault);
        let chmod_files = |mode: &dyn Fn(&str) -> u32| {
            let d = vault.lookup(&vault.root(), OsStr::new("d")).unwrap().0;
            for dir in [&vault.root(), &vault.open_dir(&vault.root(), &d).unwrap()] {
                for name in ["0", "200", "444"] {
                    let stored = vault.lookup(dir, OsStr::new(name)).unwrap().0;
                    chmod(&vault, dir, &stored, mode(name));
                }
            }
        };
        chmod_files(&|name| u32::from_str_radix(name, 8).unwrap());
        chmod(&vault, &vault.root(), &stored, 0o500);
        vault.files().store_all().unwrap();
        let (config, master) = begin_with(&vault, path);
        vault.take_up(&config, &master).unwrap();
        assert_eq!(rotate(&vault, usize::MAX), Rotated::Whole { aside: 0 });
        chmod_files(&|_| 0o644);
        assert_eq!(everything(&vault), before);
        vault.shut_down().unwrap();
        drop(vault);
        assert_eq!(everything(&open(path, true)), before);
    });
}

/// A file of another user, whose attributes the vault's owner can read but not write.
#[test]
fn what_the_store_does_not_let_be_renewed_stays_usable() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: another user's files need root");
        return;
    }
    for locked in [false, true] {
        let place = directory();
        let path = place.path();
        let (before, others) = as_user_again(|| {
            let vault = fixture(path);
            let root = vault.root();
            let (stored, _) = vault.mkdir(&root, OsStr::new("d"), node(0o755)).unwrap();
            let dir = vault.open_dir(&root, &stored).unwrap();
            let mut others = Vec::new();
            for dir in [&root, &dir] {
                let stored = make(&vault, dir, "other's");
                others.push(dir.path_in_store(&stored.0));
                make(&vault, dir, "own");
                make(&vault, dir, &"l".repeat(LONG));
                vault.symlink(dir, OsStr::new("link"), OsStr::new("own"), node(0o777)).unwrap();
            }
            let before = everything(&vault);
            vault.shut_down().unwrap();
            (before, others)
        });
        others.iter().for_each(|path| std::os::unix::fs::chown(path, Some(0), Some(0)).unwrap());
        let (after, others) = as_user_again(|| {
            let vault = open(path, false);
            if locked {
                vault.put_away().unwrap();
            }
            let (config, master) = begin_at(path);
            match locked {
                true => vault.bring_back(master.expose()).unwrap(),
                false => vault.take_up(&config, &master).unwrap(),
            }
            assert_eq!(everything(&vault), before);
            vault.shut_down().unwrap();
            drop(vault);
            let vault = open(path, false);
            assert_eq!(everything(&vault), before, "again");
            use_what_is_left(&vault);
            let mut told = Vec::new();
            let rotated = vault.rotate(&mut |step| {
                if let Step::Left(path, _) = step {
                    told.push(path);
                }
                true
            });
            assert_eq!(rotated.unwrap(), Rotated::Left);
            assert!(others.iter().all(|path| told.contains(path)), "{told:?} {others:?}");
            let after = everything(&vault);
            let root = vault.root();
            let dir = vault.open_dir(&root, &vault.lookup(&root, OsStr::new("d")).unwrap().0).unwrap();
            let place = |dir: &Dir| dir.path_in_store(&vault.lookup(dir, OsStr::new("other's")).unwrap().0.0);
            let others = [place(&root), place(&dir)];
            vault.shut_down().unwrap();
            (after, others)
        });
        let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path).unwrap());
        others.iter().for_each(|path| std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap());
        as_user_again(|| {
            let vault = open(path, false);
            assert!(vault.is_rotating());
            assert_eq!(rotate(&vault, usize::MAX), Rotated::Whole { aside: 0 });
            assert_eq!(everything(&vault), after);
            vault.shut_down().unwrap();
            drop(vault);
            assert_eq!(everything(&open(path, false)), after);
        });
    }
}

/// Uses names, attributes and moves while directories are not renewed.
fn use_what_is_left(vault: &Vault) {
    let root = vault.root();
    let inner = vault.open_dir(&root, &vault.lookup(&root, OsStr::new("d")).unwrap().0).unwrap();
    let set = |name: &str, value| {
        let stored = vault.lookup(&root, OsStr::new(name)).unwrap().0;
        vault.set_xattr(Target::Entry(&root, &stored), OsStr::new("user.x"), value, false, true)
    };
    let get = |dir: &Dir, name: &str| {
        let stored = vault.lookup(dir, OsStr::new(name)).unwrap().0;
        vault.get_xattr(Target::Entry(dir, &stored), OsStr::new("user.x")).unwrap()
    };
    let rename = |from: (&Dir, &str), to: (&Dir, &str)| {
        let mode = crate::RenameMode::Replace;
        vault.rename_name((from.0, OsStr::new(from.1)), (to.0, OsStr::new(to.1)), mode).map(drop)
    };
    assert_eq!(errno(vault.mkdir(&root, OsStr::new("own"), node(0o755))), Some(Errno::EXIST));
    make(vault, &root, "new");
    set("own", b"w").unwrap();
    assert_eq!(get(&root, "own"), b"w");
    assert_eq!(errno(set("other's", b"w")), Some(Errno::ACCESS));
    assert_eq!(get(&root, "other's"), b"v");
    // Lookups under the former key would fail.
    assert_eq!(errno(rename((&root, "other's"), (&inner, "moved"))), Some(Errno::XDEV));
    rename((&root, "other's"), (&root, "renamed")).unwrap();
    rename((&root, "renamed"), (&root, "other's")).unwrap();
    rename((&root, "own"), (&inner, "moved")).unwrap();
    assert_eq!(get(&inner, "moved"), b"w");
    let long = "l".repeat(LONG);
    rename((&root, &long), (&inner, &long)).unwrap();
    vault.unlink_name(&inner, OsStr::new(&long)).unwrap();
    assert!(vault.lookup(&inner, OsStr::new(&long)).is_err());
    vault.unlink_name(&root, OsStr::new("link")).unwrap();
    make(vault, &root, "link");
}

#[test]
fn a_repair_leaves_ids_alone_that_are_under_the_former_key_or_cannot_be_read() {
    let f = Fixture::new();
    furnish(&f);
    let before = everything(&f.vault);
    let (config, master) = begin(&f);
    f.vault.take_up(&config, &master).unwrap();
    let aside = f.vault.aside().unwrap();
    let (stored, _) = f.vault.lookup(&f.root(), OsStr::new("directory")).unwrap();
    let id = f.stored(&f.root(), "directory").join("warpcrypt.dir");
    let content = std::fs::read(&id).unwrap();
    let repair = || f.vault.repair_dir_id(&f.root(), &stored, &aside).map(drop);
    assert!(matches!(repair(), Err(Error::Invalid(_))));
    assert_eq!(std::fs::read(&id).unwrap(), content);
    let elsewhere = f.dir.path().join("elsewhere");
    std::fs::rename(&id, &elsewhere).unwrap();
    std::fs::create_dir(&id).unwrap();
    assert!(matches!(repair(), Err(Error::Store(_))));
    std::fs::remove_dir(&id).unwrap();
    std::fs::rename(&elsewhere, &id).unwrap();
    assert_eq!(without_times(everything(&f.vault)), without_times(before));
}

/// The damaged id belongs to a directory that is not renewed yet, whose content is all under the former
/// key.
#[test]
fn a_repaired_directory_is_renewed() {
    let f = Fixture::new();
    furnish(&f);
    let names = everything(&f.vault).into_keys().collect::<Vec<_>>();
    let (config, master) = begin(&f);
    f.vault.take_up(&config, &master).unwrap();
    let (stored, _) = f.vault.lookup(&f.root(), OsStr::new("directory")).unwrap();
    let id = f.stored(&f.root(), "directory").join("warpcrypt.dir");
    let mut content = std::fs::read(&id).unwrap();
    content[20] ^= 1;
    std::fs::write(&id, content).unwrap();
    assert!(matches!(f.vault.open_dir(&f.root(), &stored), Err(Error::Damaged(_))));
    f.vault.repair_dir_id(&f.root(), &stored, &f.vault.aside().unwrap()).unwrap();
    assert_eq!(everything(&f.vault).into_keys().collect::<Vec<_>>(), names);
    assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Whole { aside: 1 });
    assert_eq!(everything(&f.reopen().vault).into_keys().collect::<Vec<_>>(), names);
}

#[test]
fn a_master_secret_does_not_lose_the_former_key() {
    let f = Fixture::new();
    furnish(&f);
    let before = everything(&f.vault);
    let (former_config, _, former) = Vault::unlock_config(f.dir.path(), &unlock()).unwrap();
    let (config, master) = begin(&f);
    let dir = f.close();
    // The root is still under the former key, but that key opens nothing that has been renewed.
    let restored = Vault::lock_lost_config(dir.path()).unwrap().restore(dir.path(), &former_config, &former);
    assert!(matches!(restored, Err(OpenError::OtherVault(_))));
    let secret = MasterSecret::of(&config, master).unwrap();
    let left = Vault::authentic_config(dir.path(), &secret.master).unwrap();
    let config = secret.configure(&slot(), 1_000_000, left.as_ref()).unwrap();
    Vault::lock_lost_config(dir.path()).unwrap().restore(dir.path(), &config, &secret.master).unwrap();
    assert!(Vault::read_config(dir.path()).unwrap().is_rotating());
    assert_eq!(everything(&open(dir.path(), true)), before);
    let vault = open(dir.path(), false);
    assert_eq!(rotate(&vault, usize::MAX), Rotated::Whole { aside: 0 });
    assert_eq!(everything(&vault), before);
}

/// If somebody restores an older configuration by hand, the root does not authenticate with it.
#[test]
fn a_repair_with_an_older_configuration_costs_no_name() {
    let f = Fixture::new();
    furnish(&f);
    let configuration = |f: &Path| ["warpcrypt.json", "warpcrypt.json.copy"].map(|name| f.join(name));
    let read = |dir: &Path| configuration(dir).map(|path| std::fs::read(path).unwrap());
    let put = |dir: &Path, content: [Vec<u8>; 2]| {
        configuration(dir)
            .into_iter()
            .zip(content)
            .for_each(|(path, text)| std::fs::write(path, text).unwrap());
    };
    let old = read(f.dir.path());
    let (config, master) = begin(&f);
    f.vault.take_up(&config, &master).unwrap();
    rotate(&f.vault, usize::MAX);
    let before = everything(&f.vault);
    let dir = f.close();
    let newest = read(dir.path());
    put(dir.path(), old);
    let id = dir.path().join("warpcrypt.dir");
    let content = std::fs::read(&id).unwrap();
    assert!(matches!(
        Vault::open(dir.path(), &unlock(), OpenOptions::default()),
        Err(OpenError::DamagedRoot(_))
    ));
    let repaired = Vault::repair_root_id(dir.path(), &unlock());
    assert!(matches!(repaired, Err(OpenError::OtherVault(_))), "{:?}", repaired.map_err(|e| e.to_string()));
    assert_eq!(std::fs::read(&id).unwrap(), content);
    put(dir.path(), newest);
    assert_eq!(everything(&open(dir.path(), true)), before);
    // With the right configuration a damaged id is repaired even though no name can be opened any more:
    // the files show that the root is the vault's.
    let mut damaged = content;
    damaged[3] ^= 1;
    std::fs::write(&id, damaged).unwrap();
    assert!(Vault::repair_root_id(dir.path(), &unlock()).unwrap());
    let vault = open(dir.path(), true);
    assert_eq!(
        vault.inspect_dir(&vault.root()).unwrap().damaged.len(),
        before.keys().filter(|p| p.components().count() == 1).count()
    );
}
