//! Attacks by somebody who knows a vault's former master key and can write to the store.

use super::{
    rotate::{begin, copy_tree, everything, furnish, list_at, prepare_at, rotate, without_times},
    *,
};
use crate::{Begun, OpenError, Rotated, Step};
use format::dir_id::{DirId, DirIdKey};

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Returns a file's content, if it can be read.
pub(super) fn content_of(vault: &Vault, name: &str) -> Result<Vec<u8>> {
    let stored = vault.lookup(&vault.root(), OsStr::new(name))?.0;
    let open = vault.open_file(&vault.root(), &stored, false)?;
    let mut content = vec![0; open.file.size() as usize];
    let read = open.file.read(0, &mut content);
    vault.files().release(open);
    read.map(|_| content)
}

/// A damaged file keeps the former key in use. Anything written with that key after the rotation began
/// is refused nevertheless.
#[test]
fn a_rotation_that_is_held_open_accepts_no_forgery() {
    let f = Fixture::new();
    furnish(&f);
    let small = f.stored(&f.root(), "small");
    flip(&f.stored(&f.root(), "l".repeat(200)), 4096);
    f.vault.shut_down().unwrap();
    let copy = tempfile::tempdir().unwrap();
    copy_tree(f.dir.path(), copy.path());
    let f = f.reopen();
    let (config, master) = begin(&f);
    f.vault.take_up(&config, &master).unwrap();
    assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Left);
    assert_eq!(content_of(&f.vault, "small").unwrap(), b"content");
    let renewed = f.stored(&f.root(), "small");
    let live = f.close();

    let forger = open(copy.path(), false);
    let forged = forger.lookup(&forger.root(), OsStr::new("small")).unwrap().0;
    let file = forger.open_file(&forger.root(), &forged, true).unwrap();
    file.file.write(0, b"forged!").unwrap();
    forger.files().release(file);
    forger.shut_down().unwrap();
    assert_ne!(small, renewed);
    std::fs::copy(copy.path().join(&forged.0), &renewed).unwrap();

    for read_only in [true, false] {
        let vault = open(live.path(), read_only);
        assert!(content_of(&vault, "small").is_err(), "{:?}", content_of(&vault, "small"));
        if !read_only {
            rotate(&vault, usize::MAX);
            assert!(content_of(&vault, "small").is_err());
        }
        vault.shut_down().unwrap();
    }
}

/// The unchanged password opens a slot that was wrapped before the rotation.
#[test]
fn a_forged_configuration_and_root_replace_nothing() {
    for jump in [0, 1 << 40] {
        let f = Fixture::new();
        furnish(&f);
        let (mut forged, _, former) = Vault::unlock_config(f.dir.path(), &unlock()).unwrap();
        let (config, master) = begin(&f);
        f.vault.take_up(&config, &master).unwrap();
        assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Whole { aside: 0 });
        let before = without_times(everything(&f.vault));
        let dir = f.close();
        let place = |name: &str| dir.path().join(name);
        let read = |name: &str| std::fs::read(place(name)).unwrap();
        let (good, id) = (read("warpcrypt.json"), read("warpcrypt.dir"));
        let newest = Vault::read_config(dir.path()).unwrap().generation();
        forged.outdate(&former, newest + jump).unwrap();
        let forged_id = DirIdKey::derive(&former).encode(&DirId::random().unwrap());
        std::fs::write(place("warpcrypt.json.copy"), forged.to_json()).unwrap();
        std::fs::write(place("warpcrypt.dir"), forged_id).unwrap();
        for read_only in [true, false] {
            let options = OpenOptions { read_only, ..OpenOptions::default() };
            let opened = Vault::open(dir.path(), &unlock(), options);
            assert!(matches!(opened, Err(OpenError::TwoHistories(..))), "{jump}");
            assert_eq!(read("warpcrypt.json"), good);
        }
        std::fs::write(place("warpcrypt.dir"), id).unwrap();
        std::fs::write(place("warpcrypt.json.copy"), &good).unwrap();
        assert_eq!(without_times(everything(&open(dir.path(), false))), before);
    }
}

/// The new id is authentic, but it is not the one under which the names are encrypted.
#[test]
fn a_root_of_which_no_name_authenticates_does_not_open() {
    let f = Fixture::new();
    furnish(&f);
    let master = Vault::unlock_config(f.dir.path(), &unlock()).unwrap().2;
    let dir = f.close();
    let id = DirIdKey::derive(&master).encode(&DirId::random().unwrap());
    std::fs::write(dir.path().join("warpcrypt.dir"), id).unwrap();
    assert!(matches!(open(dir.path(), true).require_a_name(), Err(Error::Damaged(_))));
}

