//! The directories that were changed since the anchor had them last.
//!
//! The anchor says "being changed" of each of them, durably, since before the first change. That is taken away together
//! with the changes, once the store has them durably, and only if nobody has changed the directory since it was looked at.

use super::entry::{Identity, Salt};
use crate::{format::dir_id::DirId, store::StoreDir};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// A directory that was changed.
struct Changed {
    store: Arc<StoreDir>,
    /// Whether the anchor says so for certain. When changes could not be brought to it, they may have been all the same.
    marked: bool,
    /// Changes under way.
    under_way: usize,
    /// The last one that ended.
    last: u64,
    /// Sealed names; `None` if any could have changed.
    names: Option<HashSet<Vec<u8>>>,
}

/// A directory that nobody is changing just now, to be looked at.
pub(super) struct Settled {
    pub(super) id: DirId,
    pub(super) store: Arc<StoreDir>,
    pub(super) names: Option<HashSet<Vec<u8>>>,
    last: u64,
}

/// What was found in it.
pub(super) struct Looked {
    pub(super) settled: Settled,
    /// By their sealed names; all that there is if all names were looked for.
    pub(super) names: Vec<(Vec<u8>, Option<Identity>)>,
}

/// All that were changed.
#[derive(Default)]
pub(super) struct Changes {
    directories: HashMap<DirId, Changed>,
    /// Directories that were removed, and files whose last name was.
    pub(super) gone: (HashSet<DirId>, HashSet<Salt>),
    /// Counts changes.
    count: u64,
}

impl Changes {
    /// Whether no file and no directory went.
    pub(super) fn nothing_went(&self) -> bool {
        self.gone.0.is_empty() && self.gone.1.is_empty()
    }

    /// Whether a directory is among them, and the anchor says so.
    pub(super) fn is_marked(&self, id: &DirId) -> bool {
        self.directories.get(id).is_some_and(|changed| changed.marked)
    }

    /// Notes whether the anchor says of a directory that it is being changed.
    pub(super) fn mark(&mut self, id: &DirId, marked: bool) {
        if let Some(changed) = self.directories.get_mut(id) {
            changed.marked = marked;
        }
    }

    /// Whether a directory is among them.
    pub(super) fn has(&self, id: &DirId) -> bool {
        self.directories.contains_key(id)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.directories.len()
    }

    /// Counts everything that changes what is to be found under a name.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether what stands under a name is known to nobody but the store.
    pub(super) fn may_concern(&self, id: &DirId, sealed: &[u8]) -> bool {
        let names = self.directories.get(id).map(|changed| &changed.names);
        names.is_some_and(|names| names.as_ref().is_none_or(|names| names.contains(sealed)))
    }

    /// Adds a directory, with no changes; or with all, if it is not known what changed.
    pub(super) fn add(&mut self, id: DirId, store: Arc<StoreDir>, all: bool) {
        let names = (!all).then(HashSet::new);
        self.directories.entry(id).or_insert(Changed {
            store,
            marked: false,
            under_way: 0,
            last: self.count,
            names,
        });
    }

    /// Begins a change of a name in a directory that is there.
    pub(super) fn begin(&mut self, id: &DirId, sealed: Vec<u8>) {
        self.count += 1;
        if let Some(changed) = self.directories.get_mut(id) {
            changed.under_way += 1;
            if let Some(names) = &mut changed.names {
                names.insert(sealed);
            }
        }
    }

    /// Ends it.
    pub(super) fn end(&mut self, id: &DirId) {
        self.count += 1;
        if let Some(changed) = self.directories.get_mut(id) {
            changed.under_way -= 1;
            changed.last = self.count;
        }
    }

    /// Those that nobody is changing just now; of all, or `only` one.
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

    /// Whether nobody has changed a directory since.
    pub(super) fn is_still(&self, settled: &Settled) -> bool {
        let changed = self.directories.get(&settled.id);
        changed.is_some_and(|changed| changed.under_way == 0 && changed.last == settled.last)
    }

    /// The anchor has all of it.
    pub(super) fn remove(&mut self, id: &DirId) {
        self.count += 1;
        self.directories.remove(id);
    }
}
