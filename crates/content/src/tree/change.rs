//! Changes from one version to the next: sets entries, changes the size, recomputes digests, and rolls
//! everything back if it could not be stored.

use super::{EntryTree, FANOUT, Leaf, LeafSource, TOGETHER, TreeNode, digests_of, encode_entries};
use crate::error::Result;
use format::{
    entry::{ENTRY, Entry},
    layout,
    tree::{ALL_HOLES, Digest, node_digest},
};
use std::collections::BTreeSet;

/// Undo log: the replaced values, in order, for rolling back a change that could not be stored.
pub(super) struct Journal {
    replaced: Vec<Replaced>,
    root: Digest,
    size: u64,
    epoch: u64,
}

/// A replaced value.
enum Replaced {
    /// The entry of a chunk. Most changes are made of these, and a copy of the whole leaf would be too
    /// expensive.
    Entry(u64, Entry),
    Leaf(u64, Option<Leaf>),
    /// A leaf whose stored page has entries past the end.
    Stale(u64),
    Node((u32, u64), Option<TreeNode>),
    /// Groups that no longer count as touched.
    Touched(Vec<u64>),
}

impl EntryTree {
    /// Starts a change to the version of `epoch`. Ended by `keep` or `take_back`.
    pub(crate) fn begin(&mut self, epoch: u64) {
        let EntryTree { root, size, epoch: before, .. } = *self;
        self.journal = Some(Journal { replaced: Vec::new(), root, size, epoch: before });
        self.epoch = epoch;
    }

    /// Keeps the change since `begin`, which is in the store now.
    pub(crate) fn keep(&mut self) {
        self.journal = None;
    }

    /// Rolls back the change since `begin`.
    pub(crate) fn take_back(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        self.root = journal.root;
        self.size = journal.size;
        self.epoch = journal.epoch;
        for replaced in journal.replaced.into_iter().rev() {
            self.put_back(replaced);
        }
    }

    fn put_back(&mut self, replaced: Replaced) {
        match replaced {
            Replaced::Entry(index, entry) => _ = self.put_entry(index, entry),
            Replaced::Leaf(group, Some(leaf)) => _ = self.leaves.insert(group, leaf),
            Replaced::Leaf(group, None) => _ = self.leaves.remove(&group),
            Replaced::Stale(group) => self.leaves.get_mut(&group).into_iter().for_each(|l| l.stale = true),
            Replaced::Node(place, Some(node)) => _ = self.nodes.insert(place, node),
            Replaced::Node(place, None) => _ = self.nodes.remove(&place),
            Replaced::Touched(groups) => self.touched.extend(groups),
        }
    }

    /// The stored form of a loaded group's entries, without any past the end.
    pub(crate) fn entries_bytes(&self, group: u64) -> Vec<u8> {
        match self.leaves.get(&group) {
            Some(leaf) => encode_entries(&leaf.entries),
            None => vec![0; layout::entries_in(group) * ENTRY],
        }
    }

    /// Called when a group's entries are written, which leaves none past the end in the store.
    pub(crate) fn note_written(&mut self, group: u64) {
        let Some(leaf) = self.leaves.get_mut(&group) else { return };
        if std::mem::take(&mut leaf.stale)
            && let Some(journal) = &mut self.journal
        {
            journal.replaced.push(Replaced::Stale(group));
        }
    }

    fn note_leaf(&mut self, group: u64) {
        if let Some(journal) = &mut self.journal {
            journal.replaced.push(Replaced::Leaf(group, self.leaves.get(&group).cloned()));
        }
    }

    fn note_node(&mut self, place: (u32, u64)) {
        if let Some(journal) = &mut self.journal {
            journal.replaced.push(Replaced::Node(place, self.nodes.get(&place).cloned()));
        }
    }

    /// Increases the size of the version. Everything new is a hole.
    pub(crate) fn grow(&mut self, source: LeafSource, size: u64) -> Result<()> {
        let (before, after) = (self.levels(), layout::levels(layout::groups(size)));
        let mut digest = self.root;
        for level in before + 1..=after {
            let mut node = TreeNode::empty();
            node.children[0] = digest;
            digest = node_digest(source.keys, level, 0, &node.children);
            self.note_node((level, 0));
            self.nodes.insert((level, 0), node);
        }
        self.root = digest;
        self.size = size;
        Ok(())
    }

