//! Salvages a file whose entries do not give the root of its record.
//!
//! Digests are keyed. If the digest of a group's entries is in the node page above, the vault wrote those
//! entries for this group. Other groups are salvaged chunk by chunk, by their tags. Only a digest proves
//! that a chunk was a hole. Without one, the chunk is marked as lost, so that reads never return zeros
//! that nobody wrote.

use super::{Patches, RebuildAnchor, RebuildPlan, Rebuilder, Rebuilt, entries_below, patch_group};
use crate::{
    error::{Damage, Result},
    tree::read_entries,
};
use format::{
    entry::{Entry, Slot},
    layout,
    record::Version,
    tree::{ALL_HOLES, Digest, leaf_digest, node_digest},
};
use std::ops::Range;

/// The slot of a lost chunk. It never verifies, because a tag of zeros only occurs by chance (2⁻¹²⁸).
const LOST_CHUNK: Slot = Slot { nonce: *b"lost chunk", epoch: 1, tag: [0; 16] };
/// Maximum pages that a salvage may change, since they are held in memory. Only large unproven holes need
/// this many.
const MOST_PATCHES: usize = 1 << 17;

/// A slot and its position in the entry.
type PlacedSlot = (usize, Slot);

struct Salvage<'a> {
    rebuilder: Rebuilder<'a>,
    anchor: &'a RebuildAnchor,
    entries: Patches,
    nodes: Patches,
    /// Ranges of groups that are proven to be holes, in order.
    holes: Vec<Range<u64>>,
    /// The largest epoch of a kept slot.
    newest: u64,
}

impl Rebuilder<'_> {
    /// A plan that keeps everything that verifies.
    ///
    /// # Errors
    /// `Damaged` if too many chunks would have to be marked as lost.
    pub(super) fn salvage(&self, anchor: &RebuildAnchor) -> Result<RebuildPlan> {
        let (entries, nodes, holes) = Default::default();
        let mut salvage = Salvage { rebuilder: *self, anchor, entries, nodes, holes, newest: 1 };
        let root = salvage.digest(layout::levels(layout::groups(anchor.size)), 0, anchor.root)?;
        salvage.clear_holes()?;
        let epoch = if anchor.root.is_some() { anchor.epoch } else { salvage.newest };
        let version = Version { epoch, size: anchor.size, root };
        let Salvage { entries, nodes, .. } = salvage;
        Ok(RebuildPlan { version, entries, nodes, outcome: Rebuilt::Salvaged })
    }
}

