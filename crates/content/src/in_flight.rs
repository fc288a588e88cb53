//! A write in flight: chunks that left the buffer for the store, and the stage they have reached.
//!
//! Each stage is a separate type, which only the previous stage can produce. `commit` has the steps
//! between them.

use super::{
    buffer::{PlainBuffer, Share},
    error::Error,
    record::{FileIdentity, NewRecord},
    sync::Mutex,
};
use crypto::chunk::CHUNK;
use engine::{Batch, ChunkJob};
use std::{collections::BTreeSet, ops::Range, sync::Arc};

/// Chunks on their way to the store.
pub(super) struct InFlight {
    pub(super) identity: Arc<FileIdentity>,
    pub(super) epoch: u64,
    /// Size of the version that this write produces.
    pub(super) size: u64,
    /// Chunks that become holes, ascending.
    pub(super) holes: Vec<u64>,
    /// All chunks of the write, both data and holes, ascending.
    pub(super) all: Vec<u64>,
    /// Number of chunks with data.
    pub(super) chunks: usize,
    /// Held by the thread that advances the write. Where both locks are needed, the lock of the file's
    /// state is taken first.
    pub(super) stage: Mutex<Stage>,
}

impl InFlight {
    /// Whether the write has a chunk in a range.
    pub(super) fn touches(&self, chunks: &Range<u64>) -> bool {
        let first = self.all.partition_point(|index| *index < chunks.start);
        self.all.get(first).is_some_and(|index| *index < chunks.end)
    }
}

/// Stage of a write in flight.
pub(super) enum Stage {
    Loaded(Loaded),
    Sealed(SealedWrite),
    Assigned(Assigned),
    Ended(Ended),
    /// Taken out: the write is over, or a panic interrupted a step.
    Gone,
}

/// The chunks and their buffers.
pub(super) struct Payload {
    /// One for each extent, and one for the individually buffered chunks.
    pub(super) batches: Vec<Batch>,
    /// Counts the chunks as buffered.
    pub(super) share: Share,
}

/// The plaintext is in the batches, or still in `singles`.
pub(super) struct Loaded {
    pub(super) payload: Payload,
    /// Chunks not yet copied to the last batch, in its order. The copy is deferred because the chunks are
    /// taken out of the buffer under the file's lock, where it would block the file's writers.
    pub(super) singles: Vec<PlainBuffer>,
}

/// The batches have ciphertext and tags.
pub(super) struct SealedWrite {
    pub(super) payload: Payload,
}

/// The slots are in the tree, and the plan lists the writes to the store.
pub(super) struct Assigned {
    pub(super) payload: Payload,
    pub(super) plan: Plan,
}

/// The write to the store has succeeded or failed.
pub(super) struct Ended {
    pub(super) payload: Payload,
    pub(super) outcome: WriteOutcome,
}

/// The writes to the store other than the data.
pub(super) struct Plan {
    pub(super) record: NewRecord,
    /// The groups whose entries are written.
    pub(super) groups: BTreeSet<u64>,
    /// Their entries, or the header page, with their offsets.
    pub(super) entries: Vec<(u64, Vec<u8>)>,
    /// The length to which the store is extended first, if it is shorter.
    pub(super) length: Option<u64>,
    /// The protected chunks, for which the base has data, ascending. They are overwritten last.
    pub(super) protected: Vec<u64>,
    /// Data of the base is overwritten or becomes a hole.
    pub(super) overwrites_base: bool,
    /// Make record and slots durable before overwriting data of the base.
    pub(super) barrier: bool,
    /// Stored data of chunks that become holes: offset and length.
    pub(super) freed: Vec<(u64, u64)>,
}

/// Result of storing a write.
pub(super) enum WriteOutcome {
    Stored(Plan),
    /// The store was not touched.
    Refused(Error),
    /// Record and slots may be in the store. Nothing that the base needs was overwritten.
    Failed(Plan, Error),
    /// Like `Failed`, but a sync failed.
    SyncFailed(Plan, Error),
    /// The slots are in the store and durable, but their data is not.
    Unfinished(Plan, Error),
}

impl Stage {
    /// Takes out the stage, to be replaced by the next one.
    pub(super) fn take(&mut self) -> Stage {
        std::mem::replace(self, Stage::Gone)
    }

    /// Takes out the chunks, with all plaintext in the batches; `None` if a panic lost them.
    pub(super) fn take_payload(&mut self) -> Option<Payload> {
        match self.take() {
            Stage::Loaded(loaded) => Some(loaded.gather()),
            Stage::Sealed(SealedWrite { payload })
            | Stage::Assigned(Assigned { payload, .. })
            | Stage::Ended(Ended { payload, .. }) => Some(payload),
            Stage::Gone => None,
        }
    }
}

impl Loaded {
    /// Copies the remaining plaintext into the last batch.
    pub(super) fn gather(mut self) -> Payload {
        if let Some(batch) = self.payload.batches.last_mut() {
            for (place, plain) in batch.input.as_chunks_mut::<CHUNK>().0.iter_mut().zip(&self.singles) {
                *place = **plain;
            }
        }
        self.payload.share.keep(self.singles);
        self.payload
    }
}

/// The chunks with data of these batches, each with its batch.
pub(super) fn jobs(batches: &[Batch]) -> impl Iterator<Item = (&Batch, &ChunkJob)> {
    batches.iter().flat_map(|batch| batch.jobs.iter().map(move |job| (batch, job)))
}
