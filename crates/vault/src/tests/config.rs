//! Concurrent changes of the configuration, and leftovers of interrupted ones.

use super::{Fixture, KEY, TempDir, open, rotate::list_at, settings, slot, unlock};
use crate::{NewPlace, OpenError, OpenOptions, Unlock, Vault};
use format::{
    key_slot::{NewSlot, SlotSecret},
    name::NameMode,
};
use std::{path::Path, time::Duration};

const FILES: [&str; 2] = ["warpcrypt.json", "warpcrypt.json.copy"];
const SECOND: &[u8] = b"another key file";

fn text(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap()
}

fn second() -> Unlock {
    Unlock::KeyFile(SECOND.to_vec().into())
}

/// Unlocks the configuration like a command that is going to change it.
fn to_change(path: &Path, unlock: &Unlock) -> Result<(), OpenError> {
    let (config, _, master) = Vault::unlock_config(path, unlock)?;
    Vault::lock_config(path)?.is_still(path, &config, &master).map(drop)
}

fn with_second_slot(dir: &Path) {
    let alone = Vault::lock_config(dir).unwrap();
    let (mut config, _, master) = Vault::unlock_config(dir, &unlock()).unwrap();
    config.add(&master, &NewSlot { secret: SlotSecret::KeyFile(SECOND), ..slot() }).unwrap();
    alone.write(dir, &config).unwrap();
}

/// A vault with two slots. A rotation that drops the second slot was killed between writing the two
/// files. Also returns their texts, the old one first.
fn cut_short() -> (TempDir, String, String) {
    let dir = Fixture::new().close();
    with_second_slot(dir.path());
    let old = text(dir.path(), FILES[1]);
    let (config, _) = list_at(dir.path());
    std::fs::write(dir.path().join(FILES[0]), config.to_json()).unwrap();
    (dir, old, config.to_json())
}

#[test]
fn a_copy_from_before_a_rotation_opens_nothing() {
    let (dir, old, new) = cut_short();
    let path = dir.path();
    let refused = |e: OpenError| matches!(e, OpenError::WrongSecret(_));
    assert!(Vault::unlock_config(path, &second()).is_err_and(refused));
    assert!(Vault::open(path, &second(), OpenOptions::default()).is_err_and(refused));
    assert!(to_change(path, &second()).is_err_and(refused));
    assert_eq!((text(path, FILES[0]), text(path, FILES[1])), (new.clone(), old.clone()));
    // Nothing may be put under the new key while only one file has it.
    let alone = Vault::lock_config(path).unwrap();
    assert!(Vault::open(path, &unlock(), OpenOptions::default()).is_err());
    drop(alone);
    open(path, false).shut_down().unwrap();
    assert_eq!((text(path, FILES[0]), text(path, FILES[1])), (new.clone(), new));
}

#[test]
fn an_unlock_writes_the_second_file_of_a_rotation_that_was_cut_short() {
    let dir = Fixture::new().close();
    with_second_slot(dir.path());
    let vault = open(dir.path(), false);
    vault.put_away().unwrap();
    let (config, master) = list_at(dir.path());
    std::fs::write(dir.path().join(FILES[0]), config.to_json()).unwrap();
    vault.bring_back(master.expose()).unwrap();
    assert_eq!(text(dir.path(), FILES[1]), config.to_json());
    vault.shut_down().unwrap();
}

#[test]
fn a_copy_from_before_a_rotation_that_has_ended_is_not_put_in_place() {
    let (dir, old, _) = cut_short();
    let path = dir.path();
    let vault = open(path, false);
    vault.rotate(&mut |_| true).unwrap();
    vault.shut_down().unwrap();
    drop(vault);
    assert!(!Vault::read_config(path).unwrap().is_rotating());
    std::fs::write(path.join(FILES[1]), &old).unwrap();
    let new = text(path, FILES[0]);
    let refused = |e: OpenError| matches!(e, OpenError::OtherVault(_));
    assert!(to_change(path, &second()).is_err_and(refused));
    assert!(Vault::open(path, &second(), OpenOptions::default()).is_err());
    let refused = |e: OpenError| matches!(e, OpenError::TwoHistories(..));
    assert!(to_change(path, &unlock()).is_err_and(refused));
    assert!(Vault::open(path, &unlock(), OpenOptions::default()).is_err_and(refused));
    assert_eq!((text(path, FILES[0]), text(path, FILES[1])), (new, old));
}