/// The list covers names, ids, links and attributes: everything that exists when a rotation begins is
/// accepted, and nothing after that.
#[test]
fn without_its_list_a_rotation_accepts_nothing_and_does_not_end() {
    let f = Fixture::new();
    furnish(&f);
    begin(&f);
    let dir = f.close();
    let list = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let list = list.filter(|path| path.to_str().unwrap().contains("warpcrypt.former.")).collect::<Vec<_>>();
    let [list] = &list[..] else { panic!("{list:?}") };
    let content = std::fs::read(list).unwrap();
    // A rotation that a crash prevented from beginning leaves a list that nothing refers to.
    let left_over = dir.path().join("warpcrypt.former.0123456789abcdef01234567");
    std::fs::write(&left_over, &content).unwrap();
    assert_eq!(content.len() % 4096, 0);
    for damage in [None, Some(0), Some(4095)] {
        match damage {
            None => std::fs::remove_file(list).unwrap(),
            Some(at) => flip(list, at),
        }
        for read_only in [true, false] {
            let opened =
                Vault::open(dir.path(), &unlock(), OpenOptions { read_only, ..OpenOptions::default() });
            assert!(matches!(opened, Err(OpenError::DamagedRoot(_))), "{damage:?}");
        }
        std::fs::write(list, &content).unwrap();
    }
    let vault = open(dir.path(), false);
    let id = Vault::root_id(dir.path()).unwrap();
    assert_eq!(id.len(), 32);
    let before = everything(&vault);
    // The root has been renewed; the directory's content has not.
    std::fs::remove_file(list).unwrap();
    vault.shut_down().unwrap();
    drop(vault);
    let vault = open(dir.path(), false);
    assert!(content_of(&vault, "small").is_err());
    assert_eq!(rotate(&vault, usize::MAX), Rotated::Left);
    vault.shut_down().unwrap();
    drop(vault);
    std::fs::write(list, &content).unwrap();
    let vault = open(dir.path(), false);
    assert_eq!(without_times(everything(&vault)), without_times(before));
    assert_eq!(rotate(&vault, usize::MAX), Rotated::Whole { aside: 0 });
    assert!(!list.exists() && !left_over.exists());
}

/// Data written while a rotation is under way is under the new key, and survives the rest of the
/// rotation.
#[test]
fn a_file_that_is_written_before_its_turn_is_renewed_first() {
    let f = Fixture::new();
    furnish(&f);
    begin(&f);
    let f = f.reopen();
    let name = "l".repeat(200);
    let change = |name: &str, bytes: &[u8]| {
        let stored = f.vault.lookup(&f.root(), OsStr::new(name)).unwrap().0;
        let open = f.vault.open_file(&f.root(), &stored, true).unwrap();
        open.file.write(3, bytes).unwrap();
        assert!(!open.file.has_former_key());
        f.vault.sync_file(&open).unwrap();
        f.vault.files().release(open);
    };
    change("small", b"!");
    change(&name, b"!");
    // Copy the store without shutting down, as after a kill.
    let copy = tempfile::tempdir().unwrap();
    copy_tree(f.dir.path(), copy.path());
    let vault = open(copy.path(), false);
    assert_eq!(content_of(&vault, "small").unwrap(), b"con!ent");
    assert_eq!(rotate(&vault, usize::MAX), Rotated::Whole { aside: 0 });
    assert_eq!(content_of(&vault, "small").unwrap(), b"con!ent");
    assert_eq!(content_of(&vault, &name).unwrap()[..5], [7, 7, 7, b'!', 7]);
    vault.shut_down().unwrap();
}

