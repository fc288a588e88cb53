//! Holes: ranges that are made to read as zeros.

use crate::{chunk_range::ChunkRange, error::Result, state::State, write::ContentWriter};
use format::layout;

/// Maximum holes buffered between two flushes, since each takes memory.
const MOST_HOLES: usize = if cfg!(any(test, feature = "testing")) { 1 << 10 } else { 1 << 18 };

impl ContentWriter<'_> {
    /// Makes a range read as zeros, by holes for whole chunks. Never changes the size.
    ///
    /// # Errors
    /// As `write`.
    pub(crate) fn punch(&self, st: &mut State, offset: u64, len: u64) -> Result<()> {
        self.committer().complete_all(st);
        self.committer().begin_change(st)?;
        let end = offset.saturating_add(len).min(st.dirty.size);
        if offset >= end {
            return Ok(());
        }
        let punched = self.punch_range(st, offset, end);
        // Also after a partial failure.
        st.times.note_write();
        punched
    }

    fn punch_range(&self, st: &mut State, offset: u64, end: u64) -> Result<()> {
        let first_whole = offset.div_ceil(layout::CHUNK);
        // The last chunk counts as whole if the range reaches the end of the file.
        let end_whole = if end == st.dirty.size { layout::chunks(end) } else { end / layout::CHUNK };
        if first_whole >= end_whole {
            return self.zero(st, offset, end);
        }
        self.zero(st, offset, first_whole * layout::CHUNK)?;
        self.zero(st, end_whole * layout::CHUNK, end)?;
        self.punch_chunks(st, first_whole..end_whole)
    }

    /// Makes whole chunks holes. Chunks without data are left alone. Many holes are flushed in parts to
    /// limit memory.
    fn punch_chunks(&self, st: &mut State, mut chunks: ChunkRange) -> Result<()> {
        loop {
            let part = self.punch_part(st, &chunks)?;
            if part.end == chunks.end {
                return Ok(());
            }
            self.flusher().flush_all(st)?;
            chunks.start = part.end;
        }
    }

    /// Punches the first part of the range, up to `MOST_HOLES` new holes. A failure changes nothing: a
    /// chunk that was only removed from the buffer would show its older stored content.
    fn punch_part(&self, st: &mut State, chunks: &ChunkRange) -> Result<ChunkRange> {
        let stored = self.stored_data(st, chunks)?;
        let end = if stored.len() < MOST_HOLES { chunks.end } else { stored[MOST_HOLES - 1] + 1 };
        for index in st.dirty.buffer.written(chunks.start..end) {
            st.dirty.buffer.remove(index);
        }
        stored.into_iter().for_each(|index| st.dirty.buffer.punch(index));
        Ok(chunks.start..end)
    }

    /// The first chunks of a range, up to `MOST_HOLES`, for which the flushed version has data.
    fn stored_data(&self, st: &mut State, chunks: &ChunkRange) -> Result<Vec<u64>> {
        let (mut stored, mut index) = (Vec::new(), chunks.start);
        let Some(identity) = st.stored.identity.clone() else { return Ok(stored) };
        while index < chunks.end && stored.len() < MOST_HOLES {
            st.stored.tree.trim_cache();
            match st.stored.tree.seek(self.core.backing.source(&identity), index, true)? {
                Some(found) if found < chunks.end => {
                    stored.push(found);
                    index = found + 1;
                }
                Some(_) | None => break,
            }
        }
        Ok(stored)
    }
}
