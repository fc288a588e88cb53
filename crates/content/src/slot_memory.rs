//! Limits the number of leaves of slots in memory over all files.

use format::{entry::Entry, layout};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Leaves that a file may always keep.
const FEW: usize = 8;
/// Approximate size of a leaf in bytes.
const LEAF: usize = layout::GROUP as usize * size_of::<Entry>();

/// Number of leaves in memory over all files of a vault, and its limit.
#[derive(Debug, Clone)]
pub struct SlotMemory {
    leaves: Arc<AtomicUsize>,
    most: usize,
}

impl SlotMemory {
    /// No leaves yet, and room for `bytes`.
    pub fn new(bytes: usize) -> Self {
        SlotMemory { leaves: Arc::default(), most: bytes / LEAF }
    }

    /// Approximate bytes of all leaves.
    pub fn bytes(&self) -> usize {
        self.leaves.load(Ordering::Relaxed).saturating_mul(LEAF)
    }
}

/// The share of one file, released on drop.
pub(super) struct SlotShare {
    all: SlotMemory,
    leaves: usize,
    /// Leaves that readers have loaded since the last `count`.
    more: AtomicUsize,
}

impl SlotShare {
    /// An empty share.
    pub(super) fn of(all: &SlotMemory) -> Self {
        SlotShare { all: all.clone(), leaves: 0, more: AtomicUsize::new(0) }
    }

    /// Number of leaves that may still be added, over all files.
    pub(super) fn room(&self) -> usize {
        self.all.most.saturating_sub(self.all.leaves.load(Ordering::Relaxed))
    }

    /// Adds one leaf.
    pub(super) fn add(&self) {
        self.more.fetch_add(1, Ordering::Relaxed);
        self.all.leaves.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the file's number of leaves, including those added. Returns how many of them it should keep.
    pub(super) fn count(&mut self, leaves: usize) -> usize {
        let total = &self.all.leaves;
        let before = std::mem::replace(&mut self.leaves, leaves) + std::mem::take(self.more.get_mut());
        let rest = total.fetch_add(leaves, Ordering::Relaxed) - before;
        total.fetch_sub(before, Ordering::Relaxed);
        if leaves <= FEW || rest + leaves <= self.all.most {
            return leaves;
        }
        // Evict enough that the next loads find room for a while: half of them if this file has most of
        // all leaves, otherwise all but a few.
        if leaves > self.all.most / 2 { (leaves / 2).max(FEW) } else { FEW }
    }
}

impl Drop for SlotShare {
    fn drop(&mut self) {
        self.all.leaves.fetch_sub(self.leaves + *self.more.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_give_way_when_all_have_too_many() {
        let all = SlotMemory::new(100 * LEAF);
        let (mut a, mut b) = (SlotShare::of(&all), SlotShare::of(&all));
        assert_eq!(a.count(60), 60);
        assert_eq!(b.count(40), 40);
        assert_eq!(a.room(), 0);
        assert_eq!(b.count(41), FEW);
        assert_eq!(b.count(FEW), FEW);
        assert_eq!(all.bytes(), (60 + FEW) * LEAF);
        assert_eq!(a.count(96), 48);
        assert_eq!(b.room(), 0);
        drop(a);
        assert_eq!(b.room(), 100 - FEW);
        assert_eq!(b.count(100), 100);
        drop(b);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn what_readers_load_counts_at_once_and_only_once() {
        let all = SlotMemory::new(100 * LEAF);
        let mut share = SlotShare::of(&all);
        (0..3).for_each(|_| share.add());
        assert_eq!(share.room(), 97);
        assert_eq!(share.count(3), 3);
        assert_eq!(share.room(), 97);
        share.add();
        drop(share);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn a_few_are_always_kept() {
        let all = SlotMemory::new(LEAF);
        let mut shares: Vec<SlotShare> = (0..10).map(|_| SlotShare::of(&all)).collect();
        assert!(shares.iter_mut().all(|share| share.count(FEW) == FEW));
        assert_eq!(shares[0].count(FEW + 2), FEW);
    }
}
