//! Loads pages from the store, each verified against the digest above it, and evicts them.

use super::{
    EntryTree, FANOUT, Leaf, LeafSource, TOGETHER, TreeNode, damaged_leaf, decode_entries, digests_of,
    read_entries,
};
use crate::error::{Damage, Result};
use format::{
    entry::{ENTRY, Entry},
    layout,
    tree::{ALL_HOLES, Digest, node_digest},
};
use std::{collections::HashMap, ops::Range};
use store::BackingFile;

impl EntryTree {
    /// Loads the slots of `group`.
    pub(crate) fn load(&mut self, source: LeafSource, group: u64) -> Result<()> {
        self.load_all(source, group..group + 1)
    }

    /// Loads the slots of these groups, each given once, several at a time.
    ///
    /// # Errors
    /// The first error of a group that could not be read or does not verify. All other groups are loaded.
    pub(crate) fn load_all(
        &mut self,
        source: LeafSource,
        groups: impl IntoIterator<Item = u64>,
    ) -> Result<()> {
        let mut outcome = Ok(());
        let missing: Vec<u64> = groups.into_iter().filter(|group| !self.is_loaded(*group)).collect();
        for some in missing.chunks(TOGETHER) {
            let mut read = Vec::with_capacity(some.len());
            for &group in some {
                match self.unverified(source, group) {
                    Ok((wanted, leaf)) => read.push((group, wanted, leaf)),
                    Err(e) => outcome = outcome.and(Err(e)),
                }
            }
            let leaves = read.iter().map(|(group, _, leaf)| (*group, &leaf.entries[..]));
            let found = digests_of(source.keys, leaves);
            for ((group, wanted, leaf), found) in read.into_iter().zip(found) {
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

    /// Like `load_all`, for groups not needed yet: loads as many as there is room for, and ignores
    /// errors.
    pub(crate) fn load_along(&mut self, source: LeafSource, groups: Range<u64>) {
        let end = groups.end.min(groups.start.saturating_add(self.share.room() as u64));
        let _ = self.load_all(source, groups.start..end); // the read that needs it reports the error
    }

    /// The digest that a group must have, and its leaf as stored.
    fn unverified(&mut self, source: LeafSource, group: u64) -> Result<(Digest, Leaf)> {
        let wanted = self.group_digest(source, group)?;
        let header = self.first.take_if(|_| group == 0);
        Ok((wanted, self.read_leaf(source, group, wanted, header)?))
    }

    /// The stored leaf of a group with the digest `wanted`. `header`: the stored entries, if they were
    /// read already.
    pub(super) fn read_leaf(
        &self,
        source: LeafSource,
        group: u64,
        wanted: Digest,
        header: Option<Vec<u8>>,
    ) -> Result<Leaf> {
        if wanted == ALL_HOLES && !self.touched.contains(&group) && group > 0 {
            let entries = vec![Entry::default(); layout::entries_in(group)];
            return Ok(Leaf { entries, stale: false });
        }
        let raw = match header {
            Some(raw) => raw,
            // Nothing was ever committed. Any stored entries are left over from a first flush whose
            // record a crash lost. They are removed before the next version is written.
            None if self.epoch == 0 => vec![0; layout::entries_in(group) * ENTRY],
            None => read_entries(source.store, group)?,
        };
        let mut leaf = Leaf { entries: decode_entries(&raw), stale: false };
        let end = layout::chunks(self.size);
        let first = layout::first_chunk(group);
        if let Some(recovered) = &self.recovered {
            for (index, entry) in (first..).zip(&mut leaf.entries) {
                *entry = recovered.current(index, entry);
            }
            return Ok(leaf);
        }
        let canonical = !self.touched.contains(&group);
        for (place, entry) in leaf.entries.iter_mut().enumerate() {
            if entry.0.iter().flatten().any(|s| s.epoch > self.epoch) {
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
        if canonical && !are_encoded_as(&leaf.entries, &raw) {
            return Err(damaged_leaf(group, "bytes of an empty slot are set"));
        }
        Ok(leaf)
    }

    /// Evicts all leaves, unless the store has something else. Called while no leaf is in use and nothing
    /// has changed since the last clean record.
    pub(crate) fn drop_leaves(&mut self) {
        if !self.resident && self.journal.is_none() {
            self.leaves = HashMap::new();
            self.first = None;
            self.share.count(0);
        }
    }

    /// Evicts leaves if all files together have too many. Called while no leaf is in use. Does nothing
    /// during a change, because the store does not have the new leaves yet.
    pub(crate) fn trim_cache(&mut self) {
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

    pub(super) fn group_digest(&mut self, source: LeafSource, group: u64) -> Result<Digest> {
        if group >= layout::groups(self.size) {
            return Ok(ALL_HOLES);
        }
        self.digest_at(source, 0, group)
    }

    /// Digest of leaf `k` (level 0) or of node page `k` of `level`.
    pub(super) fn digest_at(&mut self, source: LeafSource, level: u32, k: u64) -> Result<Digest> {
        if level == self.levels() {
            return Ok(self.root);
        }
        self.load_node(source, level + 1, k / FANOUT as u64)?;
        let parent = &self.nodes[&(level + 1, k / FANOUT as u64)];
        Ok(parent.children[(k % FANOUT as u64) as usize])
    }

    pub(super) fn load_node(&mut self, source: LeafSource, level: u32, k: u64) -> Result<()> {
        if self.nodes.contains_key(&(level, k)) {
            return Ok(());
        }
        let wanted = self.digest_at(source, level, k)?;
        let mut node = TreeNode::empty();
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
}

/// Whether these bytes are the stored form of the entries, in order.
fn are_encoded_as(entries: &[Entry], raw: &[u8]) -> bool {
    let is_encoded_as = |(entry, bytes): (&Entry, &[u8; ENTRY])| {
        let mut encoded = [0; ENTRY];
        entry.encode(&mut encoded);
        encoded == *bytes
    };
    raw.len() == entries.len() * ENTRY && entries.iter().zip(raw.as_chunks().0).all(is_encoded_as)
}

/// Reads a whole structure. Bytes past the end of the stored file are zeros, which do not authenticate.
fn read_exact(store: &dyn BackingFile, buf: &mut [u8], offset: u64) -> Result<()> {
    let n = store.read_at(buf, offset)?;
    buf[n..].fill(0);
    Ok(())
}
