//! Flush: what leaves the write buffer, when, and in which pieces.
//!
//! Each piece goes on a flight of its own (`flight`): all of a stripe, or the chunks that are buffered by
//! themselves. A flush waits for its flights; full stripes take off behind the application's back.

use super::{
    Durability, File,
    buffer::{Plain, STRIPES, Share},
    flight::{Flight, MOST, Stage, Work},
    rules::{Rule, holds},
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
    vault::{Result, sync::Mutex},
};
use std::{ops::Range, sync::Arc};

/// Bytes of full stripes that wait for one sync together, at most, while others are on their way.
const GATHERED: usize = if cfg!(test) { 1 << 20 } else { 8 << 20 };
/// The part of the memory for stripes that those may take which wait so in all files.
const WAITING: usize = 4;
/// Places that the store is asked to keep at most: asking for each takes a call.
const PLACES: usize = 8;

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

    /// Those of some stripes.
    fn of_stripes(st: &State, windows: &[u64]) -> Self {
        let of = |first: &u64| st.buffer.stripe_over(*first).map(|place| st.buffer.stripes()[place].chunks());
        let mut chunks: Vec<u64> = windows.iter().filter_map(of).flatten().collect();
        chunks.sort_unstable();
        Changed { chunks, holes: Vec::new() }
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

/// Plaintext taken out of the buffer: chunks, where in the input each is, and the buffers.
struct Load {
    chunks: Vec<(u64, usize)>,
    input: Buffer,
    output: Buffer,
    /// Those that are still to be copied to the input: all or none.
    singles: Vec<Plain>,
}

impl File {
    /// Flushes all that is buffered or on its way.
    pub(super) fn flush_all(&self, st: &mut State) -> Result<()> {
        self.land_all(st);
        let changed = Changed::all_of(st);
        let size = st.size.max(st.tree.size());
        let repair = st.leftover.is_some() && holds(Rule::FlushAfterFailure);
        if !changed.is_empty() || size > st.tree.size() || repair {
            let windows: Vec<u64> = st.buffer.stripes().iter().map(Stripe::first).collect();
            self.flush_now(st, size, &changed, &windows)?;
        }
        st.buffer.end_streams();
        st.flight_failed = false;
        Ok(())
    }

    /// Flushes the chunks below `bound` that are buffered by themselves.
    fn flush_single(&self, st: &mut State, bound: u64) -> Result<()> {
        match self.flight_of_single(st, bound)? {
            Some(flight) => self.fly(st, flight),
            None => Ok(()),
        }
    }

    fn flight_of_single(&self, st: &mut State, bound: u64) -> Result<Option<Flight>> {
        let size = st.size.min(bound.saturating_mul(layout::CHUNK)).max(planned_size(st));
        if size > planned_size(st)
            && let Some(place) = growing_end(st).and_then(|end| st.buffer.stripe_of(end))
        {
            st.buffer.spill(place);
        }
        let changed = Changed::single(st, bound);
        if changed.is_empty() && size == planned_size(st) || !self.make_way(st, &changed)? {
            return Ok(None);
        }
        self.load_flight(st, size, &changed, &[]).map(Some)
    }

    /// Makes room in a buffer that is full. If something could not be stored behind, it is tried here and now,
    /// so that the error comes out.
    pub(super) fn make_room(self: &Arc<Self>, st: &mut State) -> Result<()> {
        // The last chunk will most likely be written on: it stays.
        let bound = (st.size / layout::CHUNK).min(self.first_new_in_stripes(st));
        if st.flight_failed && st.buffer.single(0..bound).is_empty() {
            return self.flush_all(st);
        }
        if st.flight_failed || !st.buffer.holes(0..bound).is_empty() {
            self.land_all(st);
            self.flush_single(st, bound)?;
            st.flight_failed = false;
            return Ok(());
        }
        let one_more = self.may_join_flights(st, bound);
        self.land_until(st, usize::from(one_more));
        if let Some(flight) = self.flight_of_single(st, bound)? {
            self.launch(st, flight);
        }
        Ok(())
    }

    /// The first chunk in a stripe that the flushed version does not reach: chunks behind it would leave a gap.
    fn first_new_in_stripes(&self, st: &State) -> u64 {
        let flushed = layout::chunks(planned_size(st));
        let new = |stripe: &Stripe| stripe.chunks().find(|index| *index >= flushed);
        st.buffer.stripes().iter().filter_map(new).min().unwrap_or(u64::MAX)
    }

    /// Whether the chunks below `bound` that are buffered by themselves may fly while another flight is on its way: one
    /// can be sealed then while the other is written. A chunk of that one has a slot of the epoch already, and cannot
    /// get another; and whoever waits for memory must not hold any.
    fn may_join_flights(&self, st: &State, bound: u64) -> bool {
        let singles = st.buffer.single(0..bound);
        let memory = self.context.router.buffers.usage();
        let room = memory.in_use + 2 * singles.len() * CHUNK <= memory.bound / 2;
        let again = || singles.iter().any(|index| File::in_flight(st, &(*index..*index + 1)));
        room && growing_end(st).is_none() && !(again() && holds(Rule::ApartInEpoch))
    }

    /// Sends full stripes on their way. Where that takes a sync, and one is on its way already, some gather. If
    /// it fails their chunks stay buffered, and the next write meets the error.
    pub(super) fn launch_full(self: &Arc<Self>, st: &mut State) {
        let flushed = layout::chunks(planned_size(st));
        let ripe =
            |stripe: &&Stripe| stripe.is_full_behind(flushed) && stripe.end() * layout::CHUNK <= st.size;
        let ripe = || st.buffer.stripes().iter().filter(ripe);
        let full: Vec<u64> = ripe().map(Stripe::first).collect();
        let base_end = layout::chunks(st.base.size);
        let overwrites =
            self.context.durability == Durability::Strict && full.iter().any(|first| *first < base_end);
        let (streams, memory) = self.streams();
        let gathered = GATHERED.min(memory / WAITING / streams / 2);
        let few =
            overwrites && full.len() < STRIPES / 2 && ripe().map(Stripe::bytes).sum::<usize>() < gathered;
        if full.is_empty() || few && st.flights.len() >= MOST {
            return;
        }
        if let Err(e) = self.launch_stripes(st, &full) {
            log::debug!("what was written could not be stored behind: {e}");
            st.flight_failed = true;
            for first in full {
                if let Some(place) = st.buffer.stripe_over(first) {
                    st.buffer.spill(place);
                }
            }
        }
    }

    fn launch_stripes(self: &Arc<Self>, st: &mut State, windows: &[u64]) -> Result<()> {
        let windows = &with_those_passed(st, windows);
        for first in windows {
            if let Some(place) = st.buffer.stripe_over(*first) {
                self.land_to_change(st, st.buffer.stripes()[place].window());
            }
        }
        let within = |end: &u64| {
            let stripe = st.buffer.stripe_over(*end).map(|place| &st.buffer.stripes()[place]);
            stripe.is_some_and(|stripe| windows.contains(&stripe.first()))
        };
        let outside = |end: &u64| !within(end) && st.buffer.get(*end).is_some();
        if let Some(end) = growing_end(st).filter(outside) {
            self.flush_end(st, end)?;
        }
        let mut changed = Changed::of_stripes(st, windows);
        // So do chunks that are buffered by themselves.
        let new = layout::chunks(planned_size(st))..windows.iter().copied().max().unwrap_or(0);
        changed.chunks.extend(if new.is_empty() { Vec::new() } else { st.buffer.single(new) });
        changed.chunks.sort_unstable();
        if !self.make_way(st, &changed)? {
            return Ok(());
        }
        let size = end_of(st, &changed);
        let flight = self.load_flight(st, size, &changed, windows)?;
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
        self.flush_now(st, size, &changed, &[])
    }

    /// To be called where no flight is on its way.
    fn flush_now(&self, st: &mut State, size: u64, changed: &Changed, windows: &[u64]) -> Result<()> {
        self.make_way(st, changed)?;
        let flight = self.load_flight(st, size, changed, windows)?;
        self.fly(st, flight)
    }

    /// Whether a flush would have to sync: after a clean record, or to overwrite what is stored.
    pub(super) fn needs_sync(&self, st: &mut State) -> Result<bool> {
        let changed = Changed::all_of(st);
        if changed.is_empty() || st.records.on_disk != OnDisk::Dirty {
            return Ok(st.records.on_disk.may_be_clean());
        }
        let identity = self.identity(st)?;
        self.load_groups(st, &identity, st.tree.size(), changed.all())?;
        changed.any(|index| Ok(index < layout::chunks(st.tree.size()) && st.tree.slot(index)?.is_some()))
    }

    /// Has the store keep places for what is buffered and has none there yet; whether it does.
    pub(super) fn takes_places(&self, st: &mut State) -> Result<bool> {
        let Some(identity) = st.identity.clone() else { return Ok(false) };
        let (written, size) = (st.buffer.written(0..u64::MAX), st.tree.size());
        let stored = written.iter().copied().filter(|index| *index < layout::chunks(size));
        self.load_groups(st, &identity, size, stored)?;
        let mut places: Vec<Range<u64>> = Vec::new();
        let mut add = |offset: u64, len: u64| match places.last_mut() {
            Some(last) if last.end == offset => last.end += len,
            _ => places.push(offset..offset + len),
        };
        for run in written.chunk_by(are_of_one_group) {
            let group = layout::group_of(run[0]);
            if group >= layout::groups(size) {
                add(layout::entries_offset(group), layout::PAGE);
            }
            for &index in run {
                let grows = layout::chunk_len(st.size, index) > layout::chunk_len(size, index);
                if grows || st.tree.slot(index)?.is_none_or(|slot| slot.is_hole()) {
                    add(layout::chunk_offset(index), layout::CHUNK);
                }
            }
        }
        if places.is_empty() || places.len() > PLACES {
            return Ok(places.is_empty());
        }
        self.keep_mtime(st)?;
        // Where the store keeps none, a flush says why.
        let kept =
            places.iter().all(|place| self.store.reserve(place.start, place.end - place.start).is_ok());
        self.restore_mtime(st);
        Ok(kept)
    }

    /// Flushes nothing, with a record: so that there is one, or that the newest one is right.
    pub(super) fn flush_record(&self, st: &mut State) -> Result<()> {
        self.land_all(st);
        self.flush_now(st, st.tree.size(), &Changed::default(), &[])
    }

    /// Does what has to be done before a flight is loaded; that may land others, and commit. Returns whether it may be
    /// loaded then. It may not if one that made the file longer has failed: its chunks, which are buffered again, go first.
    /// Else there would be zeros in their place.
    fn make_way(&self, st: &mut State, changed: &Changed) -> Result<bool> {
        let planned = planned_size(st);
        self.check_writable(st)?;
        self.finish_pending(st)?;
        self.keep_mtime(st)?;
        let identity = self.identity(st)?;
        self.load_groups(st, &identity, st.tree.size(), changed.all())?;
        self.commit_if_rewritten(st, changed)?;
        Ok(planned_size(st) >= planned)
    }

    /// Loads a flight that makes a version of `size` bytes: takes the chunks out of the buffer once nothing can
    /// fail any more. `windows` are those of the stripes that the chunks are in, each by its first chunk.
    fn load_flight(&self, st: &mut State, size: u64, changed: &Changed, windows: &[u64]) -> Result<Flight> {
        let identity = self.identity(st)?;
        let epoch = self.begin_epoch(st, &identity)?;
        let chunks = changed.chunks.len();
        let mut nonces = vec![0; chunks * 10];
        random::fill(&mut nonces)?;

        let share = Some(Share::new(self.context.buffered.clone(), chunks));
        let mut loads = load_stripes(st, windows);
        loads.extend(self.load_singles(st, &changed.chunks));
        let singles = loads.last_mut().map(|load| std::mem::take(&mut load.singles)).unwrap_or_default();
        let mut nonces = nonces.as_chunks().0.iter();
        let mut next_nonce = || *nonces.next().expect("enough"); // invariant: one for each of these chunks was drawn
        let mut job = |(index, offset)| ChunkJob {
            key: 0,
            id: ChunkId { index, epoch, nonce: next_nonce() },
            len: layout::chunk_len(size, index),
            offset,
            tag: [0; 16],
            ok: false,
        };
        let batch = |load: Load| Batch {
            op: Op::Seal,
            keys: vec![identity.keys.chunk.clone()],
            jobs: load.chunks.into_iter().map(&mut job).collect(),
            input: load.input,
            output: load.output,
        };
        let batches = Vec::from_iter(loads.into_iter().map(batch));
        let work = Mutex::new(Work { batches, singles, share, stage: Stage::Loaded });
        let mut all = Vec::from_iter(changed.all());
        all.sort_unstable();
        Ok(Flight { identity, epoch, size, holes: changed.holes.clone(), all, chunks, work })
    }

    /// Takes those of these chunks that are buffered by themselves, and two buffers for them.
    fn load_singles(&self, st: &mut State, chunks: &[u64]) -> Option<Load> {
        let take = |index: &u64| Some((*index, st.buffer.take_single(*index)?));
        let (indices, singles): (Vec<u64>, Vec<Plain>) = chunks.iter().filter_map(take).unzip();
        if singles.is_empty() {
            return None;
        }
        let (input, output) = self.context.router.buffers.get_pair(singles.len() * CHUNK);
        let chunks = indices.into_iter().enumerate().map(|(at, index)| (index, at * CHUNK)).collect();
        Some(Load { chunks, input, output, singles })
    }

    /// A chunk has one slot above the base at most: before it is written a second time, the first becomes the base.
    fn commit_if_rewritten(&self, st: &mut State, changed: &Changed) -> Result<()> {
        if st.is_committed() || !holds(Rule::OneSlotAboveBase) {
            return Ok(());
        }
        let base = st.base.epoch;
        for run in changed.chunks.chunk_by(are_of_one_group).chain(changed.holes.chunk_by(are_of_one_group)) {
            let entries = st.tree.entries(layout::group_of(run[0]))?;
            let slots = |index: &u64| entries[layout::place_in_group(*index)].0.iter().flatten();
            if run.iter().flat_map(slots).any(|slot| slot.epoch > base) {
                return self.commit(st);
            }
        }
        Ok(())
    }
}

/// These windows and those before them, behind the flushed version's end, whose writer has gone on: a killed mount leaves no
/// gap in what was written in order.
fn with_those_passed(st: &State, windows: &[u64]) -> Vec<u64> {
    let (flushed, last) = (layout::chunks(planned_size(st)), windows.iter().copied().max().unwrap_or(0));
    let is_passed = |stripe: &&Stripe| {
        stripe.first() < last && stripe.end() > flushed && stripe.get(stripe.end() - 1).is_some()
    };
    let passed = st.buffer.stripes().iter().filter(is_passed).map(Stripe::first);
    let mut all = Vec::from_iter(windows.iter().copied().chain(passed));
    all.sort_unstable();
    all.dedup();
    all
}

/// Takes stripes with the buffers that they lie in.
fn load_stripes(st: &mut State, windows: &[u64]) -> Vec<Load> {
    let take = |first: &u64| {
        let stripe = st.buffer.stripe_over(*first).map(|place| st.buffer.take_stripe(place))?;
        let chunks = stripe.chunks().map(|index| (index, stripe.place(index) * CHUNK)).collect();
        let (input, output) = stripe.into_buffers();
        Some(Load { chunks, input, output, singles: Vec::new() })
    };
    windows.iter().filter_map(take).collect()
}

fn are_of_one_group(a: &u64, b: &u64) -> bool {
    layout::group_of(*a) == layout::group_of(*b)
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
