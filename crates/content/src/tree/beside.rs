//! Slots that readers load concurrently, without exclusive access to the tree. Otherwise, random readers
//! of a file whose slots do not all fit in memory would block one another.
//!
//! Every reader sees these slots as part of the tree. A thread that gets exclusive access merges them
//! first ([`EntryTree::merge_loaded_leaves`]), so a change never misses one.

use super::{EntryTree, FANOUT, Leaf, LeafSource, digests_of};
use format::{
    layout,
    tree::{ALL_HOLES, Digest},
};
use std::{
    ops::Range,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Capacity. Once it is reached, loading needs exclusive access, which merges these leaves.
const MOST: usize = if cfg!(any(test, feature = "testing")) { 4 } else { 64 };

/// Place for the leaf of a group.
type LeafPlace = OnceLock<(u64, Leaf)>;

/// Leaves in order of arrival. A leaf may occur twice if two readers loaded it at the same time.
#[derive(Default)]
pub(super) struct Beside {
    /// Allocated on first use.
    leaves: OnceLock<Box<[LeafPlace; MOST]>>,
    /// Number of places taken; exceeds the capacity if there were too few.
    taken: AtomicUsize,
}

impl Beside {
    pub(super) fn get(&self, group: u64) -> Option<&Leaf> {
        let places = self.leaves.get()?.iter().take(self.taken.load(Ordering::Relaxed));
        places.filter_map(OnceLock::get).find(|(other, _)| *other == group).map(|(_, leaf)| leaf)
    }

    fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= MOST
    }

    /// Adds a leaf. Returns whether there was a place for it.
    fn add(&self, group: u64, leaf: Leaf) -> bool {
        let places = self.leaves.get_or_init(|| Box::new([const { OnceLock::new() }; MOST]));
        let place = places.get(self.taken.fetch_add(1, Ordering::Relaxed));
        place.is_some_and(|place| place.set((group, leaf)).is_ok())
    }
}

impl EntryTree {
    /// Loads the slots of these groups while others may read the tree. Returns false if any of them is
    /// still missing. The caller must then load with exclusive access, which also reports the error, if
    /// any.
    pub(crate) fn load_beside(&self, source: LeafSource, mut groups: Range<u64>) -> bool {
        self.share.room() > 0 && groups.all(|group| self.is_loaded(group) || self.load_one(source, group))
    }

    fn load_one(&self, source: LeafSource, group: u64) -> bool {
        let Some(wanted) = self.known_digest(group) else { return false };
        if self.beside.is_full() || group == 0 && self.first.is_some() {
            return false;
        }
        let Ok(leaf) = self.read_leaf(source, group, wanted, None) else { return false };
        let found = digests_of(source.keys, [(group, &leaf.entries[..])].into_iter());
        if found[..] != [wanted] || !self.beside.add(group, leaf) {
            return false;
        }
        self.share.add();
        true
    }

    /// The digest of a group, if its parent page is in memory.
    fn known_digest(&self, group: u64) -> Option<Digest> {
        if group >= layout::groups(self.size) {
            return Some(ALL_HOLES);
        }
        if self.levels() == 0 {
            return Some(self.root);
        }
        let parent = self.nodes.get(&(1, group / FANOUT as u64))?;
        Some(parent.children[(group % FANOUT as u64) as usize])
    }

    /// Merges the leaves that readers loaded.
    pub(crate) fn merge_loaded_leaves(&mut self) {
        let Beside { leaves, taken } = &mut self.beside;
        if std::mem::take(taken.get_mut()) > 0 {
            let places = leaves.get_mut().into_iter().flat_map(|places| places.iter_mut());
            for (group, leaf) in places.filter_map(OnceLock::take) {
                self.leaves.entry(group).or_insert(leaf);
            }
            self.share.count(self.leaves.len());
        }
    }
}