    /// Sets entries of chunks in a loaded group. `update` must follow.
    pub(crate) fn set_entries(&mut self, group: u64, entries: &[(u64, Entry)]) {
        self.touched.insert(group);
        for (index, entry) in entries {
            let before = self.put_entry(*index, *entry);
            if let Some(journal) = &mut self.journal {
                journal.replaced.extend(before.map(|before| Replaced::Entry(*index, before)));
            }
        }
    }

    /// Replaces an entry in its leaf, if that is loaded. Returns the previous entry.
    fn put_entry(&mut self, index: u64, entry: Entry) -> Option<Entry> {
        let leaf = self.leaves.get_mut(&layout::group_of(index))?;
        Some(std::mem::replace(&mut leaf.entries[layout::place_in_group(index)], entry))
    }

    /// Recomputes the digests above these groups, which must be loaded and ascending.
    pub(crate) fn update(&mut self, source: LeafSource, groups: &BTreeSet<u64>) -> Result<()> {
        let mut changed: Vec<(u64, Digest)> = Vec::with_capacity(groups.len());
        // Several at once, because computing a single digest has a long latency.
        for some in Vec::from_iter(groups.iter().copied()).chunks(TOGETHER) {
            let mut leaves = Vec::with_capacity(some.len());
            for group in some {
                leaves.push((*group, self.entries(*group)?));
            }
            changed.extend(some.iter().copied().zip(digests_of(source.keys, leaves.into_iter())));
        }
        for level in 1..=self.levels() {
            changed = self.update_level(source, level, &changed)?;
        }
        if let [(0, root)] = changed[..] {
            self.root = root;
        }
        Ok(())
    }

    fn update_level(
        &mut self,
        source: LeafSource,
        level: u32,
        below: &[(u64, Digest)],
    ) -> Result<Vec<(u64, Digest)>> {
        let mut changed = Vec::new();
        for siblings in below.chunk_by(|a, b| a.0 / FANOUT as u64 == b.0 / FANOUT as u64) {
            let k = siblings[0].0 / FANOUT as u64;
            self.load_node(source, level, k)?;
            self.note_node((level, k));
            let node = self.nodes.get_mut(&(level, k)).expect("just loaded"); // invariant: load_node put it there
            for (child, digest) in siblings {
                node.children[(child % FANOUT as u64) as usize] = *digest;
            }
            node.unsaved = true;
            changed.push((k, node_digest(source.keys, level, k, &node.children)));
        }
        Ok(changed)
    }

    /// Truncates the version to `size`. The group of the new last chunk is loaded, and its slot is
    /// already set.
    pub(crate) fn shrink(&mut self, source: LeafSource, size: u64) -> Result<()> {
        let last_group = layout::groups(size) - 1;
        self.load(source, last_group)?;
        let (before, after) = (self.levels(), layout::levels(layout::groups(size)));
        let mut boundary = last_group;
        for level in 1..=before {
            let (k, place) = (boundary / FANOUT as u64, (boundary % FANOUT as u64) as usize);
            self.load_node(source, level, k)?;
            self.note_node((level, k));
            let node = self.nodes.get_mut(&(level, k)).expect("just loaded"); // invariant: load_node put it there
            node.children[place + 1..].fill(ALL_HOLES);
            node.unsaved = true;
            boundary = k;
        }
        self.cut_entries(last_group, layout::chunks(size));
        self.size = size;
        self.drop_past(last_group, after);
        self.update(source, &BTreeSet::from([last_group]))
    }

    fn cut_entries(&mut self, group: u64, end: u64) {
        self.note_leaf(group);
        let first = layout::first_chunk(group);
        let Some(leaf) = self.leaves.get_mut(&group) else { return };
        for (place, entry) in leaf.entries.iter_mut().enumerate() {
            if first + place as u64 >= end && *entry != Entry::default() {
                *entry = Entry::default();
                leaf.stale = true;
                self.touched.insert(group);
            }
        }
    }

    fn drop_past(&mut self, last_group: u64, levels: u32) {
        let groups: Vec<u64> = self.leaves.keys().copied().filter(|g| *g > last_group).collect();
        for group in groups {
            self.note_leaf(group);
            self.leaves.remove(&group);
        }
        let past = |level: u32, k: u64| level > levels || k > last_group / (FANOUT as u64).pow(level);
        let nodes: Vec<(u32, u64)> = self.nodes.keys().copied().filter(|(l, k)| past(*l, *k)).collect();
        for place in nodes {
            self.note_node(place);
            self.nodes.remove(&place);
        }
        let past = Vec::from_iter(self.touched.split_off(&(last_group + 1)));
        if let Some(journal) = &mut self.journal {
            journal.replaced.push(Replaced::Touched(past));
        }
    }
}
