//! A thread's work in flight on a GPU: slots, and the messages in them.

use super::{
    gpu::{self, HashGpu, MessageSlot, SlotInFlight},
    source::Content,
    tree::HashTree,
};
use crypto::hash::{
    Function,
    md6::{Md6, forest},
};
use std::{collections::VecDeque, ops::Range, path::PathBuf, sync::Arc};

/// A thread's slots of the device: free, or in flight, oldest first.
pub(super) struct GpuSlots<'a, C: Content> {
    pub gpu: &'a HashGpu,
    pub free: Vec<MessageSlot>,
    pub in_flight: VecDeque<(SlotInFlight, Messages<C>)>,
    /// Number of completed slots.
    pub completed: u64,
}

/// The messages in a slot.
pub(super) struct Messages<C: Content> {
    pub md6: Md6,
    pub items: Vec<HashItem<C>>,
}

/// A message, or a part of one.
pub(super) struct HashItem<C: Content> {
    /// Byte range in the slot.
    pub place: Range<usize>,
    pub origin: ItemOrigin<C>,
}

/// The file that a message belongs to.
pub(super) enum ItemOrigin<C: Content> {
    /// A part of a long file, with its index.
    Part(Arc<HashTree<C>>, u64),
    /// A short file: its number in the order of the output, and its path.
    File(u64, PathBuf),
}

impl<'a, C: Content> GpuSlots<'a, C> {
    pub(super) fn new(gpu: &'a HashGpu) -> Self {
        GpuSlots { gpu, free: Vec::new(), in_flight: VecDeque::new(), completed: 0 }
    }
}

impl<C: Content> Messages<C> {
    pub(super) fn new(md6: &Md6) -> Self {
        Messages { md6: md6.clone(), items: Vec::new() }
    }

    /// Offset for the next message.
    pub(super) fn end(&self) -> usize {
        self.items.last().map_or(0, |item| item.place.end.next_multiple_of(16))
    }

    /// Whether there is room for another message of this length.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.items.len() < gpu::TREES && self.end() + len <= gpu::BYTES
    }

    /// Adds a short file whose content was read to the offset `end`.
    pub(super) fn add_file(&mut self, number: u64, path: PathBuf, len: usize) {
        let at = self.end();
        self.items.push(HashItem { place: at..at + len, origin: ItemOrigin::File(number, path) });
    }

    /// Describes the messages to the device.
    pub(super) fn trees(&self) -> Vec<forest::Tree> {
        let tree = |item: &HashItem<C>| forest::Tree {
            data: item.place.start as u64,
            bits: 8 * item.place.len() as u64,
            part: item.origin.part(),
        };
        self.items.iter().map(tree).collect()
    }
}

impl<C: Content> ItemOrigin<C> {
    /// The part's index, if it is one of several.
    pub(super) fn part(&self) -> Option<u64> {
        match self {
            ItemOrigin::Part(tree, index) if tree.parts() > 1 => Some(*index),
            _ => None,
        }
    }
}

/// The only function, if there is just one and a GPU supports it. A GPU then hashes short files, too.
pub(super) fn gpu_function(functions: &[Function]) -> Option<&Md6> {
    match functions {
        [Function::Md6(md6)] => Some(md6),
        _ => None,
    }
}