impl Salvage<'_> {
    /// The digest of a group (level 0) or node page after the repair. `wanted` is the digest in the page
    /// above, if that means anything.
    fn digest(&mut self, level: u32, k: u64, wanted: Option<Digest>) -> Result<Digest> {
        if level == 0 {
            return self.group(k, wanted);
        }
        if wanted == Some(ALL_HOLES) {
            let groups = layout::FANOUT.pow(level);
            return Ok(self.hole(k * groups..(k + 1) * groups));
        }
        let keys = &self.anchor.identity.keys;
        let page = self.rebuilder.page(layout::node_offset(level, k))?;
        let mut stored = [ALL_HOLES; layout::FANOUT as usize];
        stored.as_flattened_mut().copy_from_slice(&page);
        let proven = wanted == Some(node_digest(keys, level, k, &stored));
        let groups = layout::groups(self.anchor.size);
        let mut children = [ALL_HOLES; layout::FANOUT as usize];
        for (child, (above, new)) in (k * layout::FANOUT..).zip(stored.iter().zip(&mut children)) {
            if child * layout::FANOUT.pow(level - 1) >= groups {
                break;
            }
            // In an unproven page, zeros mean nothing.
            *new = self.digest(level - 1, child, (proven || *above != ALL_HOLES).then_some(*above))?;
        }
        if children != stored {
            self.nodes.push((layout::node_offset(level, k), children.as_flattened().to_vec()));
        }
        Ok(node_digest(keys, level, k, &children))
    }

    fn group(&mut self, group: u64, wanted: Option<Digest>) -> Result<Digest> {
        if wanted == Some(ALL_HOLES) && group > 0 {
            return Ok(self.hole(group..group + 1));
        }
        if self.entries.len() + self.nodes.len() >= MOST_PATCHES {
            let reason = "more of its holes than can be marked are not proven";
            return Err(Damage { what: "entries".into(), reason }.into());
        }
        let raw = read_entries(&*self.rebuilder.backing.store, group)?;
        let entries = entries_below(group, &raw, self.anchor.size);
        let newest: Vec<Option<PlacedSlot>> =
            entries.iter().map(|entry| entry.current(Some(self.anchor.epoch), None)).collect();
        let kept = if wanted == Some(self.leaf(group, &newest)) {
            newest
        } else {
            let stored = self.stored(group, &entries)?;
            let or_newest = |(stored, newest): (&Option<PlacedSlot>, &Option<PlacedSlot>)| stored.or(*newest);
            let best: Vec<Option<PlacedSlot>> = stored.iter().zip(&newest).map(or_newest).collect();
            if wanted == Some(self.leaf(group, &best)) { best } else { self.mark(group, stored) }
        };
        self.newest = kept.iter().flatten().map(|(_, slot)| slot.epoch).fold(self.newest, u64::max);
        patch_group(&mut self.entries, group, &raw, &kept);
        Ok(self.leaf(group, &kept))
    }

    /// Adds groups that are proven to be holes, whatever the store has there.
    fn hole(&mut self, groups: Range<u64>) -> Digest {
        match self.holes.last_mut() {
            Some(last) if last.end == groups.start => last.end = groups.end,
            _ => self.holes.push(groups),
        }
        ALL_HOLES
    }

    /// Empties stored entries in holes, since the entries must give the root without the node pages.
    fn clear_holes(&mut self) -> Result<()> {
        let Salvage { rebuilder, anchor, entries, holes, .. } = self;
        rebuilder.backing.each_group(layout::groups(anchor.size), |group, raw| {
            let nearest = holes.get(holes.partition_point(|hole| hole.end <= group));
            if nearest.is_some_and(|hole| hole.contains(&group)) && raw.iter().any(|byte| *byte != 0) {
                entries.push((layout::entries_offset(group), vec![0; raw.len()]));
            }
            Ok(())
        })
    }

    /// The newest slot of each chunk under which its data verifies.
    fn stored(&self, group: u64, entries: &[Entry]) -> Result<Vec<Option<PlacedSlot>>> {
        let RebuildAnchor { identity, size, epoch, .. } = self.anchor;
        let mut all = Vec::with_capacity(entries.len());
        for (index, entry) in (layout::first_chunk(group)..).zip(entries) {
            let mut best: Option<PlacedSlot> = None;
            for (place, slot) in entry.0.iter().enumerate() {
                if let Some(slot) = slot.filter(|slot| slot.epoch <= *epoch)
                    && best.is_none_or(|(_, best)| best.epoch < slot.epoch)
                    && self.rebuilder.backing.verifies(
                        identity,
                        index,
                        slot,
                        layout::chunk_len(*size, index),
                    )?
                {
                    best = Some((place, slot));
                }
            }
            all.push(best);
        }
        Ok(all)
    }

    /// Marks chunks without a verifying slot as lost.
    fn mark(&self, group: u64, mut kept: Vec<Option<PlacedSlot>>) -> Vec<Option<PlacedSlot>> {
        let chunks = layout::chunks(self.anchor.size);
        for (_, slot) in (layout::first_chunk(group)..chunks).zip(&mut kept) {
            slot.get_or_insert((0, LOST_CHUNK));
        }
        kept
    }

    fn leaf(&self, group: u64, kept: &[Option<PlacedSlot>]) -> Digest {
        let slots = kept.iter().map(|kept| kept.as_ref().map(|(_, slot)| slot));
        leaf_digest(&self.anchor.identity.keys, group, slots)
    }
}
