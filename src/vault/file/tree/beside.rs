//! Slots that readers bring into memory side by side, none of them with the tree to itself: random readers of a file
//! whose slots do not all fit would otherwise wait for one another.
//!
//! They are part of the tree for every reader. Whoever gets the tree to itself takes them in first
//! ([`Tree::take_in`]), so a change never misses one.

use super::{FANOUT, Leaf, Source, Tree, digests_of};
use crate::format::{
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

/// Leaves until somebody has to take them in.
const MOST: usize = if cfg!(test) { 4 } else { 64 };

/// Where a leaf of a group goes.
type Place = OnceLock<(u64, Leaf)>;

/// Leaves in the order of their arrival. One may be there twice, if two readers loaded it at once.
#[derive(Default)]
pub(super) struct Beside {
    /// Allocated with the first.
    leaves: OnceLock<Box<[Place; MOST]>>,
    /// Places taken; more, if there were too few.
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

    /// Whether there was a place for it.
    fn add(&self, group: u64, leaf: Leaf) -> bool {
        let places = self.leaves.get_or_init(|| Box::new([const { OnceLock::new() }; MOST]));
        let place = places.get(self.taken.fetch_add(1, Ordering::Relaxed));
        place.is_some_and(|place| place.set((group, leaf)).is_ok())
    }
}

impl Tree {
    /// Brings the slots of these groups into memory while others may read the tree. False if one of them is not there
    /// afterwards: that takes who has the tree to itself, who then also meets the error if there is one.
    pub(in crate::vault::file) fn load_beside(&self, source: Source, mut groups: Range<u64>) -> bool {
        self.share.room() > 0 && groups.all(|group| self.is_loaded(group) || self.load_one(source, group))
    }

    fn load_one(&self, source: Source, group: u64) -> bool {
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

    /// The digest of a group, if the page that has it is in memory.
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

    /// Takes in what readers loaded.
    pub(in crate::vault::file) fn take_in(&mut self) {
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
