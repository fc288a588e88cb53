//! The slots and digests of the last flushed version, loaded and verified on demand.
//!
//! Everything in memory has been verified against the root. A leaf has no slots past the end of the
//! version and none newer than it, so a chunk's current slot is simply the newer of its two. `load` reads
//! leaves and nodes from the store, and `change` turns the tree into that of the next version.

mod beside;
mod build;
mod change;
mod load;
mod recovered;

use super::{
    error::{Damage, Result},
    slot_memory::{SlotMemory, SlotShare},
};
use beside::Beside;
pub(super) use build::{RootBuilder, Sink};
use change::Journal;
use crypto::kdf::FileKeys;
use format::{
    entry::{ENTRY, Entry, Slot},
    layout,
    record::Version,
    tree::{ALL_HOLES, Digest, leaf_digests},
};
pub(super) use recovered::Recovered;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};
use store::BackingFile;

/// Children of a node page.
const FANOUT: usize = layout::FANOUT as usize;
/// Number of leaves whose digests are computed together.
const TOGETHER: usize = 8;

/// The children of a node page.
pub(super) type Children = Box<[Digest; FANOUT]>;
/// A node page: its level, its index in the level, and its children.
pub(super) type NodePage = ((u32, u64), Children);

/// Store and keys from which the tree is loaded and verified.
#[derive(Clone, Copy)]
pub(super) struct LeafSource<'a> {
    pub(super) store: &'a dyn BackingFile,
    pub(super) keys: &'a FileKeys,
}

#[derive(Clone)]
struct Leaf {
    entries: Vec<Entry>,
    /// The stored page has entries past the end, which are not in `entries`.
    stale: bool,
}

#[derive(Clone)]
struct TreeNode {
    children: Children,
    /// Differs from the stored page.
    unsaved: bool,
}

impl TreeNode {
    fn empty() -> Self {
        TreeNode { children: Box::new([ALL_HOLES; FANOUT]), unsaved: true }
    }
}

/// Slots and digests of one version.
pub(super) struct EntryTree {
    leaves: HashMap<u64, Leaf>,
    /// Leaves loaded by readers, not merged into `leaves` yet.
    beside: Beside,
    nodes: HashMap<(u32, u64), TreeNode>,
    root: Digest,
    size: u64,
    /// Epoch of the version. The store may have no slot above it.
    epoch: u64,
    /// Groups whose stored entries may contain more than the current slots.
    touched: BTreeSet<u64>,
    journal: Option<Journal>,
    /// The stored entries of group 0 if they were read with the records, until they are needed.
    first: Option<Vec<u8>>,
    /// Set after a crash until the recovery is written down: determines which stored slots count.
    recovered: Option<Arc<Recovered>>,
    /// This file's share of the leaves in memory.
    share: SlotShare,
    /// Nothing may be evicted, because the store may have something else: after a read-only recovery, or
    /// a flush that failed half-way.
    pub(super) resident: bool,
}

impl EntryTree {
    /// The tree of a version whose root was authenticated.
    pub(super) fn new(version: &Version, memory: &SlotMemory) -> Self {
        let Version { epoch, size, root } = *version;
        EntryTree {
            leaves: HashMap::new(),
            beside: Beside::default(),
            nodes: HashMap::new(),
            root,
            size,
            epoch,
            touched: BTreeSet::new(),
            journal: None,
            first: None,
            recovered: None,
            share: SlotShare::of(memory),
            resident: false,
        }
    }

    /// A version chosen by recovery but not written down. `recovered` determines which stored slots
    /// count, and `nodes` are not stored.
    pub(super) fn recovered(
        version: &Version,
        recovered: Arc<Recovered>,
        nodes: Vec<NodePage>,
        memory: &SlotMemory,
    ) -> Self {
        let mut tree = EntryTree::new(version, memory);
        tree.recovered = Some(recovered);
        let node = |(place, children)| (place, TreeNode { children, unsaved: true });
        tree.nodes = nodes.into_iter().map(node).collect();
        tree
    }

    /// The choice made by recovery, if it is still to be written down.
    pub(super) fn as_recovered(&self) -> Option<Arc<Recovered>> {
        self.recovered.clone()
    }

    /// The epoch of the version.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes over the header page that was read for the records, so that its entries need not be read
    /// again. They are verified when they are needed; those of an empty file, of which nothing is ever
    /// read, are checked immediately.
    ///
    /// # Errors
    /// `Damaged` if an empty file has entries.
    pub(super) fn keep_header(&mut self, page: &[u8; layout::PAGE as usize]) -> Result<()> {
        let entries = &page[layout::GROUP0_ENTRIES as usize..];
        if self.size == 0 && entries.iter().any(|byte| *byte != 0) {
            return Err(damaged_leaf(0, "has entries, and the file is empty"));
        }
        self.first = Some(entries.to_vec());
        Ok(())
    }

    /// The root over the current slots.
    pub(super) fn root(&self) -> Digest {
        self.root
    }

