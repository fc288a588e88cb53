//! Full extents: each starts on its way to the store while the next one fills.

use super::{Flusher, growing_end, size_with};
use crate::{
    buffer::{EXTENTS, Extent},
    commit::{Changed, MOST_IN_FLIGHT},
    context::Durability,
    error::Result,
    rules::{Rule, holds},
    state::State,
};
use format::layout;
use std::sync::atomic::Ordering;

/// While other writes are in flight, full extents of up to this many bytes wait to share one sync.
const GATHERED: usize = if cfg!(any(test, feature = "testing")) { 1 << 20 } else { 8 << 20 };
/// Full extents that wait in this way may use 1/`WAITING` of the memory for extents, over all files.
const WAITING: usize = 4;
/// Extents leave 1/`SPARED` of the buffers' memory free for a file's first extent, and
/// 1/`SPARED_BY_SECOND` for further ones. This leaves an extent for each stream even if some are quicker
/// to take theirs.
const SPARED: usize = 4;
const SPARED_BY_SECOND: usize = 2;

impl Flusher<'_> {
    /// Starts full extents. If that needs a sync and enough writes are in flight already, waits for more
    /// extents to share it. If starting fails, the chunks stay buffered, and the next write reports the
    /// error.
    pub(crate) fn start_full(&self, st: &mut State) {
        if st.dirty.flushes_through {
            return;
        }
        let flushed = layout::chunks(st.planned_size());
        let is_ready = |extent: &&Extent| {
            extent.is_full_behind(flushed)
                && extent.end() * layout::CHUNK <= st.dirty.size.min(st.dirty.gaps.first())
        };
        let ready = || st.dirty.buffer.extents().iter().filter(is_ready);
        let full: Vec<u64> = ready().map(Extent::first).collect();
        let base_end = layout::chunks(st.stored.base.size);
        let overwrites = self.core.backing.context.durability == Durability::Strict
            && full.iter().any(|first| *first < base_end);
        let (streams, memory) = self.streams();
        let gathered = GATHERED.min(memory / WAITING / streams / 2);
        let may_wait =
            overwrites && full.len() < EXTENTS / 2 && ready().map(Extent::bytes).sum::<usize>() < gathered;
        if full.is_empty() || may_wait && st.dirty.in_flight.len() >= MOST_IN_FLIGHT {
            return;
        }
        if let Err(e) = self.start_extents(st, &full) {
            log::debug!("what was written could not be stored in the background: {e}");
            st.dirty.write_failed = true;
            full.into_iter().for_each(|first| st.dirty.buffer.spill_extent_over(first));
        }
    }

    fn start_extents(&self, st: &mut State, full: &[u64]) -> Result<()> {
        let extents = &with_those_passed(st, full);
        for first in extents {
            if let Some(range) = st.dirty.buffer.extent_over(*first).map(Extent::range) {
                self.committer().complete_to_change(st, &range);
            }
        }
        let is_among = |end: u64| {
            let written = |extent: &Extent| extents.contains(&extent.first()) && extent.get(end).is_some();
            st.dirty.buffer.extent_over(end).is_some_and(written)
        };
        let is_outside = |end: &u64| !is_among(*end) && st.dirty.buffer.holds(*end);
        if let Some(end) = growing_end(st).filter(is_outside)
            && holds(Rule::EndBeforeGrowth)
        {
            self.flush_end(st, end)?;
        }
        let mut chunks: Vec<u64> = extents
            .iter()
            .filter_map(|first| st.dirty.buffer.extent_over(*first))
            .flat_map(Extent::chunks)
            .collect();
        // New chunks before these extents that are buffered individually are included.
        let new = layout::chunks(st.planned_size())..extents.iter().copied().max().unwrap_or(0);
        chunks.extend(if new.is_empty() { Vec::new() } else { st.dirty.buffer.single(new) });
        chunks.sort_unstable();
        let changed = Changed { chunks, holes: Vec::new() };
        if !self.committer().prepare_to_load(st, &changed)? {
            return Ok(());
        }
        let size = size_with(st, &changed);
        let write = self.committer().load_write(st, size, &changed, extents)?;
        self.committer().start(self.core, st, write);
        Ok(())
    }

    /// Flushes the last chunk of the flushed version at its new length, or the hole that it becomes.
    fn flush_end(&self, st: &mut State, end: u64) -> Result<()> {
        self.committer().complete_all(st);
        st.dirty.buffer.spill_extent_of(end);
        let (chunks, holes) =
            if st.dirty.buffer.is_punched(end) { (vec![], vec![end]) } else { (vec![end], vec![]) };
        let changed = Changed { chunks, holes };
        let size = size_with(st, &changed);
        self.flush_now(st, size, &changed, &[])
    }

    /// Begins an extent if the chunk, which is not buffered yet, continues a stream and there is memory
    /// for one.
    pub(crate) fn begin_extent(&self, st: &mut State, index: u64) {
        let (streams, memory) = self.streams();
        let Some(range) = st.dirty.buffer.wants_extent(index, streams, memory) else { return };
        let buffers = &self.core.backing.context.router.buffers;
        let get = |st: &State| {
            let is_first = st.dirty.in_flight.is_empty() && st.dirty.buffer.extents().is_empty();
            let spared =
                self.core.backing.context.budget.buffers / if is_first { SPARED } else { SPARED_BY_SECOND };
            buffers.try_get_pair(Extent::bytes_for(&range), spared)
        };
        let mut pair = get(st);
        while pair.is_none() && !st.dirty.in_flight.is_empty() {
            // The file's own writes hold some buffers. If one fails, the next write reports the error.
            let _ = self.committer().complete_first(st);
            pair = get(st);
        }
        // Chunks of a failed write are in the buffer again, perhaps in this range.
        if let Some(pair) = pair {
            st.dirty.buffer.begin_extent(range, pair);
        }
    }

    /// Number of files written as streams, including this one, and the memory for all their extents in
    /// bytes.
    fn streams(&self) -> (usize, usize) {
        let bound = self.core.backing.context.budget.buffers;
        (self.core.backing.context.buffered.streams.load(Ordering::Relaxed).max(1), bound - bound / SPARED)
    }
}

/// These extents, and earlier ones past the flushed version's end that their writer has passed. Including
/// those ensures that killing the mount leaves no gap in data written in order.
fn with_those_passed(st: &State, full: &[u64]) -> Vec<u64> {
    let (flushed, last) = (layout::chunks(st.planned_size()), full.iter().copied().max().unwrap_or(0));
    let is_passed = |extent: &&Extent| {
        extent.first() < last && extent.end() > flushed && extent.get(extent.end() - 1).is_some()
    };
    let passed = st.dirty.buffer.extents().iter().filter(is_passed).map(Extent::first);
    let mut all = Vec::from_iter(full.iter().copied().chain(passed));
    all.sort_unstable();
    all.dedup();
    all
}
