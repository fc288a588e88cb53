//! Flush: what leaves the write buffer, when, and in which pieces.
//!
//! Each piece goes on a flight of its own (`flight`): all of a stripe, or the chunks that are buffered by
//! themselves. A flush waits for its flights; full stripes take off behind the application's back.

use super::{
    File,
    buffer::Share,
    flight::{Flight, Stage, Work},
    state::{OnDisk, State},
    stripe::Stripe,
};
use crate::{
    crypto::{
        chunk::{CHUNK, ChunkId},
        random,
    },
    engine::{Batch, Buffer, ChunkJob, Op},
    format::layout,
    vault::Result,
};
use parking_lot::Mutex;
use std::{ops::Range, sync::Arc};

/// Chunks that a flush is about, ascending.
#[derive(Default)]
struct Changed {
    /// With new content in the buffer.
    chunks: Vec<u64>,
    /// To become holes.
    holes: Vec<u64>,
}

impl Changed {
    /// All that is buffered.
    fn all_of(st: &State) -> Self {
        Changed { chunks: st.buffer.written(0..u64::MAX), holes: st.buffer.holes(0..u64::MAX) }
    }

    /// Those below `bound` that are buffered by themselves.
    fn single(st: &State, bound: u64) -> Self {
        Changed { chunks: st.buffer.single(0..bound), holes: st.buffer.holes(0..bound) }
    }

    /// Those of a stripe.
    fn of_stripe(st: &State, place: usize) -> Self {
        Changed { chunks: st.buffer.stripes()[place].chunks().collect(), holes: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.holes.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().chain(&self.holes).copied()
    }

    /// Whether it holds for any of them.
    fn any(&self, holds: impl Fn(u64) -> Result<bool>) -> Result<bool> {
        self.all().try_fold(false, |any, index| Ok(any || holds(index)?))
    }

    /// From the first to behind the last.
    fn span(&self) -> Range<u64> {
        self.all().min().unwrap_or(0)..self.all().max().map_or(0, |last| last + 1)
    }
}

impl File {
    /// Flushes all that is buffered or on its way.
    pub(super) fn flush_all(&self, st: &mut State) -> Result<()> {
        self.land_all(st);
        if growing_end(st).is_some_and(|end| st.buffer.stripe_of(end).is_none()) {
            self.flush_single(st, u64::MAX)?;
        }
        while let Some(place) = self.next_stripe(st) {
            let changed = Changed::of_stripe(st, place);
            let size = end_of(st, &changed);
            self.flush_now(st, size, &changed, Some(place))?;
        }
        self.flush_single(st, u64::MAX)?;
        st.flight_failed = false;
        Ok(())
    }

    /// The stripe to flush next.
    fn next_stripe(&self, st: &State) -> Option<usize> {
        if let Some(end) = growing_end(st)
            && let Some(place) = st.buffer.stripe_of(end)
        {
            return Some(place);
        }
        (!st.buffer.stripes().is_empty()).then_some(0)
    }

    /// Flushes the chunks below `bound` that are buffered by themselves.
    fn flush_single(&self, st: &mut State, bound: u64) -> Result<()> {
        match self.load_single(st, bound)? {
            Some(flight) => self.fly(st, flight),
            None => Ok(()),
        }
    }

    fn load_single(&self, st: &mut State, bound: u64) -> Result<Option<Flight>> {
        let size = st.size.min(bound.saturating_mul(layout::CHUNK)).max(planned_size(st));
        if size > planned_size(st)
            && let Some(place) = growing_end(st).and_then(|end| st.buffer.stripe_of(end))
        {
            st.buffer.spill(place);
        }
        let changed = Changed::single(st, bound);
        if changed.is_empty() && size == planned_size(st) {
            return Ok(None);
        }
        self.load_flight(st, size, &changed, None).map(Some)
    }

    /// Makes room in a buffer that is full. If something could not be stored behind, it is tried here and now,
    /// so that the error comes out.
    pub(super) fn make_room(self: &Arc<Self>, st: &mut State) -> Result<()> {
        // The last chunk will most likely be written on: it stays.
        let bound = st.size / layout::CHUNK;
        if st.flight_failed || !st.buffer.holes(0..bound).is_empty() {
            self.land_all(st);
            self.flush_single(st, bound)?;
            st.flight_failed = false;
            return Ok(());
        }
        self.land_all(st);
        if let Some(flight) = self.load_single(st, bound)? {
            self.launch(st, flight);
        }
        Ok(())
    }

    /// Sends the stripe that a chunk is in on its way, if it is full. If that fails its chunks stay buffered, and
    /// the next write meets the error.
    pub(super) fn launch_full(self: &Arc<Self>, st: &mut State, index: u64) {
        let full = st.buffer.stripe_of(index).filter(|place| st.buffer.stripes()[*place].is_full());
        if full.is_some()
            && let Err(e) = self.launch_stripe(st, index)
        {
            log::debug!("what was written could not be stored behind: {e}");
            st.flight_failed = true;
            if let Some(place) = st.buffer.stripe_of(index) {
                st.buffer.spill(place);
            }
        }
    }

    fn launch_stripe(self: &Arc<Self>, st: &mut State, index: u64) -> Result<()> {
        self.land(st, Stripe::window(index));
        let outside = |end: &u64| !Stripe::window(index).contains(end) && st.buffer.get(*end).is_some();
        if let Some(end) = growing_end(st).filter(outside) {
            self.flush_end(st, end)?;
        }
        let Some(place) = st.buffer.stripe_of(index) else { return Ok(()) };
        let changed = Changed::of_stripe(st, place);
        let size = end_of(st, &changed);
        let flight = self.load_flight(st, size, &changed, Some(place))?;
        self.launch(st, flight);
        Ok(())
    }

