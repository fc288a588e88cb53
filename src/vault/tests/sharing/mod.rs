//! Several processes share a vault, and each sees the others' changes at the right time.

mod ends;
mod history;
mod loss;
mod lost_vault;
mod sequences;
mod threads;
mod world;

use super::{settings, slot, unlock};
use crate::vault::{Dir, Kind, OpenError, OpenOptions, Vault, sharing};
use engine::EngineChoice;
use format::name::NameMode;
use std::{ffi::OsStr, path::Path, sync::Arc, time::Duration};
use store::Flock;
use tempfile::TempDir;

/// Pseudo-random numbers, determined by the seed.
struct Draw(u64);

impl Draw {
    fn new(seed: u64) -> Self {
        Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { all.get(self.below(all.len())) }
    }
}

pub(crate) fn new_vault() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    Vault::init(dir.path(), settings(NameMode::Encrypted), &slot()).unwrap();
    dir
}

/// Opens the vault shared, with this much patience for locks.
pub(crate) fn share(path: &Path, patience: Duration) -> Arc<Vault> {
    let options =
        OpenOptions { sharing: Some(patience), engine: EngineChoice::Cpu, ..OpenOptions::default() };
    Vault::open(path, &unlock(), options).unwrap()
}

/// Waits until all sharing processes have gone, and opens the vault exclusively.
fn alone(path: &Path) -> Arc<Vault> {
    let options = OpenOptions { engine: EngineChoice::Cpu, ..OpenOptions::default() };
    loop {
        match Vault::open(path, &unlock(), options.clone()) {
            Err(OpenError::Shared) => {}
            opened => return opened.unwrap(),
        }
    }
}

/// Checks a directory and everything below it, as `check` does. Ignores directories that a kill left
/// half-created.
fn check(vault: &Vault, dir: &Arc<Dir>) {
    let contents = vault.inspect_dir(dir).unwrap();
    assert!(contents.damaged.is_empty() && contents.strays.is_empty(), "{:?}", contents.damaged);
    for entry in &contents.entries {
        let mut flaws = vault.check_node(dir, entry);
        match entry.kind {
            Kind::File => flaws.extend(vault.check_content(dir, entry, true, &mut |_| true)),
            Kind::Dir => check(vault, &vault.open_dir(dir, &entry.stored).unwrap()),
            _ => {}
        }
        let mut told: Vec<_> = flaws.into_iter().map(|flaw| flaw.reason).collect();
        // Left by a kill before the first flush of an extended file.
        told.retain(|reason| !reason.starts_with("its header is blank"));
        assert!(told.is_empty(), "{:?}: {told:?}", entry.name);
    }
}

/// Whether a test fails when a rule is broken.
fn fails_without(rule: sharing::Rule, test: impl Fn() + std::panic::UnwindSafe) -> bool {
    sharing::break_rule(Some(rule));
    let failed = std::panic::catch_unwind(test).is_err();
    sharing::break_rule(None);
    failed
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

impl Vault {
    /// Locks the root, like another machine that is creating a long name in it.
    pub(crate) fn lock_root(&self) -> Flock {
        self.lock_dir(&self.root, true).unwrap().unwrap()
    }
}
