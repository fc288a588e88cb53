//! Several processes share a vault, and each sees the others' changes at the right time.

mod ends;
mod history;
mod loss;
mod lost_vault;
mod sequences;
mod threads;
mod world;

use super::{settings, slot, unlock};
use crate::{
    Dir, Kind, OpenError, OpenOptions, Vault,
    sharing::{self, SharingRule},
};
use content::{LeaseRule, lease_rules};
use engine::EngineChoice;
use format::name::NameMode;
use std::{ffi::OsStr, path::Path, sync::Arc, time::Duration};
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

fn new_vault() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    Vault::init(dir.path(), settings(NameMode::Encrypted), &slot()).unwrap();
    dir
}

/// Opens the vault shared, with this much patience for locks.
fn share(path: &Path, patience: Duration) -> Arc<Vault> {
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

/// The rules that are broken on a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Broken {
    of_files: Option<LeaseRule>,
    of_vault: Option<SharingRule>,
}

impl From<LeaseRule> for Broken {
    fn from(rule: LeaseRule) -> Self {
        Broken { of_files: Some(rule), of_vault: None }
    }
}

impl From<SharingRule> for Broken {
    fn from(rule: SharingRule) -> Self {
        Broken { of_files: None, of_vault: Some(rule) }
    }
}

/// The rules that are broken on this thread.
fn broken() -> Broken {
    Broken { of_files: lease_rules::broken(), of_vault: sharing::broken() }
}

/// Breaks these rules on this thread, and restores all others.
fn break_rules(rules: Broken) {
    lease_rules::break_rule(rules.of_files);
    sharing::break_rule(rules.of_vault);
}

/// Whether a test fails when a rule is broken.
fn fails_without(rule: impl Into<Broken>, test: impl Fn() + std::panic::UnwindSafe) -> bool {
    break_rules(rule.into());
    let failed = std::panic::catch_unwind(test).is_err();
    break_rules(Broken::default());
    failed
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}
