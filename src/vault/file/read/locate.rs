//! Where the content of a chunk is: in the buffer, in the store under a slot, or nowhere, so that it reads as zeros.

use crate::{
    crypto::chunk::ChunkId,
    format::{
        entry::{Entry, Slot},
        layout,
    },
    vault::{
        Result,
        file::{
            File,
            chunk_range::ChunkRange,
            damage::damaged_chunk,
            rules::{Rule, holds},
            state::State,
            tree::current,
        },
        sync::RwLockReadGuard,
    },
};
use std::ops::Range;

/// Chunks of a read from which on the slots of the groups behind it are loaded along, and how many groups that are
/// (8 MiB). A reader of a long range often goes on, and loading slots keeps the file's other readers
/// waiting until those before have the chunks that they read.
const LONG: u64 = layout::GROUP;
const ALONG: u64 = 32;

impl File {
    /// The file's state, with the slots of these chunks loaded as far as they exist, and none of them in flight.
    pub(super) fn state_with_slots(&self, chunks: &ChunkRange) -> Result<RwLockReadGuard<'_, State>> {
        let st = self.state.read();
        if is_at_hand(&st, chunks) {
            return Ok(st);
        }
        if let Some(groups) = few_to_load(&st, chunks)
            && let Some(identity) = &st.stored.identity
            && st.stored.tree.load_beside(self.source(identity), groups)
        {
            return Ok(st);
        }
        drop(st);
        let mut st = self.state.write();
        self.complete_to_read(&mut st, chunks);
        if let Some((groups, identity)) = missing_groups(&st, chunks).zip(st.stored.identity.clone()) {
            let (source, tree) = (self.source(&identity), &mut st.stored.tree);
            tree.trim_cache();
            tree.load_all(source, groups.clone())?;
            if chunks.end - chunks.start >= LONG {
                let end = layout::groups(tree.size()).min(groups.end + ALONG);
                tree.load_along(source, groups.end..end);
            }
        }
        Ok(st.downgrade())
    }

    /// The slot of a chunk whose content is in the store; `None` for zeros.
    ///
    /// # Errors
    /// `Damaged` if it is a hole that does not authenticate.
    pub(super) fn stored_slot(&self, st: &State, index: u64) -> Result<Option<Slot>> {
        if index >= layout::chunks(st.stored.tree.size()) {
            return Ok(None);
        }
        slot_to_open(st, index, &st.stored.tree.entry(index)?)
    }
}

/// The same, where its entry is known.
pub(super) fn slot_to_open(st: &State, index: u64, entry: &Entry) -> Result<Option<Slot>> {
    let Some(slot) = current(entry).filter(|_| !st.dirty.buffer.is_punched(index)) else { return Ok(None) };
    if !slot.is_hole() {
        return Ok(Some(slot));
    }
    let id = ChunkId { index, epoch: slot.epoch, nonce: slot.nonce };
    match &st.stored.identity {
        Some(identity) if identity.keys.chunk.verify_hole(&id, &slot.tag).is_ok() => Ok(None),
        Some(_) | None => Err(damaged_chunk(index)),
    }
}

/// Whether chunks can be read with this state as it is: their slots are loaded, as far as they exist, and
/// none is in flight.
pub(super) fn is_at_hand(st: &State, chunks: &ChunkRange) -> bool {
    missing_groups(st, chunks).is_none()
        && !(File::is_in_flight(st, chunks) && holds(Rule::CompleteBeforeReading))
}

/// The groups of a short range, if one of them is not loaded, and nothing else keeps the range from being read.
fn few_to_load(st: &State, chunks: &ChunkRange) -> Option<Range<u64>> {
    let is_short = chunks.end - chunks.start < LONG;
    missing_groups(st, chunks).filter(|_| is_short && !File::is_in_flight(st, chunks))
}

/// The groups of chunks, if one of them is not loaded.
fn missing_groups(st: &State, chunks: &ChunkRange) -> Option<Range<u64>> {
    let tree = &st.stored.tree;
    let end = chunks.end.min(layout::chunks(tree.size()));
    let first = layout::group_of(chunks.start);
    let groups = first..if chunks.start < end { layout::group_of(end - 1) + 1 } else { first };
    groups.clone().any(|group| !tree.is_loaded(group)).then_some(groups)
}
