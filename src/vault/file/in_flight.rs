//! A write in flight: chunks that left the buffer for the store, and how far they have come.
//!
//! Each stage is a type of its own that only the stage before it can become. `commit` has the steps between them.

use super::{
    buffer::{Plain, Share},
    record::{Identity, NewRecord},
};
use crate::{
    crypto::chunk::CHUNK,
    engine::{Batch, ChunkJob},
    vault::{Error, sync::Mutex},
};
use std::{collections::BTreeSet, ops::Range, sync::Arc};

/// Chunks on their way to the store.
pub(super) struct InFlight {
    pub(super) identity: Arc<Identity>,
    pub(super) epoch: u64,
    /// Size of the version that it makes.
    pub(super) size: u64,
    /// Chunks that become holes, ascending.
    pub(super) holes: Vec<u64>,
    /// All its chunks, with data or to become holes, ascending.
    pub(super) all: Vec<u64>,
    /// How many of them have data.
    pub(super) chunks: usize,
    /// Whoever moves the write on holds this. The lock of the file's state is taken first where both are needed.
    pub(super) stage: Mutex<Stage>,
}

impl InFlight {
    /// Whether it has a chunk of a range.
    pub(super) fn touches(&self, chunks: &Range<u64>) -> bool {
        let first = self.all.partition_point(|index| *index < chunks.start);
        self.all.get(first).is_some_and(|index| *index < chunks.end)
    }
}

/// How far a write in flight has come.
pub(super) enum Stage {
    Loaded(Loaded),
    Sealed(Sealed),
    Assigned(Assigned),
    Ended(Ended),
    /// Taken out: it is over, or a panic ended a step half-way.
    Gone,
}

/// The chunks and the buffers that they lie in.
pub(super) struct Payload {
    /// One for each extent, and one for the chunks that were buffered by themselves.
    pub(super) batches: Vec<Batch>,
    /// Counts the chunks as buffered.
    pub(super) share: Share,
}

/// The plaintext is in the batches, or beside the last one.
pub(super) struct Loaded {
    pub(super) payload: Payload,
    /// Chunks of the last batch, in its order, that are still to be copied to it. Taking them out of the buffer keeps the
    /// file's writers waiting, so they are not copied then.
    pub(super) singles: Vec<Plain>,
}

/// The batches have ciphertext and tags.
pub(super) struct Sealed {
    pub(super) payload: Payload,
}

/// The tree has the slots, and the plan says what goes to the store.
pub(super) struct Assigned {
    pub(super) payload: Payload,
    pub(super) plan: Plan,
}

/// The store was written, or not.
pub(super) struct Ended {
    pub(super) payload: Payload,
    pub(super) outcome: Outcome,
}

/// What goes to the store beside the data.
pub(super) struct Plan {
    pub(super) record: NewRecord,
    /// The groups whose entries are written.
    pub(super) groups: BTreeSet<u64>,
    /// Their entries, or the header page, and where they go.
    pub(super) entries: Vec<(u64, Vec<u8>)>,
    /// The length that the store gets first, if it is shorter.
    pub(super) length: Option<u64>,
    /// The protected chunks: those that the base has data for, ascending. They are overwritten last.
    pub(super) protected: Vec<u64>,
    /// Such chunks are overwritten, or become holes.
    pub(super) overwrites_base: bool,
    /// If so, record and slots are made durable before.
    pub(super) barrier: bool,
    /// Where the store has the data of chunks that become holes: offset and length.
    pub(super) freed: Vec<(u64, u64)>,
}

/// How the way to the store ended.
pub(super) enum Outcome {
    Stored(Plan),
    /// The store was not touched.
    Refused(Error),
    /// Record and slots may be in the store. Nothing that the base needs was overwritten.
    Failed(Plan, Error),
    /// The same, because of a sync.
    SyncFailed(Plan, Error),
    /// Slots are in the store and durable. Their data is not.
    Unfinished(Plan, Error),
}

impl Stage {
    /// Takes the stage out, to put the next one in its place.
    pub(super) fn take(&mut self) -> Stage {
        std::mem::replace(self, Stage::Gone)
    }

    /// Takes the chunks out, with all plaintext in the batches; `None` if a panic lost them.
    pub(super) fn take_payload(&mut self) -> Option<Payload> {
        match self.take() {
            Stage::Loaded(loaded) => Some(loaded.gather()),
            Stage::Sealed(Sealed { payload })
            | Stage::Assigned(Assigned { payload, .. })
            | Stage::Ended(Ended { payload, .. }) => Some(payload),
            Stage::Gone => None,
        }
    }
}

impl Loaded {
    /// Brings all plaintext into the batches.
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

/// The chunks with data of some batches, each with its batch.
pub(super) fn jobs(batches: &[Batch]) -> impl Iterator<Item = (&Batch, &ChunkJob)> {
    batches.iter().flat_map(|batch| batch.jobs.iter().map(move |job| (batch, job)))
}
