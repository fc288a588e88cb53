//! Writes into the buffer, from which `flush` takes the data once there is enough.

mod allocate;
mod cut;
mod punch;
mod reserve;
mod truncate;

use super::{
    buffer::{PlainBuffer, is_border},
    chunk_range::parts,
    commit::Committer,
    error::{Error, Result},
    file_core::FileCore,
    flush::Flusher,
    read::ChunkReader,
    record_writer::RecordWriter,
    state::{State, Times},
};
use crypto::chunk::CHUNK;
use format::layout;
use std::{ops::Range, sync::Arc};

/// Flushed bytes after which a write commits, which keeps recovery short.
const COMMIT_AT: u64 = 1 << 30;

/// Puts changes into the write buffer.
#[derive(Clone, Copy)]
pub(super) struct ContentWriter<'a> {
    core: &'a Arc<FileCore>,
}

impl<'a> ContentWriter<'a> {
    pub(super) fn of(core: &'a Arc<FileCore>) -> Self {
        ContentWriter { core }
    }

    fn records(&self) -> RecordWriter<'a> {
        RecordWriter::of(&self.core.backing)
    }

    fn committer(&self) -> Committer<'a> {
        Committer::of(&self.core.backing)
    }

    fn flusher(&self) -> Flusher<'a> {
        Flusher::of(self.core)
    }

    fn chunks(&self) -> ChunkReader<'a> {
        ChunkReader::of(&self.core.backing)
    }

    /// Writes all of `data`. It stays buffered until a flush. `note` records the change.
    ///
    /// # Errors
    /// `TooLarge`; or the error that earlier buffered data met on its way to the store. In that case,
    /// nothing of `data` was accepted.
    pub(super) fn write(
        &self,
        st: &mut State,
        offset: u64,
        data: &[u8],
        note: impl FnOnce(&mut Times),
    ) -> Result<()> {
        self.committer().begin_change(st)?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= layout::MAX_SIZE);
        let end = end.ok_or(Error::TooLarge)?;
        if data.is_empty() {
            return Ok(());
        }
        self.flusher().make_room(st)?;
        if st.stored.uncommitted >= COMMIT_AT {
            self.committer().commit(st)?;
        }
        self.take(st, offset..end, |st| {
            if offset > st.dirty.size {
                self.grow(st, offset)?;
            }
            self.flusher().start_full(st);
            let put = self.put(st, offset, data);
            // Also after a partial failure: earlier parts may be in flight already, and the file is not
            // clean.
            note(&mut st.times);
            put
        })
    }

    /// Like `write`, for data that the kernel gathered.
    ///
    /// # Errors
    /// As `write`.
    pub(super) fn write_gathered(&self, st: &mut State, offset: u64, data: &[u8]) -> Result<()> {
        let (end, written) = (st.dirty.size, offset..offset.saturating_add(data.len() as u64));
        if end < offset && !data.is_empty() {
            st.dirty.gaps.add(end..offset);
        }
        let put = self.write(st, offset, data, Times::note_gathered);
        if put.is_ok() {
            st.dirty.gaps.fill(&written);
        }
        put
    }

    /// Copies bytes into the buffer, and starts extents that become full.
    fn put(&self, st: &mut State, offset: u64, data: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (index, start) = (at / layout::CHUNK, (at % layout::CHUNK) as usize);
            let whole = if start == 0 { rest.len() / CHUNK } else { 0 };
            let place = match st.dirty.buffer.put_chunks(index, whole) {
                Some(places) => places,
                None => {
                    let within = start..CHUNK.min(start + rest.len());
                    &mut self.chunk_to_write(st, index, within.clone())?[within]
                }
            };
            let (part, after) = rest.split_at(place.len());
            place.copy_from_slice(part);
            (at, rest) = (at + part.len() as u64, after);
            st.dirty.size = st.dirty.size.max(at);
            // Do not flush an extent whose last chunk is incomplete.
            if at.is_multiple_of(layout::CHUNK) && is_border(at / layout::CHUNK) {
                self.flusher().start_full(st);
            }
        }
        Ok(())
    }

    /// The buffered copy of a chunk of which the caller will write `written`. The other bytes are read
    /// first.
    fn chunk_to_write<'b>(
        &self,
        st: &'b mut State,
        index: u64,
        written: Range<usize>,
    ) -> Result<&'b mut [u8; CHUNK]> {
        if st.dirty.buffer.get(index).is_none() {
            if written.start == 0 && written.end >= layout::chunk_len(st.dirty.size, index) {
                self.flusher().begin_extent(st, index);
                let place = st.dirty.buffer.put(index);
                place[written.end..].fill(0);
                return Ok(place);
            }
            self.fetch(st, index)?;
        }
        Ok(st.dirty.buffer.get_mut(index).expect("just put in")) // invariant: put in above if it was absent
    }

    /// Reads a chunk into the buffer.
    fn fetch(&self, st: &mut State, index: u64) -> Result<()> {
        let plain = self.read_to_change(st, index)?;
        if st.dirty.buffer.get(index).is_none() {
            self.flusher().begin_extent(st, index);
            st.dirty.buffer.insert(index, &plain);
        }
        Ok(())
    }

    /// The content of a chunk as the application sees it, with zeros past the end of the file. Writes of
    /// it in flight are completed first.
    fn read_to_change(&self, st: &mut State, index: u64) -> Result<PlainBuffer> {
        self.load_to_change(st, index)?;
        let mut plain = PlainBuffer::zeros();
        self.chunks().read_loaded(st, index * layout::CHUNK, &mut plain[..])?;
        Ok(plain)
    }

    /// Completes writes of a chunk in flight, and loads its slot.
    fn load_to_change(&self, st: &mut State, index: u64) -> Result<()> {
        self.committer().complete_to_change(st, &(index..index + 1));
        if index < layout::chunks(st.stored.tree.size())
            && let Some(identity) = st.stored.identity.clone()
        {
            st.stored.tree.load(self.core.backing.source(&identity), layout::group_of(index))?;
        }
        Ok(())
    }

    /// Extends the file with a hole. An incomplete last chunk with data gets a new length, so it is
    /// written again.
    fn grow(&self, st: &mut State, size: u64) -> Result<()> {
        let last = st.dirty.size / layout::CHUNK;
        if !st.dirty.size.is_multiple_of(layout::CHUNK) && !st.dirty.buffer.holds(last) {
            self.load_to_change(st, last)?;
            if has_data(st, last)? {
                self.fetch(st, last)?;
            }
        }
        st.dirty.size = size;
        Ok(())
    }

    /// Zeroes bytes in chunks that have data.
    fn zero(&self, st: &mut State, from: u64, to: u64) -> Result<()> {
        for part in parts(from, to.saturating_sub(from) as usize) {
            let buffer = &st.dirty.buffer;
            if buffer.get(part.index).is_none() {
                if buffer.holds(part.index) {
                    continue; // A hole already.
                }
                self.load_to_change(st, part.index)?;
                // A failed write may have returned the chunk to the buffer.
                if st.dirty.buffer.get(part.index).is_none() && !has_data(st, part.index)? {
                    continue;
                }
            }
            let within = part.start..part.start + part.out.len();
            self.chunk_to_write(st, part.index, within.clone())?[within].fill(0);
        }
        Ok(())
    }
}

/// Whether the flushed version has data for a chunk whose slot is loaded.
fn has_data(st: &State, index: u64) -> Result<bool> {
    let tree = &st.stored.tree;
    if index >= layout::chunks(tree.size()) || st.stored.identity.is_none() {
        return Ok(false);
    }
    Ok(tree.slot(index)?.is_some_and(|slot| !slot.is_hole()))
}