#[test]
fn the_old_configuration_counts_where_the_new_one_cannot_be_written_whole() {
    let dir = Fixture::new().close();
    let path = dir.path();
    let (mut config, first, master) = Vault::unlock_config(path, &unlock()).unwrap();
    config.add(&master, &NewSlot { secret: SlotSecret::KeyFile(SECOND), ..slot() }).unwrap();
    config.remove(&master, first).unwrap();
    // A file cannot replace a directory.
    std::fs::remove_file(path.join(FILES[1])).unwrap();
    std::fs::create_dir(path.join(FILES[1])).unwrap();
    let old = text(path, FILES[0]);
    let written = Vault::lock_config(path).unwrap().write(path, &config);
    assert!(written.is_err_and(|e| !e.to_string().contains("may count")));
    assert_eq!(text(path, FILES[0]), old);
    assert!(Vault::unlock_config(path, &second()).is_err());
    Vault::unlock_config(path, &unlock()).unwrap();
}

#[test]
fn what_a_killed_change_left_goes_with_the_next_one() {
    let dir = Fixture::new().close();
    for name in FILES {
        std::fs::write(dir.path().join(format!("warpcrypt.tmp.{name}")), "with a slot that is removed")
            .unwrap();
    }
    with_second_slot(dir.path());
    for name in FILES {
        assert!(!dir.path().join(format!("warpcrypt.tmp.{name}")).exists());
    }
}

#[test]
fn a_lock_on_an_id_that_was_replaced_does_not_count() {
    let dir = Fixture::new().close();
    let alone = Vault::lock_config(dir.path()).unwrap();
    let id = dir.path().join("warpcrypt.dir");
    std::fs::copy(&id, dir.path().join("new")).unwrap();
    std::fs::rename(dir.path().join("new"), id).unwrap();
    let config = Vault::read_config(dir.path()).unwrap();
    assert!(alone.write(dir.path(), &config).is_err());
    Vault::lock_config(dir.path()).unwrap().write(dir.path(), &config).unwrap();
}

#[test]
fn no_backup_is_made_of_one_of_two_that_differ() {
    let dir = Fixture::new().close();
    Vault::read_config_to_keep(dir.path()).unwrap();
    let damaged = text(dir.path(), FILES[0]).replace("aes-256-ctr", "aes-128-ctr");
    std::fs::write(dir.path().join(FILES[0]), damaged).unwrap();
    assert!(matches!(Vault::read_config_to_keep(dir.path()), Err(OpenError::CopiesDiffer)));
    open(dir.path(), false).shut_down().unwrap();
    Vault::read_config_to_keep(dir.path()).unwrap();
}

#[test]
fn of_two_who_make_a_vault_in_one_place_one_does() {
    let place = tempfile::tempdir().unwrap();
    let path = &place.path().join("vault");
    let make = |key: &'static [u8]| {
        let slot = NewSlot { secret: SlotSecret::KeyFile(key), ..slot() };
        Vault::init(path, settings(NameMode::Encrypted), &slot).map(|_| key)
    };
    let made = std::thread::scope(|scope| {
        let both = [KEY, SECOND].map(|key| scope.spawn(move || make(key)));
        both.map(|one| one.join().unwrap())
    });
    let (mut keys, mut refused) = (Vec::new(), 0);
    for one in made {
        match one {
            Ok(key) => keys.push(key),
            Err(OpenError::AlreadyVault(_)) => refused += 1,
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!((keys.len(), refused), (1, 1));
    let unlock = Unlock::KeyFile(keys[0].to_vec().into());
    Vault::open(path, &unlock, OpenOptions::default()).unwrap().shut_down().unwrap();
}

#[test]
fn what_was_made_for_nothing_goes_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vault");
    for there in [false, true] {
        let place = NewPlace::at(&path).unwrap();
        place.make(settings(NameMode::Encrypted), &slot()).unwrap();
        place.unmake();
        assert_eq!(path.exists(), there);
        std::fs::create_dir_all(&path).unwrap();
    }
    std::fs::write(path.join("warpcrypt.lock"), "").unwrap();
    let place = NewPlace::at(&path).unwrap();
    place.make(settings(NameMode::Encrypted), &slot()).unwrap();
    place.unmake();
    drop(place);
    Vault::open(&path, &unlock(), OpenOptions::default()).unwrap().shut_down().unwrap();
}

#[test]
fn a_rotation_at_its_end_can_be_stopped_while_somebody_changes_the_configuration() {
    let (dir, ..) = cut_short();
    let vault = open(dir.path(), false);
    let alone = Vault::lock_config(dir.path()).unwrap();
    vault.rotate_behind();
    std::thread::sleep(Duration::from_millis(100));
    vault.shut_down().unwrap();
    drop((alone, vault));
    assert!(Vault::read_config(dir.path()).unwrap().is_rotating());
}
