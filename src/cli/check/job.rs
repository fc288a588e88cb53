//! Types shared by the parts of a check: the check itself, its jobs, and how findings are built.

use super::{
    Scope,
    report::{Finding, FlawKind},
};
use crate::cli::{progress::Totals, signals::Interrupt};
use content::Mismatch;
use parking_lot::{Mutex, MutexGuard};
use std::{ffi::OsStr, sync::Arc};
use vault::{Aside, Dir, DirEntry, Flaw, Part, Vault, WalkPath};

/// A check of one vault.
pub(super) struct Check<'a> {
    pub(super) vault: &'a Arc<Vault>,
    pub(super) scope: Scope,
    pub(super) aside: Option<&'a Aside>,
    pub(super) nodes: Nodes,
    pub(super) progress: &'a Totals,
    pub(super) interrupt: &'a Interrupt,
}

/// Gives one thread at a time access to a node, which may have several names: no thread may open a node
/// that another is repairing.
pub(super) struct Nodes(Vec<Mutex<()>>);

impl Nodes {
    /// Uses enough locks that threads working on different nodes rarely collide.
    pub(super) fn new() -> Self {
        Nodes((0..1024).map(|_| Mutex::default()).collect())
    }

    /// Blocks until no other thread works on the node with this number.
    pub(super) fn alone(&self, ino: u64) -> MutexGuard<'_, ()> {
        self.0[(ino % self.0.len() as u64) as usize].lock()
    }
}

/// An entry waiting to be checked.
pub(super) struct CheckJob {
    /// Relative to the vault's root.
    pub(super) path: WalkPath,
    pub(super) dir: Arc<Dir>,
    pub(super) entry: DirEntry,
}

impl CheckJob {
    pub(super) fn place(&self) -> (&Dir, &OsStr) {
        (&self.dir, &self.entry.stored.0)
    }
}

/// A finding for which nothing has been repaired or moved.
pub(super) fn finding(kind: FlawKind, path: &WalkPath, (dir, name): (&Dir, &OsStr), flaw: Flaw) -> Finding {
    let (kind, bytes) = match flaw.part {
        Part::Bytes(first, end) => (kind, Some((first, end))),
        Part::Whole | Part::Attribute(_) | Part::AttributeList | Part::Unread => (kind, None),
        Part::Anchored(mismatch) => (of_mismatch(mismatch), None),
    };
    let stored = dir.path_in_store(name).into_os_string();
    Finding { path: path.path().into_os_string(), bytes, kind, stored, reason: flaw.reason, aside: None }
}

fn of_mismatch(mismatch: Mismatch) -> FlawKind {
    match mismatch {
        Mismatch::Old { .. } => FlawKind::Old,
        Mismatch::Lost(_) => FlawKind::Lost,
        Mismatch::Added(_) => FlawKind::Added,
        Mismatch::Exchanged { .. } => FlawKind::Exchanged,
    }
}