    /// Flushes the chunk that the flushed version ends in, at its new length.
    fn flush_end(&self, st: &mut State, end: u64) -> Result<()> {
        self.land_all(st);
        if let Some(place) = st.buffer.stripe_of(end) {
            st.buffer.spill(place);
        }
        let changed = Changed { chunks: vec![end], holes: Vec::new() };
        let size = end_of(st, &changed);
        self.flush_now(st, size, &changed, None)
    }

    fn flush_now(&self, st: &mut State, size: u64, changed: &Changed, stripe: Option<usize>) -> Result<()> {
        let flight = self.load_flight(st, size, changed, stripe)?;
        self.fly(st, flight)
    }

    /// Whether a flush would have to sync: after a clean record, or to overwrite what is stored.
    pub(super) fn needs_sync(&self, st: &mut State) -> Result<bool> {
        let changed = Changed::all_of(st);
        if changed.is_empty() || st.records.on_disk != OnDisk::Dirty {
            return Ok(st.records.on_disk == OnDisk::Clean);
        }
        let identity = self.identity(st)?;
        self.load_groups(st, &identity, st.tree.size(), changed.all())?;
        changed.any(|index| Ok(index < layout::chunks(st.tree.size()) && st.tree.slot(index)?.is_some()))
    }

    /// Gives a file that has none its salt and a record of an empty version.
    pub(super) fn write_first_record(&self, st: &mut State) -> Result<()> {
        self.land_all(st);
        self.flush_now(st, st.tree.size(), &Changed::default(), None)
    }

    /// Loads a flight that makes a version of `size` bytes: takes the chunks out of the buffer once nothing
    /// can fail any more.
    fn load_flight(
        &self,
        st: &mut State,
        size: u64,
        changed: &Changed,
        stripe: Option<usize>,
    ) -> Result<Flight> {
        self.check_writable(st)?;
        self.finish_pending(st)?;
        self.keep_mtime(st)?;
        let identity = self.identity(st)?;
        self.load_groups(st, &identity, st.tree.size(), changed.all())?;
        self.commit_if_rewritten(st, changed)?;
        let epoch = self.begin_epoch(st, &identity)?;
        let mut nonces = vec![0; changed.chunks.len() * 10];
        random::fill(&mut nonces)?;

        let chunks = changed.chunks.len();
        let share = Some(Share::new(self.context.buffered.clone(), chunks));
        let mut batch = None;
        if !changed.chunks.is_empty() {
            let (input, output, offsets) = self.load_buffers(st, &changed.chunks, stripe);
            let keys = vec![identity.keys.chunk.clone()];
            let nonces = nonces.as_chunks::<10>().0;
            let job = |((index, nonce), offset): ((&u64, &[u8; 10]), usize)| ChunkJob {
                key: 0,
                id: ChunkId { index: *index, epoch, nonce: *nonce },
                len: layout::chunk_len(size, *index),
                offset,
                tag: [0; 16],
                ok: false,
            };
            let jobs = changed.chunks.iter().zip(nonces).zip(offsets).map(job).collect();
            batch = Some(Batch { op: Op::Seal, keys, jobs, input, output });
        }
        let work = Mutex::new(Work { batch, share, stage: Stage::Loaded });
        Ok(Flight { identity, epoch, size, holes: changed.holes.clone(), span: changed.span(), chunks, work })
    }

    /// Takes chunks out of the buffer: a stripe with the buffers that it lies in, others into new ones. Returns
    /// those, and where in them each chunk is.
    fn load_buffers(
        &self,
        st: &mut State,
        chunks: &[u64],
        stripe: Option<usize>,
    ) -> (Buffer, Buffer, Vec<usize>) {
        if let Some(place) = stripe {
            let stripe = st.buffer.take_stripe(place);
            let offsets = chunks.iter().map(|index| stripe.place(*index) * CHUNK).collect();
            let (input, output) = stripe.into_buffers();
            return (input, output, offsets);
        }
        let (mut input, output) = self.context.router.buffers.get_pair(chunks.len() * CHUNK);
        for (index, place) in chunks.iter().zip(input.as_chunks_mut::<CHUNK>().0) {
            if let Some(plain) = st.buffer.get(*index) {
                *place = *plain;
            }
            st.buffer.remove(*index);
        }
        (input, output, (0..chunks.len()).map(|at| at * CHUNK).collect())
    }

    /// A chunk is written once an epoch: before a second time the epoch ends.
    fn commit_if_rewritten(&self, st: &mut State, changed: &Changed) -> Result<()> {
        let Some(epoch) = st.open_epoch else { return Ok(()) };
        if changed
            .any(|index| Ok(st.tree.entry(index)?.0.iter().flatten().any(|slot| slot.epoch == epoch)))?
        {
            self.commit(st)?;
        }
        Ok(())
    }
}

/// Size of the flushed version once all flights have landed.
fn planned_size(st: &State) -> u64 {
    st.flights.back().map_or(0, |flight| flight.size).max(st.tree.size())
}

/// The size of the flushed version once these chunks are in it, too.
fn end_of(st: &State, changed: &Changed) -> u64 {
    st.size.min(changed.span().end * layout::CHUNK).max(planned_size(st))
}

/// The chunk that the flushed version ends in the middle of, if the file has grown since. It must be written
/// again before, or together with, what makes the version larger: its tag is over its length.
fn growing_end(st: &State) -> Option<u64> {
    let planned = planned_size(st);
    (st.size > planned && !planned.is_multiple_of(layout::CHUNK)).then_some(planned / layout::CHUNK)
}
