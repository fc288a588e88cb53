//! The slots and digests of the newest flushed version, loaded as needed and verified as they are.
//!
//! What is in memory has been verified against the root. A leaf holds no slot past the end of the
//! version and none newer than it, so a chunk's current slot is simply the newer of its two.

use super::slots::{Share, SlotMemory};
use crate::{
    crypto::kdf::FileKeys,
    format::{
        entry::{ENTRY, Entry, Slot},
        layout,
        tree::{ALL_HOLES, Digest, leaf_digest, leaf_digests, node_digest},
    },
    store::BackingFile,
    vault::{Damage, Result},
};
use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
};

/// Children of a node page.
const FANOUT: usize = layout::FANOUT as usize;
/// Leaves whose digests are computed side by side.
const TOGETHER: usize = 8;

/// Where the tree is loaded from and verified with.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) store: &'a dyn BackingFile,
    pub(super) keys: &'a FileKeys,
}

#[derive(Clone)]
struct Leaf {
    entries: Vec<Entry>,
    /// The stored page holds entries past the end that are no longer here.
    stale: bool,
}

#[derive(Clone)]
struct Node {
    children: Box<[Digest; FANOUT]>,
    /// Differs from the stored page.
    unsaved: bool,
}

impl Node {
    fn empty() -> Self {
        Node { children: Box::new([ALL_HOLES; FANOUT]), unsaved: true }
    }
}

/// What a change replaced, so that a change that could not be stored can be taken back.
struct Journal {
    leaves: HashMap<u64, Option<Leaf>>,
    nodes: HashMap<(u32, u64), Option<Node>>,
    root: Digest,
    size: u64,
}

/// Slots and digests of one version.
pub(super) struct Tree {
    leaves: HashMap<u64, Leaf>,
    nodes: HashMap<(u32, u64), Node>,
    root: Digest,
    size: u64,
    /// No slot above it is taken from the store.
    pub(super) newest_epoch: u64,
    /// Groups whose stored entries may hold more than the current slots.
    touched: BTreeSet<u64>,
    journal: Option<Journal>,
    /// Of the leaves of all files.
    share: Share,
    /// Nothing may be dropped from memory: the store may hold something else (a read-only recovery, a
    /// flush that failed half-way).
    pub(super) resident: bool,
}

impl Tree {
    /// The tree of a version whose root was authenticated.
    pub(super) fn new(root: Digest, size: u64, newest_epoch: u64, memory: &SlotMemory) -> Self {
        Tree {
            leaves: HashMap::new(),
            nodes: HashMap::new(),
            root,
            size,
            newest_epoch,
            touched: BTreeSet::new(),
            journal: None,
            share: Share::of(memory),
            resident: false,
        }
    }

