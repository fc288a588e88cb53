//! Finds the content of a chunk: in the buffer, in the store under a slot, or nowhere, in which case it
//! reads as zeros.

use crate::{
    chunk_range::ChunkRange,
    damage::damaged_chunk,
    error::Result,
    rules::{Rule, holds},
    state::State,
    tree::current,
};
use crypto::chunk::ChunkId;
use format::{
    entry::{Entry, Slot},
    layout,
};
use std::ops::Range;

/// Chunks of a long read.
pub(super) const LONG: u64 = layout::GROUP;

/// The slot of a chunk whose content is in the store; `None` if it reads as zeros.
///
/// # Errors
/// `Damaged` if it is a hole that does not authenticate.
pub(super) fn stored_slot(st: &State, index: u64) -> Result<Option<Slot>> {
    if index >= layout::chunks(st.stored.tree.size()) {
        return Ok(None);
    }
    slot_to_open(st, index, &st.stored.tree.entry(index)?)
}

/// Like `stored_slot`, for a known entry.
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

/// Whether chunks can be read from this state as it is: their slots are loaded, if they exist, and none
/// of them is in flight.
pub(super) fn is_at_hand(st: &State, chunks: &ChunkRange) -> bool {
    missing_groups(st, chunks).is_none()
        && !(st.dirty.is_in_flight(chunks) && holds(Rule::CompleteBeforeReading))
}

/// The groups of a short range, if one of them is not loaded and nothing else prevents the read.
pub(super) fn few_to_load(st: &State, chunks: &ChunkRange) -> Option<Range<u64>> {
    let is_short = chunks.end - chunks.start < LONG;
    missing_groups(st, chunks).filter(|_| is_short && !st.dirty.is_in_flight(chunks))
}

/// The groups of these chunks, if one of them is not loaded.
pub(super) fn missing_groups(st: &State, chunks: &ChunkRange) -> Option<Range<u64>> {
    let tree = &st.stored.tree;
    let end = chunks.end.min(layout::chunks(tree.size()));
    let first = layout::group_of(chunks.start);
    let groups = first..if chunks.start < end { layout::group_of(end - 1) + 1 } else { first };
    groups.clone().any(|group| !tree.is_loaded(group)).then_some(groups)
}
