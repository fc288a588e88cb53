//! Individually buffered chunks, which are flushed once there are many of them.

use super::{Flusher, growing_end};
use crate::{
    buffer::Extent,
    commit::Changed,
    error::Result,
    in_flight::InFlight,
    rules::{Rule, holds},
    state::State,
};
use crypto::chunk::CHUNK;
use format::layout;
use std::sync::atomic::Ordering;

/// Bytes of them in one file that are worth flushing once all files together have used their share of the
/// memory.
const WORTH_FLUSHING: usize = 1 << 20;

impl Flusher<'_> {
    /// Flushes chunks if the buffer is full, or if it holds something that could not be stored.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn make_room(&self, st: &mut State) -> Result<()> {
        if !st.dirty.write_failed && !self.is_full(st) {
            return Ok(());
        }
        // The last chunk will most likely be extended, so it stays.
        let bound = |st: &State| {
            (st.dirty.size.min(st.dirty.gaps.first()) / layout::CHUNK).min(first_new_in_extents(st))
        };
        if st.dirty.buffer.single(0..bound(st)).is_empty() && !st.dirty.gaps.is_empty() {
            if !st.dirty.write_failed && self.may_wait_behind_gap(st) {
                return Ok(());
            }
            // The buffer is full behind a gap, so the gap is taken for a hole.
            st.dirty.gaps.clear();
        }
        let bound = bound(st);
        if st.dirty.write_failed && st.dirty.buffer.single(0..bound).is_empty() {
            return self.flush_all(st);
        }
        // Synchronous, so that the error is reported.
        if st.dirty.write_failed || !st.dirty.buffer.holes(0..bound).is_empty() {
            self.committer().complete_all(st);
            if let Some(write) = self.load_singles(st, bound)? {
                self.committer().run(st, write)?;
            }
            st.dirty.write_failed = false;
            return Ok(());
        }
        let one_more = self.may_join(st, bound);
        self.committer().complete_until(st, usize::from(one_more));
        if let Some(write) = self.load_singles(st, bound)? {
            self.committer().start(self.core, st, write);
        }
        Ok(())
    }

    /// Whether the individually buffered chunks should be flushed: the file has many, or all files
    /// together do.
    fn is_full(&self, st: &State) -> bool {
        let single = st.dirty.buffer.single_bytes();
        let all = self.core.backing.context.buffered.single.load(Ordering::Relaxed) * CHUNK;
        let share = self.core.backing.context.budget.behind;
        let crowded = single >= WORTH_FLUSHING && all >= share || single > 0 && all >= 2 * share;
        single >= self.core.backing.context.budget.singles || crowded
    }

    /// Whether a full buffer may wait until the kernel fills a gap, which it is usually about to do. The
    /// total over all files forces a flush only at 1.5 times the limit of `is_full`.
    fn may_wait_behind_gap(&self, st: &State) -> bool {
        let all = self.core.backing.context.buffered.single.load(Ordering::Relaxed) * CHUNK;
        st.dirty.buffer.single_bytes() < self.core.backing.context.budget.singles
            && all < 3 * self.core.backing.context.budget.behind
    }

    /// Loads a write of the individually buffered chunks below `bound`, if there are any and they may be
    /// stored now.
    fn load_singles(&self, st: &mut State, bound: u64) -> Result<Option<InFlight>> {
        let size = st.dirty.size.min(bound.saturating_mul(layout::CHUNK)).max(st.planned_size());
        if size > st.planned_size()
            && let Some(end) = growing_end(st)
        {
            st.dirty.buffer.spill_extent_of(end);
        }
        let changed =
            Changed { chunks: st.dirty.buffer.single(0..bound), holes: st.dirty.buffer.holes(0..bound) };
        if changed.is_empty() && size == st.planned_size()
            || !self.committer().prepare_to_load(st, &changed)?
        {
            return Ok(None);
        }
        self.committer().load_write(st, size, &changed, &[]).map(Some)
    }

    /// Whether the individually buffered chunks below `bound` may be loaded while another write is in
    /// flight: one can then be sealed while the other is stored. A chunk of that other write already has
    /// a slot of the epoch and cannot get a second one. And a file that waits for memory must not hold
    /// any.
    fn may_join(&self, st: &State, bound: u64) -> bool {
        let singles = st.dirty.buffer.single(0..bound);
        let memory = self.core.backing.context.router.buffers.usage();
        let room = memory.in_use + 2 * singles.len() * CHUNK <= memory.bound / 2;
        let again = || singles.iter().any(|index| st.dirty.is_in_flight(&(*index..*index + 1)));
        room && growing_end(st).is_none() && !(again() && holds(Rule::ApartInEpoch))
    }
}

/// The first chunk in an extent past the flushed version's end. Flushing chunks behind it would leave a
/// gap.
fn first_new_in_extents(st: &State) -> u64 {
    let flushed = layout::chunks(st.planned_size());
    let new = |extent: &Extent| extent.chunks().find(|index| *index >= flushed);
    st.dirty.buffer.extents().iter().filter_map(new).min().unwrap_or(u64::MAX)
}
