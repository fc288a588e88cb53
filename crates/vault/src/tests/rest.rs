//! Bringing a vault to rest on a store that fails.

use super::*;
use crate::rest::{RestRule, break_rule};
use std::sync::atomic::Ordering;

const CONFIRMED: &[u8] = &[1; 300_000];

/// A vault with a file whose content is confirmed, except for a change in the middle and appended data.
fn changed() -> Fixture {
    let f = Fixture::new();
    let (_, _, file) = f.vault.create(&f.root(), OsStr::new("file"), node(0o644)).unwrap();
    file.file.write(0, CONFIRMED).unwrap();
    f.vault.files().sync(&file).unwrap();
    file.file.write(5000, &[2; 5000]).unwrap();
    file.file.write(CONFIRMED.len() as u64, &[3; 100_000]).unwrap();
    f
}

/// The file's content after a kill of the vault's process.
fn after_a_kill(f: &Fixture) -> Vec<u8> {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(f.dir.path()).unwrap().map(|entry| entry.unwrap().path()) {
        std::fs::copy(&entry, copy.path().join(entry.file_name().unwrap())).unwrap();
    }
    let vault = open(copy.path(), false);
    let (stored, _) = vault.lookup(&vault.root(), OsStr::new("file")).unwrap();
    let file = vault.open_file(&vault.root(), &stored, false).unwrap();
    let mut content = vec![0; file.file.size() as usize];
    assert_eq!(file.file.read(0, &mut content).unwrap(), content.len());
    content
}

fn lock_is_held(f: &Fixture) -> bool {
    std::fs::read(f.dir.path().join("warpcrypt.lock")).unwrap().starts_with(b"open ")
}

/// One write fails, and all after it. Whichever that is, the failure is reported, the vault continues,
/// and confirmed data is still there.
#[test]
fn a_store_that_fails_keeps_a_vault_from_rest() {
    for nth in 0.. {
        let f = changed();
        f.vault.files().life.end_after(nth);
        let rested = f.vault.rest();
        f.vault.files().life.end_after(i64::MAX);
        let content = after_a_kill(&f);
        let is_kept = |(at, byte): (usize, &u8)| *byte == 1 || (5000..10_000).contains(&at) && *byte == 2;
        assert!(content[..CONFIRMED.len()].iter().enumerate().all(is_kept), "write {nth}");
        match rested {
            Ok(()) => {
                assert!(nth > 5, "rest writes");
                assert!(!lock_is_held(&f) && content.len() == 400_000);
                f.vault.resume();
                assert!(lock_is_held(&f));
                return;
            }
            Err(e) => {
                assert!(e.to_string().contains("killed"), "write {nth}: {e}");
                assert!(lock_is_held(&f), "write {nth}");
                f.touch(&f.root(), "another").unwrap();
            }
        }
    }
}

/// The last sync fails, when everything is at rest. Returns whether the vault continues: its lock says
/// that it is in use, and the flusher stores closed files.
fn goes_on_after_the_last_sync_failed() -> bool {
    let f = Fixture::new();
    f.vault.pending.failing.store(1, Ordering::Relaxed);
    let told = f.vault.rest().unwrap_err().to_string();
    assert!(told.contains("os error 5"), "{told}");
    f.touch(&f.root(), "another").unwrap();
    lock_is_held(&f) && !f.vault.files().is_halted()
}

#[test]
fn a_vault_that_did_not_come_to_rest_goes_on() {
    assert!(goes_on_after_the_last_sync_failed());
    break_rule(Some(RestRule::ResumeAfterFailure));
    let goes_on = goes_on_after_the_last_sync_failed();
    break_rule(None);
    assert!(!goes_on, "nothing finds the rule broken");
}

#[test]
fn names_that_cannot_be_made_durable_keep_a_vault_from_rest() {
    let f = Fixture::new();
    f.mkdir(&f.root(), "new");
    // The sync is tried twice.
    f.vault.pending.failing.store(2, Ordering::Relaxed);
    let told = f.vault.rest().unwrap_err().to_string();
    assert!(told.contains("names") && told.contains("os error 5"), "{told}");
    assert!(lock_is_held(&f));
    f.mkdir(&f.root(), "newer");
    f.vault.rest().unwrap();
    assert!(!lock_is_held(&f));
    f.vault.resume();
    let f = f.reopen();
    assert_eq!(f.names(&f.root()), ["new", "newer"]);
}
