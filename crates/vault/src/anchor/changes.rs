//! Directories that changed since the anchor last recorded them.
//!
//! The anchor durably marks each of them as "being changed" before the first change. The mark is removed
//! in the transaction that records the changes, after the store has made them durable, and only if
//! nobody has changed the directory since it was read.

use super::entry::{AnchoredIdentity, Salt};
use format::dir_id::DirId;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use store::StoreDir;

/// A directory that was changed.
struct ChangedDir {
    store: Arc<StoreDir>,
    /// Whether the anchor certainly has the mark. After a failed write of changes it may have lost the
    /// mark.
    marked: bool,
    /// Number of changes in progress.
    under_way: usize,
    /// Number of the change that ended last.
    last: u64,
    /// Sealed names that changed; `None` if any could have changed.
    names: Option<HashSet<Vec<u8>>>,
}

/// A changed directory in which no change is in progress, and which can be read.
pub(super) struct Settled {
    pub(super) id: DirId,
    pub(super) store: Arc<StoreDir>,
    pub(super) names: Option<HashSet<Vec<u8>>>,
    last: u64,
}

/// The names found in a directory.
pub(super) struct Looked {
    pub(super) settled: Settled,
    /// By sealed name. All names of the directory if `settled.names` is `None`.
    pub(super) names: Vec<(Vec<u8>, Option<AnchoredIdentity>)>,
}

/// All changed directories.
#[derive(Default)]
pub(super) struct Changes {
    directories: HashMap<DirId, ChangedDir>,
    /// Directories that were removed, and files whose last name was removed, since the last write to the
    /// anchor.
    pub(super) gone: (HashSet<DirId>, HashSet<Salt>),
    /// Counts changes.
    count: u64,
}

impl Changes {
    /// Whether no file and no directory was removed.
    pub(super) fn nothing_went(&self) -> bool {
        self.gone.0.is_empty() && self.gone.1.is_empty()
    }

    /// Whether a directory has changed and the anchor has it marked.
    pub(super) fn is_marked(&self, id: &DirId) -> bool {
        self.directories.get(id).is_some_and(|changed| changed.marked)
    }

    /// Records whether the anchor has the directory marked as being changed.
    pub(super) fn mark(&mut self, id: &DirId, marked: bool) {
        if let Some(changed) = self.directories.get_mut(id) {
            changed.marked = marked;
        }
    }

    /// Whether a directory has changed.
    pub(super) fn has(&self, id: &DirId) -> bool {
        self.directories.contains_key(id)
    }

    /// Number of changed directories.
    pub(super) fn len(&self) -> usize {
        self.directories.len()
    }

    /// Counter of everything that can change what is found under a name.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether a name may have changed since the anchor last recorded it, so that only the store knows
    /// its present state.
    pub(super) fn may_concern(&self, id: &DirId, sealed: &[u8]) -> bool {
        let names = self.directories.get(id).map(|changed| &changed.names);
        names.is_some_and(|names| names.as_ref().is_none_or(|names| names.contains(sealed)))
    }

    /// Adds a directory, with no changes, or with all names changed if `all`.
    pub(super) fn add(&mut self, id: DirId, store: Arc<StoreDir>, all: bool) {
        let names = (!all).then(HashSet::new);
        self.directories.entry(id).or_insert(ChangedDir {
            store,
            marked: false,
            under_way: 0,
            last: self.count,
            names,
        });
    }

    /// Begins a change of a name in a directory that was added.
    pub(super) fn begin(&mut self, id: &DirId, sealed: Vec<u8>) {
        self.count += 1;
        if let Some(changed) = self.directories.get_mut(id) {
            changed.under_way += 1;
            if let Some(names) = &mut changed.names {
                names.insert(sealed);
            }
        }
    }

    /// Ends a change in a directory.
    pub(super) fn end(&mut self, id: &DirId) {
        self.count += 1;
        if let Some(changed) = self.directories.get_mut(id) {
            changed.under_way -= 1;
            changed.last = self.count;
        }
    }

    /// Directories in which no change is in progress: all of them, or `only` one.
    pub(super) fn settled(&self, only: Option<&DirId>) -> Vec<Settled> {
        let wanted = |id: &DirId| only.is_none_or(|only| only == id);
        let settled = self.directories.iter().filter(|(id, changed)| wanted(id) && changed.under_way == 0);
        let settled = settled.map(|(id, changed)| Settled {
            id: *id,
            store: changed.store.clone(),
            names: changed.names.clone(),
            last: changed.last,
        });
        settled.collect()
    }

    /// Whether nobody has changed the directory since `settled` was taken.
    pub(super) fn is_still(&self, settled: &Settled) -> bool {
        let changed = self.directories.get(&settled.id);
        changed.is_some_and(|changed| changed.under_way == 0 && changed.last == settled.last)
    }

    /// Removes a directory, because the anchor has recorded all of its changes or the directory is gone.
    pub(super) fn remove(&mut self, id: &DirId) {
        self.count += 1;
        self.directories.remove(id);
    }
}