/// Data written under the former key meanwhile would not be on the list, and would be lost.
#[test]
fn nobody_writes_to_the_vault_while_its_keys_are_changed() {
    let f = Fixture::new();
    furnish(&f);
    let before = without_times(everything(&f.vault));
    let path = f.dir.path();
    let former = Vault::unlock_config(path, &unlock()).unwrap().2;
    f.vault.put_away().unwrap();
    let alone = Vault::lock_config(path).unwrap();
    let (config, master) = list_at(path);
    let refused = f.vault.bring_back(former.expose());
    assert!(matches!(refused, Err(OpenError::Changing)), "{refused:?}");
    alone.write(path, &config).unwrap();
    let refused = f.vault.bring_back(master.expose());
    assert!(matches!(refused, Err(OpenError::Changing)), "{refused:?}");
    drop(alone);
    f.vault.bring_back(master.expose()).unwrap();
    let f = f.reopen();
    assert_eq!(rotate(&f.vault, usize::MAX), Rotated::Whole { aside: 0 });
    assert_eq!(without_times(everything(&f.vault)), before);
    // The mount may end meanwhile, and another one may begin.
    let dir = f.close();
    let alone = Vault::lock_config(dir.path()).unwrap();
    let refused = Vault::open(dir.path(), &unlock(), OpenOptions::default());
    assert!(matches!(refused, Err(OpenError::Changing)));
    open(dir.path(), true);
    drop(alone);
    open(dir.path(), false);
}

/// The key that unlocks the vault is right, and so is the id, but no name in the root is under it.
#[test]
fn a_vault_is_not_unlocked_over_a_root_of_which_no_name_authenticates() {
    let f = Fixture::new();
    furnish(&f);
    let master = Vault::unlock_config(f.dir.path(), &unlock()).unwrap().2;
    f.vault.put_away().unwrap();
    let names = stored_names_in(f.dir.path());
    let aside = tempfile::tempdir().unwrap();
    let move_all = |from: &Path, to: &Path| {
        names.iter().for_each(|name| std::fs::rename(from.join(name), to.join(name)).unwrap());
    };
    move_all(f.dir.path(), aside.path());
    let foreign = f.dir.path().join("A".repeat(43));
    std::fs::write(&foreign, "").unwrap();
    let refused = f.vault.bring_back(master.expose());
    assert!(matches!(refused, Err(OpenError::DamagedRoot(_))), "{refused:?}");
    std::fs::remove_file(&foreign).unwrap();
    move_all(aside.path(), f.dir.path());
    f.vault.bring_back(master.expose()).unwrap();
    assert_eq!(content_of(&f.vault, "small").unwrap(), b"content");
}

fn stored_names_in(dir: &Path) -> Vec<OsString> {
    let all = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let is_entry = |name: &str| !name.starts_with("warpcrypt.") || name.starts_with("warpcrypt.long.");
    all.filter(|name| is_entry(name.to_str().unwrap())).collect()
}

/// A file from a backup made before the rotation is under the former key, just like a forgery.
#[test]
fn a_file_from_a_backup_is_refused_with_a_reason() {
    let f = Fixture::new();
    furnish(&f);
    let stored = f.stored(&f.root(), "small");
    f.vault.files().store_all().unwrap();
    let backup = std::fs::read(&stored).unwrap();
    let (name, _) = f.vault.lookup(&f.root(), OsStr::new("small")).unwrap();
    let open = f.vault.open_file(&f.root(), &name, true).unwrap();
    open.file.write(0, b"later").unwrap();
    f.vault.files().release(open);
    begin(&f);
    let f = f.reopen();
    std::fs::write(f.stored(&f.root(), "small"), backup).unwrap();
    let refused = content_of(&f.vault, "small").unwrap_err().to_string();
    assert!(refused.contains("from a backup"), "{refused}");
    let mut strays = 0;
    let rotated = f.vault.rotate(&mut |step| {
        strays += usize::from(matches!(step, Step::Stray(..)));
        true
    });
    assert_eq!(rotated.unwrap(), Rotated::Whole { aside: 0 });
    assert!(strays > 0);
    let refused = content_of(&f.vault, "small").unwrap_err().to_string();
    assert!(refused.contains("made before `key rotate`"), "{refused}");
}

/// Anything that would be lost under another key prevents the rotation from beginning.
#[test]
fn a_rotation_begins_only_where_every_record_authenticates() {
    let f = Fixture::new();
    furnish(&f);
    f.vault.shut_down().unwrap();
    let place = f.stored(&f.root(), "small");
    let f = f.reopen();
    flip(&place, 100);
    let (mut config, master) = prepare_at(f.dir.path());
    let mut told = Vec::new();
    let begun = f.vault.list_for_rotation(&mut config, &master, &mut |step| {
        told.extend(if let Step::Left(path, _) = step { Some(path) } else { None });
        true
    });
    assert_eq!(begun.unwrap(), Begun::Refused);
    // The file is reported under both of its names.
    assert_eq!(told.len(), 2);
    let names = std::fs::read_dir(f.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_str().unwrap().starts_with("warpcrypt.former.")));
}
