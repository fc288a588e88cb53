//! Rebuilds a damaged stored file: corrects records, entries, node pages and length, so that every chunk
//! that verifies can be read, and no other. For `check --repair` only, because it may accept an older
//! version of a chunk.
//!
//! | module | purpose |
//! |---|---|
//! | `anchor` | identity of the file, and what its records still prove |
//! | `exact` | keeps everything, if the entries give the root of the record |
//! | `salvage` | otherwise keeps the parts that verify by themselves |

mod anchor;
mod exact;
mod salvage;

use super::{
    backing::Backing,
    context::Context,
    error::{Error, Result},
    record::FileIdentity,
    tree::decode_entries,
};
use anchor::RebuildAnchor;
use format::{
    entry::{ENTRY, Entry, Slot},
    layout,
    record::{Claim, Record, Version},
};
use std::{io, sync::Arc};
use store::BackingFile;

/// Result of rebuilding a damaged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebuilt {
    /// The entries give the root of the commit record: the content is the last committed version.
    Exact,
    /// Every chunk that verifies was kept. The others cannot be read, nor can holes that nothing proves.
    Salvaged,
    /// No key of this vault opens any part of it. The file is unchanged.
    Foreign,
    /// No part of it opens, and its header was blank. It is an empty file now.
    Emptied,
}

/// Ranges of the stored file to change: offset and new bytes.
type Patches = Vec<(u64, Vec<u8>)>;

/// The version that a file gets, and the pages that must be written for it.
struct RebuildPlan {
    version: Version,
    /// Pages of entries. Once they are written, they alone give the version's root.
    entries: Patches,
    nodes: Patches,
    outcome: Rebuilt,
}

/// The steps of rebuilding a stored file.
#[derive(Clone, Copy)]
struct Rebuilder<'a> {
    backing: &'a Backing,
}

/// Rebuilds the stored file. `keep` is called before anything useful may be overwritten, and makes a
/// copy.
///
/// After an interruption, it can be repeated: the data it depends on is changed last.
///
/// # Errors
/// The store's, and those of `keep`.
pub fn rebuild(
    store: Arc<dyn BackingFile>,
    context: Arc<Context>,
    keep: impl FnOnce() -> io::Result<()>,
) -> Result<Rebuilt> {
    let backing = Backing::new(store, context);
    let rebuilder = Rebuilder { backing: &backing };
    let Some(anchor) = rebuilder.anchor()? else { return Ok(Rebuilt::Foreign) };
    // A new record under that key would not be on the list of accepted ones.
    if backing.context.keys.are_to_go(&anchor.identity.id) {
        return Err(Error::Invalid(
            "the file is under the vault's former key: copy what can be read of it, and remove it",
        ));
    }
    let plan = match rebuilder.exact(&anchor)? {
        Some(plan) => plan,
        None => rebuilder.salvage(&anchor)?,
    };
    let length = layout::stored_size(plan.version.size);
    if plan.outcome != Rebuilt::Exact || backing.store.len()? > length {
        keep()?;
    }
    rebuilder.put_plan(&anchor, &plan, length)?;
    Ok(plan.outcome)
}

impl Rebuilder<'_> {
    /// Carries out a plan: writes entries and length, then the record in both sectors, then the node
    /// pages. Until the record is written, only the old node pages prove which chunks are holes. From
    /// then on, the new ones follow from the entries.
    fn put_plan(&self, anchor: &RebuildAnchor, plan: &RebuildPlan, length: u64) -> Result<()> {
        let done = plan.entries.is_empty() && plan.nodes.is_empty() && self.backing.store.len()? == length;
        if anchor.recorded && done {
            return Ok(());
        }
        let (seconds, nanoseconds) = self.backing.store.mtime()?;
        self.put_pages(&plan.entries)?;
        if self.backing.store.len()? != length {
            self.backing.store.set_len(length)?;
        }
        self.backing.store.sync_data()?;
        let FileIdentity { id, keys } = &*anchor.identity;
        let record =
            Record { sequence: anchor.sequence + 1, key: *id, target: plan.version, claim: Claim::Clean }
                .encode(&keys.record);
        self.backing.store.write_at([record; 2].as_flattened(), 0)?;
        self.backing.store.sync_data()?;
        if !plan.nodes.is_empty() {
            self.put_pages(&plan.nodes)?;
            self.backing.store.sync_data()?;
        }
        Ok(self.backing.store.set_mtime(seconds, nanoseconds)?)
    }

    fn put_pages(&self, patches: &Patches) -> io::Result<()> {
        patches.iter().try_for_each(|(at, bytes)| self.backing.store.write_at(bytes, *at))
    }
}

/// The stored entries of a group, with those past the end of a file of `size` bytes emptied.
fn entries_below(group: u64, raw: &[u8], size: u64) -> Vec<Entry> {
    let mut entries = decode_entries(raw);
    let end = layout::chunks(size).saturating_sub(layout::first_chunk(group));
    entries
        .iter_mut()
        .skip(usize::try_from(end).unwrap_or(usize::MAX))
        .for_each(|entry| *entry = Entry::default());
    entries
}

/// Adds the new page of a group if it differs. It has only these slots, each in its position.
fn patch_group(patches: &mut Patches, group: u64, raw: &[u8], kept: &[Option<(usize, Slot)>]) {
    let mut bytes = vec![0; raw.len()];
    for (slot, out) in kept.iter().zip(bytes.as_chunks_mut::<ENTRY>().0) {
        let mut entry = Entry::default();
        if let Some((place, slot)) = slot {
            entry.0[*place] = Some(*slot);
        }
        entry.encode(out);
    }
    if bytes != raw {
        patches.push((layout::entries_offset(group), bytes));
    }
}
