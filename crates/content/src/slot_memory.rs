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
mod tests;
