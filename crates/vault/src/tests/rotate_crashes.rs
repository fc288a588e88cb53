//! A power cut or a kill at every step of a rotation: while it begins, continues and ends.

use super::{
    former::content_of,
    rotate::{Everything, copy_tree, everything, furnish, without_times},
    *,
};
use crate::{Begun, OpenError, Rotated};
use store::{after_power_cut, cut_power_after};

/// A vault, and a version of one of its files that was forged with the former key.
struct Start {
    dir: TempDir,
    before: Everything,
    forged: Vec<u8>,
}

impl Start {
    fn new() -> Self {
        let f = Fixture::new();
        furnish(&f);
        let before = without_times(everything(&f.vault));
        let dir = f.close();
        let copy = copied(dir.path());
        let forger = open(copy.path(), false);
        let stored = forger.lookup(&forger.root(), OsStr::new("small")).unwrap().0;
        let file = forger.open_file(&forger.root(), &stored, true).unwrap();
        file.file.write(0, b"forged!").unwrap();
        forger.files().release(file);
        forger.shut_down().unwrap();
        let forged = std::fs::read(copy.path().join(&stored.0)).unwrap();
        Start { dir, before, forged }
    }
}

fn copied(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    copy_tree(from, to.path());
    to
}

/// Begins a rotation or continues it, as `key rotate` does, until it ends or fails.
fn go_on(path: &Path) -> std::result::Result<(), OpenError> {
    let failed = |e: Error| OpenError::Config(format::config::ConfigError::Damaged { what: e.to_string() });
    let vault = Vault::open(path, &unlock(), OpenOptions::default())?;
    if !vault.is_rotating() {
        let (present, id, former) = Vault::unlock_config(path, &unlock())?;
        let (mut config, master) = present.rotate(&former, id, &slot())?;
        let begun = vault.list_for_rotation(&mut config, &master, &mut |_| true).map_err(failed)?;
        assert_eq!(begun, Begun::Listed);
        Vault::lock_config(path)?.write(path, &config)?;
        vault.take_up(&config, &master).map_err(failed)?;
    }
    let rotated = vault.rotate(&mut |_| true).map_err(failed)?;
    assert!(matches!(rotated, Rotated::Whole { .. } | Rotated::Left), "{rotated:?}");
    vault.shut_down().map_err(failed)
}

/// Checks that all content is there and stays, that nothing else is accepted, and that the rotation
/// ends.
fn judge(start: &Start, state: &Path, what: &str) {
    let vault = open(state, true);
    assert_eq!(without_times(everything(&vault)), start.before, "{what}: read only");
    let small = vault.lookup(&vault.root(), OsStr::new("small")).unwrap().0;
    drop(vault);
    if Vault::read_config(state).unwrap().key_generation() > 0 {
        let hostile = copied(state);
        std::fs::write(hostile.path().join(&small.0), &start.forged).unwrap();
        for read_only in [true, false] {
            let vault = open(hostile.path(), read_only);
            assert!(content_of(&vault, "small").is_err(), "{what}: a forgery is read");
            if !read_only {
                vault.rotate(&mut |_| true).unwrap();
                assert!(content_of(&vault, "small").is_err(), "{what}: a forgery is read after the rotation");
            }
        }
    }
    go_on(state).unwrap();
    assert!(!Vault::read_config(state).unwrap().is_rotating(), "{what}");
    assert_eq!(without_times(everything(&open(state, false))), start.before, "{what}: at the end");
    let names =
        std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left =
        |name: &String| ["warpcrypt.former.", "warpcrypt.rewrite."].iter().any(|own| name.starts_with(own));
    assert_eq!(names.filter(left).count(), 0, "{what}");
}

/// Stops at every `step`th call until there are no more calls; returns the number of stops.
fn stop_at_calls(step: u64) -> usize {
    let start = Start::new();
    for (done, call) in (step - 1..).step_by(step as usize).enumerate() {
        let killed = copied(start.dir.path());
        cut_power_after(call, killed.path());
        let went = go_on(killed.path());
        let Some(disk) = after_power_cut() else {
            assert!(went.is_ok());
            return done;
        };
        let cut = tempfile::tempdir().unwrap();
        disk.put(cut.path());
        judge(&start, cut.path(), &format!("power is cut at call {call}"));
        judge(&start, killed.path(), &format!("killed at call {call}"));
    }
    unreachable!("it ends")
}

#[test]
fn no_stop_loses_or_accepts_anything() {
    let step = crate::cases(29, 1);
    let stops = stop_at_calls(step);
    assert!(stops as u64 > 100 / step, "{stops}");
}