    /// Plaintext size of the version.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    fn levels(&self) -> u32 {
        layout::levels(layout::groups(self.size))
    }

    /// Whether the slots of `group` are in memory, or known to be empty.
    pub(super) fn is_loaded(&self, group: u64) -> bool {
        self.leaf(group).is_some()
    }

    fn leaf(&self, group: u64) -> Option<&Leaf> {
        self.leaves.get(&group).or_else(|| self.beside.get(group))
    }

    /// The current slot of a chunk.
    ///
    /// # Errors
    /// If its group is not loaded; otherwise a missing leaf would look like a hole.
    pub(super) fn slot(&self, index: u64) -> Result<Option<Slot>> {
        Ok(current(&self.entry(index)?))
    }

    /// The entry of a chunk. Fails as `slot` does.
    pub(super) fn entry(&self, index: u64) -> Result<Entry> {
        Ok(self.entries(layout::group_of(index))?[layout::place_in_group(index)])
    }

    /// The entries of a group. Fails as `slot` does.
    pub(super) fn entries(&self, group: u64) -> Result<&[Entry]> {
        let entries = self.leaf(group).map(|leaf| &leaf.entries[..]);
        entries.ok_or_else(|| damaged_leaf(group, "is needed but not loaded"))
    }

    /// Whether the stored page of `group` has entries past the end, which must be erased when the file
    /// grows.
    pub(super) fn is_stale(&self, group: u64) -> bool {
        self.leaves.get(&group).is_some_and(|l| l.stale)
    }

    /// Groups written since the last clean record.
    pub(super) fn touched(&self) -> Vec<u64> {
        self.touched.iter().copied().collect()
    }

    /// Whether the store is known to have exactly the current slots of every group written since the last
    /// clean record.
    pub(super) fn is_canonical(&self) -> bool {
        let exact =
            |leaf: &Leaf| !leaf.stale && leaf.entries.iter().all(|e| e.0.iter().flatten().count() < 2);
        !self.resident && self.touched.iter().all(|group| self.leaves.get(group).is_some_and(exact))
    }

    /// Drops all slots of a loaded group that are not current. Returns whether the stored page must
    /// change.
    pub(super) fn make_canonical(&mut self, group: u64) -> bool {
        let Some(leaf) = self.leaves.get_mut(&group) else { return false };
        let mut changed = leaf.stale || self.resident;
        for entry in &mut leaf.entries {
            if let [Some(a), Some(b)] = entry.0 {
                entry.0[usize::from(a.epoch > b.epoch)] = None;
                changed = true;
            }
        }
        changed
    }

    /// Offset and bytes of every node page that differs from the store.
    pub(super) fn unsaved_nodes(&self) -> Vec<(u64, Vec<u8>)> {
        let page = |n: &TreeNode| n.children.as_flattened().to_vec();
        let unsaved = self.nodes.iter().filter(|(_, n)| n.unsaved);
        let mut pages: Vec<_> =
            unsaved.map(|((level, k), n)| (layout::node_offset(*level, *k), page(n))).collect();
        pages.sort();
        pages
    }

    /// Called when the store has canonical leaves and all node pages, under a clean record.
    pub(super) fn set_clean(&mut self) {
        self.touched.clear();
        self.resident = false;
        self.nodes.values_mut().for_each(|n| n.unsaved = false);
    }

    /// The first chunk at or after `index`, below the end, that has data (`data`) or that has none
    /// (`!data`).
    pub(super) fn seek(&mut self, source: LeafSource, mut index: u64, data: bool) -> Result<Option<u64>> {
        let end = layout::chunks(self.size);
        while index < end {
            let group = layout::group_of(index);
            if let Some(next) = self.behind_hole(source, group)? {
                if !data {
                    return Ok(Some(index));
                }
                index = layout::first_chunk(next);
                continue;
            }
            self.load(source, group)?;
            if self.slot(index)?.is_some_and(|s| !s.is_hole()) == data {
                return Ok(Some(index));
            }
            index += 1;
        }
        Ok(None)
    }

    /// The first group after the largest empty subtree that contains `group`; `None` if the group is not
    /// in one. Searches from the top, so that empty pages are not loaded: a file of 16 TiB has half a
    /// million of them.
    fn behind_hole(&mut self, source: LeafSource, group: u64) -> Result<Option<u64>> {
        for level in (0..=self.levels()).rev() {
            let span = (FANOUT as u64).pow(level);
            let place = (level, group / span);
            if !self.nodes.contains_key(&place) && self.digest_at(source, level, place.1)? == ALL_HOLES {
                return Ok(Some((place.1 + 1) * span));
            }
        }
        Ok(None)
    }

    /// Number of node pages in memory.
    #[cfg(test)]
    pub(crate) fn pages(&self) -> usize {
        self.nodes.len()
    }
}

/// The newer slot of an entry.
pub(super) fn current(entry: &Entry) -> Option<Slot> {
    entry.newest().copied()
}

/// The digests of several groups with these entries, computed together.
fn digests_of<'a>(keys: &FileKeys, leaves: impl Iterator<Item = (u64, &'a [Entry])>) -> Vec<Digest> {
    leaf_digests(keys, leaves.map(|(group, entries)| (group, entries.iter().map(Entry::newest))))
}

/// The stored entries of a group; zeros past the end of the stored file.
pub(super) fn read_entries(store: &dyn BackingFile, group: u64) -> Result<Vec<u8>> {
    let mut raw = vec![0; layout::entries_in(group) * ENTRY];
    store.read_at(&mut raw, layout::entries_offset(group))?;
    Ok(raw)
}

pub(super) fn decode_entries(raw: &[u8]) -> Vec<Entry> {
    raw.as_chunks::<ENTRY>().0.iter().map(Entry::decode).collect()
}

pub(super) fn encode_entries(entries: &[Entry]) -> Vec<u8> {
    let mut raw = vec![0; entries.len() * ENTRY];
    for (entry, bytes) in entries.iter().zip(raw.as_chunks_mut::<ENTRY>().0) {
        entry.encode(bytes);
    }
    raw
}

fn damaged_leaf(group: u64, reason: &'static str) -> crate::Error {
    Damage { what: format!("leaf page {group}"), reason }.into()
}
