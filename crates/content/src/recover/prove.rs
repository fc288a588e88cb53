//! R1: finds which versions named by the newest record are proven by the stored slots.

use super::{CrashRecovery, DirtyFile, indexed};
use crate::{
    error::{Damage, Result},
    tree::RootBuilder,
};
use format::{
    entry::{Entry, Slot},
    layout,
    record::Version,
    tree::{Digest, leaf_digest},
};

/// Result of reading the stored slots.
pub(super) struct Proven {
    /// The proven versions, newest first; at least one.
    pub(super) versions: Vec<Version>,
    /// Groups with slots above the base, ascending.
    pub(super) groups: Vec<u64>,
}

/// The slot of a chunk that counts at a version over `base`. The version may be the base itself.
pub(super) fn slot_at(entry: &Entry, index: u64, version: &Version, base: &Version) -> Option<Slot> {
    let (_, slot) =
        entry.current(Some(version.epoch), None).filter(|_| index < layout::chunks(version.size))?;
    // An older slot past the base's end is left over from a version before a truncation.
    (slot.epoch > base.epoch || index < layout::chunks(base.size)).then_some(slot)
}

impl CrashRecovery<'_> {
    /// Reads all slots and finds the versions that they prove.
    ///
    /// # Errors
    /// `Damaged` if they prove none.
    pub(super) fn prove(&self, dirty: &DirtyFile) -> Result<Proven> {
        let DirtyFile { identity, versions, base } = dirty;
        let mut roots: Vec<_> =
            versions.iter().map(|version| RootBuilder::new(&identity.keys, version.size)).collect();
        let sizes = || versions.iter().map(|version| version.size);
        let (smallest, largest) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        let mut groups = Vec::new();
        self.backing.each_group(layout::groups(largest), |group, raw| {
            let entries = Vec::from_iter(indexed(group, raw));
            let mut epochs = entries.iter().flat_map(|(_, entry)| entry.0).flatten().map(|slot| slot.epoch);
            if epochs.any(|epoch| epoch > base.epoch) {
                groups.push(group);
            }
            let digest = |version: &Version| -> Digest {
                let slots: Vec<_> =
                    entries.iter().map(|(index, entry)| slot_at(entry, *index, version, base)).collect();
                leaf_digest(&identity.keys, group, slots.iter().map(Option::as_ref))
            };
            let same = is_plain(&entries, base, smallest).then(|| digest(base));
            for (version, root) in versions.iter().zip(&mut roots) {
                if group < layout::groups(version.size) {
                    root.add(group, same.unwrap_or_else(|| digest(version)), &mut |_, _, _: &_| Ok(()))?;
                }
            }
            Ok(())
        })?;
        let mut proven = Vec::new();
        for (version, root) in versions.iter().zip(roots) {
            if root.finish(&mut |_, _, _: &_| Ok(()))? == version.root {
                proven.push(*version);
            }
        }
        if proven.is_empty() {
            let reason = "give none of the versions that the commit record names";
            return Err(Damage { what: "entries".into(), reason }.into());
        }
        Ok(Proven { versions: proven, groups })
    }
}

/// Whether a group is the same in all versions: it has no slots above the base, and no version ends in
/// it.
fn is_plain(entries: &[(u64, Entry)], base: &Version, smallest: u64) -> bool {
    let is_plain = |(index, entry): &(u64, Entry)| {
        *index < layout::chunks(smallest) && entry.0.iter().flatten().all(|slot| slot.epoch <= base.epoch)
    };
    entries.iter().all(is_plain)
}