    /// The tree over these leaves, every node computed anew.
    pub(super) fn build(
        keys: &FileKeys,
        leaves: Vec<Vec<Entry>>,
        size: u64,
        newest_epoch: u64,
        memory: &SlotMemory,
    ) -> Self {
        let mut tree = Tree::new(ALL_HOLES, size, newest_epoch, memory);
        let mut digests: Vec<Digest> =
            leaves.iter().enumerate().map(|(g, entries)| digest_of(keys, g as u64, entries)).collect();
        let levels = layout::levels(digests.len() as u64);
        for level in 1..=levels {
            let mut above = Vec::with_capacity(digests.len().div_ceil(FANOUT));
            for (k, children) in digests.chunks(FANOUT).enumerate() {
                let mut node = Node::empty();
                node.children[..children.len()].copy_from_slice(children);
                above.push(node_digest(keys, level, k as u64, &node.children));
                tree.nodes.insert((level, k as u64), node);
            }
            digests = above;
        }
        tree.root = digests.first().copied().unwrap_or(ALL_HOLES);
        for (g, entries) in leaves.into_iter().enumerate() {
            if g == 0 || entries.iter().any(|e| *e != Entry::default()) {
                tree.leaves.insert(g as u64, Leaf { entries, stale: false });
            }
        }
        tree
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

    /// Whether the slots of `group` are in memory (or known to be none).
    pub(super) fn is_loaded(&self, group: u64) -> bool {
        self.leaves.contains_key(&group)
    }

    /// The current slot of a chunk.
    ///
    /// # Errors
    /// If its group is not loaded: a hole must never be made up.
    pub(super) fn slot(&self, index: u64) -> Result<Option<Slot>> {
        Ok(current(&self.entry(index)?))
    }

    /// The entry of a chunk; as `slot`.
    pub(super) fn entry(&self, index: u64) -> Result<Entry> {
        let group = layout::group_of(index);
        match self.leaves.get(&group) {
            Some(leaf) => Ok(leaf.entries[layout::place_in_group(index)]),
            None => Err(damaged_leaf(group, "is needed but not loaded")),
        }
    }

    /// Whether the stored entries of `group` hold some past the end that a growing file must erase.
    pub(super) fn is_stale(&self, group: u64) -> bool {
        self.leaves.get(&group).is_some_and(|l| l.stale)
    }

    /// Brings the slots of `group` into memory.
    pub(super) fn load(&mut self, source: Source, group: u64) -> Result<()> {
        self.load_all(source, group..group + 1)
    }

    /// Brings the slots of these groups into memory, several at once.
    ///
    /// # Errors
    /// Of the first that could not be read or does not verify; those that do are in memory.
    pub(super) fn load_all(&mut self, source: Source, groups: Range<u64>) -> Result<()> {
        let mut outcome = Ok(());
        let missing: Vec<u64> = groups.filter(|group| !self.is_loaded(*group)).collect();
        for some in missing.chunks(TOGETHER) {
            let (mut read, mut slots) = (Vec::new(), Vec::new());
            for &group in some {
                match self.unverified(source, group) {
                    Ok((wanted, leaf)) => {
                        slots.push((group, leaf.entries.iter().map(current).collect()));
                        read.push((group, wanted, leaf));
                    }
                    Err(e) => outcome = outcome.and(Err(e)),
                }
            }
            for ((group, wanted, leaf), found) in read.into_iter().zip(leaf_digests(source.keys, &slots)) {
                if found == wanted {
                    self.leaves.insert(group, leaf);
                } else {
                    outcome = outcome.and(Err(damaged_leaf(group, "digest does not match the tree")));
                }
            }
        }
        self.share.count(self.leaves.len());
        outcome
    }

    /// The same with as many of these groups as there is room for, and as can be had: nobody needs them yet.
    pub(super) fn load_along(&mut self, source: Source, groups: Range<u64>) {
        let end = groups.end.min(groups.start.saturating_add(self.share.room() as u64));
        let _ = self.load_all(source, groups.start..end); // Whoever needs one that cannot be had meets the error.
    }

    /// The digest that a group must have, and what the store has of it.
    fn unverified(&mut self, source: Source, group: u64) -> Result<(Digest, Leaf)> {
        let wanted = self.group_digest(source, group)?;
        if wanted == ALL_HOLES && !self.touched.contains(&group) && group > 0 {
            let entries = vec![Entry::default(); layout::entries_in(group)];
            return Ok((wanted, Leaf { entries, stale: false }));
        }
        Ok((wanted, self.read_leaf(source, group)?))
    }

    fn read_leaf(&self, source: Source, group: u64) -> Result<Leaf> {
        let raw = read_entries(source.store, group)?;
        let mut leaf = Leaf { entries: decode_entries(&raw), stale: false };
        let end = layout::chunks(self.size);
        let first = layout::first_chunk(group);
        let canonical = !self.touched.contains(&group);
        for (place, entry) in leaf.entries.iter_mut().enumerate() {
            if entry.0.iter().flatten().any(|s| s.epoch > self.newest_epoch) {
                return Err(damaged_leaf(group, "a slot is newer than the commit record"));
            }
            let past_end = first + place as u64 >= end;
            if past_end && *entry != Entry::default() {
                leaf.stale = true;
                *entry = Entry::default();
            }
            if canonical && (leaf.stale || entry.0.iter().flatten().count() > 1) {
                return Err(damaged_leaf(group, "holds slots that no commit left there"));
            }
        }
        if canonical && encode_entries(&leaf.entries) != raw {
            return Err(damaged_leaf(group, "bytes of an empty slot are set"));
        }
        Ok(leaf)
    }

    /// Drops all leaves that the store holds. To be called where none is in use, and nothing was changed since
    /// the last clean record.
    pub(super) fn rest(&mut self) {
        if !self.resident && self.journal.is_none() {
            self.leaves = HashMap::new();
            self.share.count(0);
        }
    }

    /// Drops leaves that the store holds, once all files have too many. To be called where none is in use. What a
    /// change that is on its way replaced stays: the store does not have it yet.
    pub(super) fn trim_cache(&mut self) {
        let mut keep = self.share.count(self.leaves.len());
        if keep == self.leaves.len() || self.resident || self.journal.is_some() {
            return;
        }
        self.leaves.retain(|_, _| {
            let stays = keep > 0;
            keep = keep.saturating_sub(1);
            stays
        });
        self.share.count(self.leaves.len());
    }

    fn group_digest(&mut self, source: Source, group: u64) -> Result<Digest> {
        if group >= layout::groups(self.size) {
            return Ok(ALL_HOLES);
        }
        self.digest_at(source, 0, group)
    }

    /// Digest of leaf `k` (level 0) or node page `k` of `level`.
    fn digest_at(&mut self, source: Source, level: u32, k: u64) -> Result<Digest> {
        if level == self.levels() {
            return Ok(self.root);
        }
        self.load_node(source, level + 1, k / FANOUT as u64)?;
        let parent = &self.nodes[&(level + 1, k / FANOUT as u64)];
        Ok(parent.children[(k % FANOUT as u64) as usize])
    }

    fn load_node(&mut self, source: Source, level: u32, k: u64) -> Result<()> {
        if self.nodes.contains_key(&(level, k)) {
            return Ok(());
        }
        let wanted = self.digest_at(source, level, k)?;
        let mut node = Node::empty();
        node.unsaved = false;
        if wanted != ALL_HOLES {
            let mut page = [0; layout::PAGE as usize];
            read_exact(source.store, &mut page, layout::node_offset(level, k))?;
            for (child, bytes) in node.children.iter_mut().zip(page.as_chunks::<32>().0) {
                *child = *bytes;
            }
            if node_digest(source.keys, level, k, &node.children) != wanted {
                return Err(Damage {
                    what: format!("node page {k} of level {level}"),
                    reason: "digest does not match the tree",
                }
                .into());
            }
        }
        self.nodes.insert((level, k), node);
        Ok(())
    }

    /// Starts a change that `keep` or `take_back` ends.
    pub(super) fn begin(&mut self) {
        self.journal =
            Some(Journal { leaves: HashMap::new(), nodes: HashMap::new(), root: self.root, size: self.size });
    }

    /// The change since `begin` is in the store.
    pub(super) fn keep(&mut self) {
        self.journal = None;
    }

    /// Undoes the change since `begin`.
    pub(super) fn take_back(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        self.root = journal.root;
        self.size = journal.size;
        for (group, leaf) in journal.leaves {
            match leaf {
                Some(leaf) => self.leaves.insert(group, leaf),
                None => self.leaves.remove(&group),
            };
        }
        for (place, node) in journal.nodes {
            match node {
                Some(node) => self.nodes.insert(place, node),
                None => self.nodes.remove(&place),
            };
        }
    }

    fn note_leaf(&mut self, group: u64) {
        if let Some(journal) = &mut self.journal {
            journal.leaves.entry(group).or_insert_with(|| self.leaves.get(&group).cloned());
        }
    }

    fn note_node(&mut self, place: (u32, u64)) {
        if let Some(journal) = &mut self.journal {
            journal.nodes.entry(place).or_insert_with(|| self.nodes.get(&place).cloned());
        }
    }

    /// Gives the version a larger size; everything new is a hole.
    pub(super) fn grow(&mut self, source: Source, size: u64) -> Result<()> {
        let (before, after) = (self.levels(), layout::levels(layout::groups(size)));
        let mut digest = self.root;
        for level in before + 1..=after {
            let mut node = Node::empty();
            node.children[0] = digest;
            digest = node_digest(source.keys, level, 0, &node.children);
            self.note_node((level, 0));
            self.nodes.insert((level, 0), node);
        }
        self.root = digest;
        self.size = size;
        Ok(())
    }

    /// Sets the entry of a chunk whose group is loaded. `update` must follow.
    pub(super) fn set_entry(&mut self, index: u64, entry: Entry) {
        let group = layout::group_of(index);
        self.note_leaf(group);
        self.touched.insert(group);
        if let Some(leaf) = self.leaves.get_mut(&group) {
            leaf.entries[layout::place_in_group(index)] = entry;
        }
    }

    /// Computes the digests above these groups (loaded, in ascending order).
    pub(super) fn update(&mut self, source: Source, groups: &BTreeSet<u64>) -> Result<()> {
        let mut changed: Vec<(u64, Digest)> = Vec::with_capacity(groups.len());
        for group in groups {
            let leaf = &self.leaves[group]; // invariant: the caller loaded it
            changed.push((*group, digest_of(source.keys, *group, &leaf.entries)));
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
        source: Source,
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

    /// Cuts the version to `size`. The group of the new last chunk is loaded and its slot already set.
    pub(super) fn shrink(&mut self, source: Source, size: u64) -> Result<()> {
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
        self.touched.retain(|g| *g <= last_group);
    }

    /// The stored form of a loaded group's entries, once `erased` past its end.
    pub(super) fn entries_bytes(&mut self, group: u64) -> Vec<u8> {
        match self.leaves.get_mut(&group) {
            Some(leaf) => {
                leaf.stale = false;
                encode_entries(&leaf.entries)
            }
            None => vec![0; layout::entries_in(group) * ENTRY],
        }
    }

    /// Groups that were written since the last clean record.
    pub(super) fn touched(&self) -> Vec<u64> {
        self.touched.iter().copied().collect()
    }

    /// Whether an entry in memory holds more than its current slot; marks the groups where it does.
    pub(super) fn has_older_slots(&mut self) -> bool {
        let older = |leaf: &Leaf| leaf.entries.iter().any(|entry| entry.0.iter().flatten().count() > 1);
        self.touched.extend(self.leaves.iter().filter(|(_, leaf)| older(leaf)).map(|(group, _)| *group));
        !self.touched.is_empty()
    }

    /// Whether the store is known to hold exactly the current slots of every group written since the last
    /// clean record.
    pub(super) fn is_canonical(&self) -> bool {
        let exact =
            |leaf: &Leaf| !leaf.stale && leaf.entries.iter().all(|e| e.0.iter().flatten().count() < 2);
        !self.resident && self.touched.iter().all(|group| self.leaves.get(group).is_some_and(exact))
    }

    /// Drops every slot of a loaded group but the current ones; whether the stored page has to change.
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

    /// Offset and bytes of every node page that the store does not hold.
    pub(super) fn unsaved_nodes(&self) -> Vec<(u64, Vec<u8>)> {
        let page = |n: &Node| n.children.as_flattened().to_vec();
        let unsaved = self.nodes.iter().filter(|(_, n)| n.unsaved);
        let mut pages: Vec<_> =
            unsaved.map(|((level, k), n)| (layout::node_offset(*level, *k), page(n))).collect();
        pages.sort();
        pages
    }

    /// The stored pages are those of a clean record: canonical leaves, nodes saved.
    pub(super) fn set_clean(&mut self) {
        self.touched.clear();
        self.resident = false;
        self.nodes.values_mut().for_each(|n| n.unsaved = false);
    }

    /// First chunk from `index` on that has data (`data`) or has none, below the end of the version.
    pub(super) fn seek(&mut self, source: Source, mut index: u64, data: bool) -> Result<Option<u64>> {
        let end = layout::chunks(self.size);
        while index < end {
            let group = layout::group_of(index);
            if self.group_digest(source, group)? == ALL_HOLES {
                if !data {
                    return Ok(Some(index));
                }
                index = layout::first_chunk(self.skip_holes(source, group)?);
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

    /// The first group after a run of empty subtrees that starts at `group`.
    fn skip_holes(&mut self, source: Source, group: u64) -> Result<u64> {
        let mut span = 1;
        for level in 1..=self.levels() {
            let wider = span * FANOUT as u64;
            if !group.is_multiple_of(wider) || self.digest_at(source, level, group / wider)? != ALL_HOLES {
                break;
            }
            span = wider;
        }
        Ok(group + span)
    }
}

/// The newer slot of an entry.
pub(super) fn current(entry: &Entry) -> Option<Slot> {
    entry.current(Some(u64::MAX), None).map(|(_, slot)| slot)
}

fn digest_of(keys: &FileKeys, group: u64, entries: &[Entry]) -> Digest {
    let slots: Vec<Option<Slot>> = entries.iter().map(current).collect();
    leaf_digest(keys, group, &slots)
}

/// The stored entries of a group; zeros past the end of the store.
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

/// Reads a whole structure; what the store lacks is zeros, which will not authenticate.
fn read_exact(store: &dyn BackingFile, buf: &mut [u8], offset: u64) -> Result<()> {
    let n = store.read_at(buf, offset)?;
    buf[n..].fill(0);
    Ok(())
}

fn damaged_leaf(group: u64, reason: &'static str) -> crate::vault::Error {
    Damage { what: format!("leaf page {group}"), reason }.into()
}
