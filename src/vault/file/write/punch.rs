//! Holes: ranges that are made to read as zeros.

use crate::{
    format::layout,
    vault::{
        Result,
        file::{File, chunk_range::ChunkRange, state::State},
    },
};

/// Holes that are noted between two flushes at most: each takes memory.
const MOST_HOLES: usize = if cfg!(test) { 1 << 10 } else { 1 << 18 };

impl File {
    /// Makes a range read as zeros (a hole where whole chunks allow); never changes the size.
    ///
    /// # Errors
    /// As `write`.
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let mut st = self.state_to_change()?;
        self.renew(&mut st)?;
        self.complete_all(&mut st);
        self.begin_change(&mut st)?;
        let end = offset.saturating_add(len).min(st.dirty.size);
        if offset >= end {
            return Ok(());
        }
        let punched = self.punch_range(&mut st, offset, end);
        // Also where it failed half-way.
        st.times.note_write();
        punched
    }

    fn punch_range(&self, st: &mut State, offset: u64, end: u64) -> Result<()> {
        let first_whole = offset.div_ceil(layout::CHUNK);
        // The last chunk is whole if the range reaches the end of the file.
        let end_whole = if end == st.dirty.size { layout::chunks(end) } else { end / layout::CHUNK };
        if first_whole >= end_whole {
            return self.zero(st, offset, end);
        }
        self.zero(st, offset, first_whole * layout::CHUNK)?;
        self.zero(st, end_whole * layout::CHUNK, end)?;
        self.punch_chunks(st, first_whole..end_whole)
    }

    /// Makes whole chunks holes. Where there is nothing, nothing is done. Many are flushed in parts, as memory is limited.
    fn punch_chunks(&self, st: &mut State, mut chunks: ChunkRange) -> Result<()> {
        loop {
            let part = self.punch_part(st, &chunks)?;
            if part.end == chunks.end {
                return Ok(());
            }
            self.flush_all(st)?;
            chunks.start = part.end;
        }
    }

    /// The first part of it, up to `MOST_HOLES` new ones. If it fails, all are as they were: a chunk that only left the buffer
    /// would show what the store has, which is older.
    fn punch_part(&self, st: &mut State, chunks: &ChunkRange) -> Result<ChunkRange> {
        let stored = self.stored_data(st, chunks)?;
        let end = if stored.len() < MOST_HOLES { chunks.end } else { stored[MOST_HOLES - 1] + 1 };
        for index in st.dirty.buffer.written(chunks.start..end) {
            st.dirty.buffer.remove(index);
        }
        stored.into_iter().for_each(|index| st.dirty.buffer.punch(index));
        Ok(chunks.start..end)
    }

    /// The first chunks of a range, `MOST_HOLES` at most, that the flushed version has data for.
    fn stored_data(&self, st: &mut State, chunks: &ChunkRange) -> Result<Vec<u64>> {
        let (mut stored, mut index) = (Vec::new(), chunks.start);
        let Some(identity) = st.stored.identity.clone() else { return Ok(stored) };
        while index < chunks.end && stored.len() < MOST_HOLES {
            st.stored.tree.trim_cache();
            match st.stored.tree.seek(self.source(&identity), index, true)? {
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
