//! Assigned to ended: writes a version to the store, without access to the file's state.
//!
//! Writes that only add (record, slots, new chunks) need no barrier. A chunk of the durable base is
//! overwritten only once the slot that describes the new data is durable.

use super::writes::Writes;
use crate::{
    commit::Committer,
    in_flight::{Assigned, Ended, Payload, Plan, Stage, WriteOutcome},
    rules::{Rule, holds},
};
use engine::ChunkJob;
use format::layout;
use std::io;

/// The point at which storing a version failed.
enum StoreError {
    /// Before any data of the base was overwritten. A full store fails here, because the later steps need
    /// no more space.
    Slots(io::Error),
    /// Like `Slots`, but a sync failed, so earlier writes may be lost.
    Sync(io::Error),
    /// After the slots were durable.
    Data(io::Error),
}

impl Committer<'_> {
    /// Stores a write whose slots are assigned.
    pub(super) fn store(&self, stage: &mut Stage) {
        *stage = match stage.take() {
            Stage::Assigned(Assigned { payload, plan }) => {
                let outcome = match self.store_version(&plan, &payload) {
                    Ok(()) => WriteOutcome::Stored(plan),
                    Err(StoreError::Slots(e)) => WriteOutcome::Failed(plan, e.into()),
                    Err(StoreError::Sync(e)) => WriteOutcome::SyncFailed(plan, e.into()),
                    Err(StoreError::Data(e)) => WriteOutcome::Unfinished(plan, e.into()),
                };
                Stage::Ended(Ended { payload, outcome })
            }
            other => other,
        };
    }

    fn store_version(&self, plan: &Plan, payload: &Payload) -> Result<(), StoreError> {
        let (mut first, mut last) = (slot_writes(plan), Writes::default());
        add_data(payload, plan, &mut first, &mut last);
        self.extend_store(plan).map_err(StoreError::Slots)?;
        // W3
        first.write(&*self.backing.store).map_err(StoreError::Slots)?;
        // W4
        if plan.overwrites_base && plan.barrier && holds(Rule::SyncBeforeOverwrite) {
            self.backing.store.sync_data().map_err(StoreError::Sync)?;
        }
        // W5
        last.write(&*self.backing.store).map_err(StoreError::Data)
    }

    fn extend_store(&self, plan: &Plan) -> io::Result<()> {
        match plan.length {
            Some(length) if self.backing.store.len()? < length => self.backing.store.set_len(length),
            Some(_) | None => Ok(()),
        }
    }
}

/// The record and the entries.
fn slot_writes(plan: &Plan) -> Writes<'_> {
    let mut slots = Writes::default();
    if plan.entries.first().is_none_or(|(offset, _)| *offset > 0) {
        slots.add(plan.record.offset(), &plan.record.sector); // Otherwise it is in the header page.
    }
    for (offset, entries) in &plan.entries {
        slots.add(*offset, entries);
    }
    slots
}

/// Adds the ciphertext, separately for new chunks and for those that overwrite data of the base.
fn add_data<'a>(payload: &'a Payload, plan: &Plan, new: &mut Writes<'a>, overwriting: &mut Writes<'a>) {
    let is_protected = |job: &ChunkJob| plan.protected.binary_search(&job.id.index).is_ok();
    let belong_together =
        |a: &ChunkJob, b: &ChunkJob| are_adjacent(a, b) && is_protected(a) == is_protected(b);
    for batch in &payload.batches {
        for chunks in batch.jobs.chunk_by(belong_together) {
            let (first, last) = (&chunks[0], &chunks[chunks.len() - 1]);
            let bytes = &batch.output[first.offset..last.offset + last.len];
            let writes = if is_protected(first) { &mut *overwriting } else { &mut *new };
            writes.add(layout::chunk_offset(first.id.index), bytes);
        }
    }
}

/// Whether the second chunk follows the first one in both the batch and the store.
fn are_adjacent(first: &ChunkJob, second: &ChunkJob) -> bool {
    let apart = |job: &ChunkJob| layout::chunk_offset(job.id.index).wrapping_sub(job.offset as u64);
    second.offset == first.offset + first.len && apart(first) == apart(second)
}
