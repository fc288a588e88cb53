//! Takes chunks out of the buffer for a write: which ones, and the steps that must come first.

use crate::{
    buffer::{PlainBuffer, Share},
    chunk_range::ChunkRange,
    commit::Committer,
    error::Result,
    in_flight::{InFlight, Loaded, Payload, Stage},
    rules::{Rule, holds},
    state::State,
    sync::Mutex,
};
use crypto::{
    chunk::{CHUNK, ChunkId},
    random,
};
use engine::{Batch, Buffer, ChunkJob, Op};
use format::layout;

/// The chunks of a write, each list ascending.
#[derive(Default)]
pub(crate) struct Changed {
    /// Chunks with new content in the buffer.
    pub(crate) chunks: Vec<u64>,
    /// Chunks that become holes.
    pub(crate) holes: Vec<u64>,
}

/// Plaintext taken out of the buffer: chunks, each with its offset in the input, and the buffers.
struct Taken {
    chunks: Vec<(u64, usize)>,
    input: Buffer,
    output: Buffer,
    /// Chunks still to be copied to the input: all of them, or none.
    singles: Vec<PlainBuffer>,
}

impl Changed {
    /// Whether there are no chunks.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.holes.is_empty()
    }

    /// All chunks, those with data first.
    pub(crate) fn all(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().chain(&self.holes).copied()
    }

    /// From the first chunk to the end of the last.
    pub(crate) fn range(&self) -> ChunkRange {
        self.all().min().unwrap_or(0)..self.all().max().map_or(0, |last| last + 1)
    }
}

impl Committer<'_> {
    /// Prepares for loading a write, which may complete other writes and commit. Returns whether the
    /// write may then be loaded. It may not if a write that made the file longer has failed: its chunks,
    /// which are buffered again, must be stored first, or there would be zeros in their place.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn prepare_to_load(&self, st: &mut State, changed: &Changed) -> Result<bool> {
        let planned = st.planned_size();
        self.begin_change(st)?;
        st.dirty.finish_overwrites(&*self.backing.store)?;
        st.remember_mtime(&*self.backing.store)?;
        let identity = self.records().identity_or_new(st)?;
        st.stored.load_groups(self.backing.source(&identity), st.stored.tree.size(), changed.all())?;
        self.commit_if_rewritten(st, changed)?;
        Ok(st.planned_size() >= planned)
    }

    /// W1: a chunk has at most one slot above the base. Before it is written a second time, the first
    /// version becomes the base.
    fn commit_if_rewritten(&self, st: &mut State, changed: &Changed) -> Result<()> {
        if st.stored.is_committed() || !holds(Rule::OneSlotAboveBase) {
            return Ok(());
        }
        let base = st.stored.base.epoch;
        let of_one_group = |a: &u64, b: &u64| layout::group_of(*a) == layout::group_of(*b);
        for chunks in changed.chunks.chunk_by(of_one_group).chain(changed.holes.chunk_by(of_one_group)) {
            let entries = st.stored.tree.entries(layout::group_of(chunks[0]))?;
            let slots = |index: &u64| entries[layout::place_in_group(*index)].0.iter().flatten();
            if chunks.iter().flat_map(slots).any(|slot| slot.epoch > base) {
                return self.commit(st);
            }
        }
        Ok(())
    }

    /// Loads a write that produces a version of `size` bytes. Takes the chunks out of the buffer once
    /// nothing can fail any more. `extents` are the extents of these chunks, each given by its first
    /// chunk. `prepare_to_load` must be called first.
    ///
    /// # Errors
    /// The store's, if a dirty record must be made durable first.
    pub(crate) fn load_write(
        &self,
        st: &mut State,
        size: u64,
        changed: &Changed,
        extents: &[u64],
    ) -> Result<InFlight> {
        let identity = self.records().identity_or_new(st)?;
        let epoch = self.records().begin_epoch(st, &identity)?;
        let chunks = changed.chunks.len();
        let mut nonces = vec![0; chunks * 10];
        random::fill(&mut nonces)?;

        let share = Share::new(self.backing.context.buffered.clone(), chunks);
        let mut taken = take_extents(st, extents);
        taken.extend(self.take_singles(st, &changed.chunks));
        let singles = taken.last_mut().map(|last| std::mem::take(&mut last.singles)).unwrap_or_default();
        let mut nonces = nonces.as_chunks().0.iter();
        let mut next_nonce = || *nonces.next().expect("enough"); // invariant: one was drawn for each
        let mut job = |(index, offset)| ChunkJob {
            key: 0,
            id: ChunkId { index, epoch, nonce: next_nonce() },
            len: layout::chunk_len(size, index),
            offset,
            tag: [0; 16],
            ok: false,
        };
        let batch = |taken: Taken| Batch {
            op: Op::Seal,
            keys: vec![identity.keys.chunk.clone()],
            jobs: taken.chunks.into_iter().map(&mut job).collect(),
            input: taken.input,
            output: taken.output,
        };
        let batches = Vec::from_iter(taken.into_iter().map(batch));
        let stage = Mutex::new(Stage::Loaded(Loaded { payload: Payload { batches, share }, singles }));
        let mut all = Vec::from_iter(changed.all());
        all.sort_unstable();
        Ok(InFlight { identity, epoch, size, holes: changed.holes.clone(), all, chunks, stage })
    }

    /// Takes the individually buffered chunks among these, and a pair of buffers for them.
    fn take_singles(&self, st: &mut State, chunks: &[u64]) -> Option<Taken> {
        let take = |index: &u64| Some((*index, st.dirty.buffer.take_single(*index)?));
        let (indices, singles): (Vec<u64>, Vec<PlainBuffer>) = chunks.iter().filter_map(take).unzip();
        if singles.is_empty() {
            return None;
        }
        let (input, output) = self.backing.context.router.buffers.get_pair(singles.len() * CHUNK);
        let chunks = indices.into_iter().enumerate().map(|(at, index)| (index, at * CHUNK)).collect();
        Some(Taken { chunks, input, output, singles })
    }
}

/// Takes extents together with their buffers.
fn take_extents(st: &mut State, extents: &[u64]) -> Vec<Taken> {
    let take = |first: &u64| {
        let extent = st.dirty.buffer.take_extent(*first)?;
        let chunks = extent.chunks().map(|index| (index, extent.place(index) * CHUNK)).collect();
        let (input, output) = extent.into_buffers();
        Some(Taken { chunks, input, output, singles: Vec::new() })
    };
    extents.iter().filter_map(take).collect()
}
