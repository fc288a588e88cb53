//! R2: chooses the slot for each chunk. It is that of the newest proven version if its data is present,
//! otherwise what an older proven version says. At a recovery record, the choice was made already.
//!
//! A slot never counts by its tag alone. If a file was copied and both copies were written, the tags of
//! both verify. Only a root tells which slots belong together.

use super::{CrashRecovery, DirtyFile, Proven, indexed};
use crate::{
    error::{Damage, Result},
    record::FileIdentity,
    rules::{Rule, holds},
    tree::{Recovered, read_entries},
};
use format::{
    entry::Slot,
    layout,
    record::{Recovery, Version},
};

/// Substitute for missing data.
enum Fallback {
    /// The content in an older proven version: the base's slot, or a hole.
    Older,
    /// No content: the file ends here.
    End(u64),
    /// None, although there should be one: the chunk is damaged.
    Damaged,
}

impl CrashRecovery<'_> {
    /// Assembles the newest proven version, as far as its data is present.
    pub(super) fn choose(&self, dirty: &DirtyFile, proven: &Proven) -> Result<Recovered> {
        let version = proven.versions[0];
        let limit = if holds(Rule::OnlyProven) { version.epoch } else { dirty.versions[0].epoch };
        let mut recovered = Recovered::new(dirty.base, version.size, limit);
        for group in &proven.groups {
            for (index, entry) in indexed(*group, &read_entries(&*self.backing.store, *group)?) {
                let Some((place, slot)) = recovered.above_base(index, &entry) else { continue };
                let len = layout::chunk_len(version.size, index);
                if !holds(Rule::VerifyData) || self.backing.verifies(&dirty.identity, index, slot, len)? {
                    recovered.keep(index, place);
                    continue;
                }
                match fallback(index, slot, &proven.versions) {
                    Fallback::Older => {}
                    Fallback::End(size) => {
                        recovered.size = size;
                        return Ok(recovered);
                    }
                    Fallback::Damaged => recovered.keep_unreadable(index, place),
                }
            }
        }
        Ok(recovered)
    }

    /// The choice that an earlier recovery of this file recorded as `target`.
    ///
    /// # Errors
    /// `Damaged` if it cannot be reproduced. No older version is tried, because parts of it may be
    /// erased.
    pub(super) fn resume(
        &self,
        identity: &FileIdentity,
        target: &Version,
        recovery: &Recovery,
    ) -> Result<Recovered> {
        let limit = if holds(Rule::LimitOfRecovery) { recovery.limit } else { target.epoch };
        let mut recovered = Recovered::new(recovery.base, target.size, limit);
        let mut chosen = Vec::new();
        self.backing.each_group(layout::groups(target.size), |group, raw| {
            for (index, entry) in indexed(group, raw) {
                let Some((place, slot)) = recovered.above_base(index, &entry) else { continue };
                let unreadable = recovery.unreadable.binary_search(&index).is_ok();
                let len = layout::chunk_len(target.size, index);
                let counts = unreadable
                    || !holds(Rule::VerifyAtRecovery)
                    || self.backing.verifies(identity, index, slot, len)?;
                chosen.extend(counts.then_some((index, place, unreadable)));
            }
            Ok(())
        })?;
        for (index, place, unreadable) in chosen {
            if unreadable { recovered.keep_unreadable(index, place) } else { recovered.keep(index, place) }
        }
        if self.each_node(identity, &recovered, &mut |_, _, _: &_| Ok(()))? != target.root {
            let reason = "give not what a recovery that was cut short had put together";
            return Err(Damage { what: "entries".into(), reason }.into());
        }
        Ok(recovered)
    }
}

/// Content that the versions before the newest proven one give to a chunk whose data is missing.
fn fallback(index: u64, slot: Slot, versions: &[Version]) -> Fallback {
    let Some((version, older)) = versions.split_first() else { return Fallback::Damaged };
    // A version with the same slot does not help.
    let Some(before) = older.iter().find(|older| older.epoch < slot.epoch) else { return Fallback::Damaged };
    let len = |version: &Version| layout::chunk_len(version.size, index);
    if len(before) == len(version) || !holds(Rule::ProvenHoles) {
        Fallback::Older
    } else if len(before) < len(version) {
        // The chunk is past the older version's end, or has grown since.
        Fallback::End(before.size.max(index * layout::CHUNK))
    } else {
        Fallback::Damaged
    }
}
