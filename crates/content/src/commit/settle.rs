//! The end of a write: updates the state to match the store, and buffers unstored chunks again.

use crate::{
    buffer::PlainBuffer,
    commit::Committer,
    error::{Error, Result},
    in_flight::{Ended, InFlight, Payload, Plan, Stage, WriteOutcome, jobs},
    rules::{Rule, holds},
    state::{Fault, State, Unfinished},
};
use engine::{Batch, ChunkJob};
use format::layout;

impl Committer<'_> {
    /// Ends the first write. If it failed, it and all writes behind it return their chunks to the buffer.
    ///
    /// # Errors
    /// The cause of the failure.
    pub(super) fn settle(&self, st: &mut State, write: &InFlight, stage: &mut Stage) -> Result<()> {
        st.dirty.in_flight.pop_front();
        let Stage::Ended(Ended { payload: Payload { batches, share }, outcome }) = stage.take() else {
            // A panic interrupted a step, and the chunks are lost.
            st.fault = Some(Fault::Broken);
            st.dirty.in_flight.clear();
            return Err(Error::os(libc::EIO));
        };
        drop(share);
        let Err(error) = self.settle_outcome(st, write, outcome, &batches) else { return Ok(()) };
        st.restore_mtime(&*self.backing.store);
        st.dirty.write_failed = true;
        give_back(st, &batches);
        for behind in std::mem::take(&mut st.dirty.in_flight) {
            match behind.stage.lock().take_payload() {
                Some(Payload { batches, share }) => {
                    drop(share);
                    give_back(st, &batches);
                }
                None => st.fault = Some(Fault::Broken),
            }
        }
        Err(error)
    }

    fn settle_outcome(
        &self,
        st: &mut State,
        write: &InFlight,
        outcome: WriteOutcome,
        batches: &[Batch],
    ) -> Result<()> {
        match outcome {
            WriteOutcome::Stored(plan) => {
                let freed = accept(st, plan, write);
                self.free_holes(st, &freed, write);
                Ok(())
            }
            WriteOutcome::Refused(e) => Err(e),
            WriteOutcome::Failed(plan, e) => {
                st.stored.undo(plan.groups);
                Err(e)
            }
            WriteOutcome::SyncFailed(plan, e) => {
                st.stored.undo(plan.groups);
                st.fault = Some(Fault::SyncFailed);
                Err(e)
            }
            WriteOutcome::Unfinished(plan, e) => {
                accept(st, plan, write);
                st.dirty.unfinished = jobs(batches).map(unfinished).collect();
                Err(e)
            }
        }
    }

    /// W5, after the data is stored: frees the space of holes.
    fn free_holes(&self, st: &mut State, freed: &[(u64, u64)], write: &InFlight) {
        for (offset, len) in freed {
            if let Err(e) = self.backing.store.punch(*offset, *len) {
                log::debug!("space of a hole could not be freed: {e}");
            }
        }
        for index in &write.holes {
            st.dirty.buffer.forget_hole(*index);
        }
        st.restore_mtime(&*self.backing.store);
    }
}

/// Record and slots are in the store. Returns the stored data of holes, whose space can be freed.
fn accept(st: &mut State, plan: Plan, write: &InFlight) -> Vec<(u64, u64)> {
    let stored = &mut st.stored;
    stored.records.accept(plan.record);
    stored.tree.keep();
    stored.leftover = None;
    stored.base_is_recorded = true;
    if plan.overwrites_base && plan.barrier {
        stored.base_is_named = true;
        stored.barrier = Some(stored.flushed());
    }
    stored.uncommitted += write.chunks as u64 * layout::CHUNK;
    st.times.note_change();
    plan.freed
}

fn unfinished((batch, job): (&Batch, &ChunkJob)) -> Unfinished {
    let bytes = batch.output[job.offset..][..job.len].to_vec();
    Unfinished { offset: layout::chunk_offset(job.id.index), bytes }
}

/// Returns unwritten chunks to the buffer, unless it has newer ones.
fn give_back(st: &mut State, batches: &[Batch]) {
    for (batch, job) in jobs(batches) {
        if !st.dirty.buffer.holds(job.id.index) || !holds(Rule::KeepNewer) {
            let mut plain = PlainBuffer::zeros();
            plain[..job.len].copy_from_slice(&batch.input[job.offset..][..job.len]);
            st.dirty.buffer.insert(job.id.index, &plain);
        }
    }
}
