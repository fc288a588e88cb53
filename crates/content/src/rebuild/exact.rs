//! Repair of a file whose entries give the root of its record. Only node pages, leftover slots, the other
//! record or the length can then be wrong.

use super::{
    FileIdentity, Patches, RebuildAnchor, RebuildPlan, Rebuilder, Rebuilt, entries_below, patch_group,
};
use crate::{error::Result, tree::RootBuilder};
use format::{
    layout,
    record::Version,
    tree::{Digest, leaf_digest},
};

impl Rebuilder<'_> {
    /// A plan that keeps everything; `None` if the entries do not give the root.
    pub(super) fn exact(&self, anchor: &RebuildAnchor) -> Result<Option<RebuildPlan>> {
        let Some(root) = anchor.root else { return Ok(None) };
        let (given, entries, nodes) = self.collect(&anchor.identity, anchor.size, anchor.epoch)?;
        if given != root {
            return Ok(None);
        }
        let version = Version { epoch: anchor.epoch, size: anchor.size, root };
        Ok(Some(RebuildPlan { version, entries, nodes, outcome: Rebuilt::Exact }))
    }

    /// The root over the newest slots up to `epoch`.
    pub(super) fn root(&self, identity: &FileIdentity, size: u64, epoch: u64) -> Result<Digest> {
        Ok(self.collect(identity, size, epoch)?.0)
    }

    /// The root, and the entries and node pages that differ from the stored ones.
    fn collect(&self, identity: &FileIdentity, size: u64, epoch: u64) -> Result<(Digest, Patches, Patches)> {
        let mut root = RootBuilder::new(&identity.keys, size);
        let (mut patches, mut nodes) = (Vec::new(), Vec::new());
        let mut sink = |level, k, children: &[Digest; layout::FANOUT as usize]| {
            let (at, bytes) = (layout::node_offset(level, k), children.as_flattened());
            if self.page(at)? != bytes {
                nodes.push((at, bytes.to_vec()));
            }
            Ok(())
        };
        self.backing.each_group(layout::groups(size), |group, raw| {
            let entries = entries_below(group, raw, size);
            let kept: Vec<_> = entries.iter().map(|entry| entry.current(Some(epoch), None)).collect();
            let slots = kept.iter().map(|kept| kept.as_ref().map(|(_, slot)| slot));
            let leaf = leaf_digest(&identity.keys, group, slots);
            patch_group(&mut patches, group, raw, &kept);
            root.add(group, leaf, &mut sink)
        })?;
        let root = root.finish(&mut sink)?;
        Ok((root, patches, nodes))
    }

    /// A stored page; zeros past the end of the stored file.
    pub(super) fn page(&self, at: u64) -> Result<[u8; layout::PAGE as usize]> {
        let mut page = [0; layout::PAGE as usize];
        self.backing.store.read_at(&mut page, at)?;
        Ok(page)
    }
}
