//! Writing: into the buffer, flushed when there is enough of it.

use super::{
    File,
    read::pieces,
    state::State,
    stripe::{Length, Stripe},
};
use crate::{
    crypto::chunk::CHUNK,
    format::layout,
    vault::{Error, Result, Time},
};
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

/// Bytes outside stripes that a write flushes. Many: chunks of a group share a page of entries and a digest.
const FLUSH_AT: usize = match (cfg!(test), cfg!(feature = "interleave")) {
    (true, true) => 64 << 10,
    (true, false) => 1 << 20,
    (false, _) => 16 << 20,
};
/// How many of them make it worth a file's while, where all files together have their share of the memory.
const WORTH_FLUSHING: usize = 1 << 20;
/// Flushed bytes that a write commits: recovery stays short.
const COMMIT_AT: u64 = 1 << 30;
/// The part of the buffers' memory that stripes leave to others: of a file that has none, and of one that has some
/// already. So there is one for each stream although some are quicker to take them.
const SPARED: usize = 4;
const SPARED_BY_SECOND: usize = 2;

impl File {
    /// Writes all of `data`; buffered until `flush`.
    ///
    /// # Errors
    /// `TooLarge`; or what an earlier part of the buffer met on its way to the store, and then nothing of
    /// `data` was taken.
    pub fn write(self: &Arc<Self>, offset: u64, data: &[u8]) -> Result<()> {
        let mut st = self.state.write();
        self.write_locked(&mut st, offset, data)
    }

    /// Writes all of `data` at the end of the file and returns where that was.
    ///
    /// # Errors
    /// As `write`.
    pub fn append(self: &Arc<Self>, data: &[u8]) -> Result<u64> {
        let mut st = self.state.write();
        let offset = st.size;
        self.write_locked(&mut st, offset, data)?;
        Ok(offset)
    }

    fn write_locked(self: &Arc<Self>, st: &mut State, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writable(st)?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= layout::MAX_SIZE);
        end.ok_or(Error::TooLarge)?;
        if data.is_empty() {
            return Ok(());
        }
        let single = st.buffer.single_bytes();
        let (all, share) =
            (self.context.buffered.single.load(Ordering::Relaxed) * CHUNK, self.context.budget.behind);
        let crowded = single >= WORTH_FLUSHING && all >= share || single > 0 && all >= 2 * share;
        if st.flight_failed || single >= FLUSH_AT || crowded {
            self.make_room(st)?;
        }
        if st.uncommitted >= COMMIT_AT {
            self.commit(st)?;
        }
        if offset > st.size {
            self.grow(st, offset)?;
        }
        self.launch_full(st);
        let put = self.put(st, offset, data);
        // Also where it failed half-way: what came before may be on its way already, and the file does not rest.
        st.touch();
        put
    }

    /// Puts bytes into the buffer, and sends stripes that become full on their way.
    fn put(self: &Arc<Self>, st: &mut State, offset: u64, data: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (index, start) = (at / layout::CHUNK, (at % layout::CHUNK) as usize);
            let whole = if start == 0 { rest.len() / CHUNK } else { 0 };
            let place = match st.buffer.put_run(index, whole) {
                Some(run) => run,
                None => {
                    let within = start..CHUNK.min(start + rest.len());
                    &mut self.buffered(st, index, within.clone())?[within]
                }
            };
            let (part, after) = rest.split_at(place.len());
            place.copy_from_slice(part);
            (at, rest) = (at + part.len() as u64, after);
            st.size = st.size.max(at);
            // A stripe whose last chunk will be written on does not go yet.
            let next = at / layout::CHUNK;
            if at.is_multiple_of(layout::CHUNK) && Length::SHORTEST.window(next).start == next {
                self.launch_full(st);
            }
        }
        Ok(())
    }

    /// The buffered copy of a chunk, of which the caller will write these bytes; the others are read in.
    fn buffered<'a>(
        &self,
        st: &'a mut State,
        index: u64,
        written: Range<usize>,
    ) -> Result<&'a mut [u8; CHUNK]> {
        if st.buffer.get(index).is_none() {
            if written.start == 0 && written.end >= layout::chunk_len(st.size, index) {
                self.begin_stripe(st, index);
                let place = st.buffer.put(index);
                place[written.end..].fill(0);
                return Ok(place);
            }
            self.fetch(st, index)?;
        }
        Ok(st.buffer.get_mut(index).expect("just put in")) // invariant: put in above if it was absent
    }

    /// Reads a chunk into the buffer.
    fn fetch(&self, st: &mut State, index: u64) -> Result<()> {
        let plain = self.read_chunk(st, index)?;
        if st.buffer.get(index).is_none() {
            self.begin_stripe(st, index);
            st.buffer.insert(index, &plain);
        }
        Ok(())
    }

    /// Begins a stripe if the chunk, which is not buffered, goes on a stream; if there is memory for one.
    fn begin_stripe(&self, st: &mut State, index: u64) {
        let (streams, memory) = self.streams();
        let Some(window) = st.buffer.wants_stripe(index, Length::of(streams, memory)) else { return };
        let buffers = &self.context.router.buffers;
        let get = |st: &State| {
            let is_first = st.flights.is_empty() && st.buffer.stripes().is_empty();
            let spared = self.context.budget.buffers / if is_first { SPARED } else { SPARED_BY_SECOND };
            buffers.try_get_pair(Stripe::bytes_for(&window), spared)
        };
        let mut pair = get(st);
        while pair.is_none() && !st.flights.is_empty() {
            // Its own flights hold some. What one of them could not store is met by the next write.
            let _ = self.land_first(st);
            pair = get(st);
        }
        // What failed meanwhile is in the buffer again, perhaps in this window.
        if let Some(pair) = pair {
            st.buffer.begin_stripe(window, pair);
        }
    }

    /// How many files are written as streams, this one too, and the memory for stripes of all of them, in bytes.
    pub(super) fn streams(&self) -> (usize, usize) {
        let bound = self.context.budget.buffers;
        (self.context.buffered.streams.load(Ordering::Relaxed).max(1), bound - bound / SPARED)
    }

    /// Extends with a hole. A partial last chunk with data gets a new length, so it is written again.
    fn grow(&self, st: &mut State, size: u64) -> Result<()> {
        let last = st.size / layout::CHUNK;
        if !st.size.is_multiple_of(layout::CHUNK) && !st.buffer.holds(last) && self.has_data(st, last)? {
            self.fetch(st, last)?;
        }
        st.size = size;
        Ok(())
    }

    /// Whether the flushed version has data for a chunk.
    fn has_data(&self, st: &mut State, index: u64) -> Result<bool> {
        self.land_to_change(st, index..index + 1);
        if index >= layout::chunks(st.tree.size()) {
            return Ok(false);
        }
        let Some(identity) = st.identity.clone() else { return Ok(false) };
        st.tree.load(self.source(&identity), layout::group_of(index))?;
        Ok(st.tree.slot(index)?.is_some_and(|slot| !slot.is_hole()))
    }

    /// Cuts or extends (with a hole).
    ///
    /// # Errors
    /// `TooLarge`, or the store's.
    pub fn truncate(&self, size: u64) -> Result<()> {
        if size > layout::MAX_SIZE {
            return Err(Error::TooLarge);
        }
        let mut st = self.state.write();
        self.land_all(&mut st);
        self.check_writable(&mut st)?;
        if size > st.size {
            self.grow(&mut st, size)?;
        } else if size < st.size {
            self.cut(&mut st, size)?;
        }
        st.touch();
        Ok(())
    }

    fn cut(&self, st: &mut State, size: u64) -> Result<()> {
        if size < st.tree.size() {
            self.cut_flushed(st, size)?;
        }
        st.buffer.cut(size);
        st.size = size;
        Ok(())
    }

    /// Makes a range read as zeros (a hole where whole chunks allow); never changes the size.
    ///
    /// # Errors
    /// As `write`.
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let mut st = self.state.write();
        self.land_all(&mut st);
        self.check_writable(&mut st)?;
        let end = offset.saturating_add(len).min(st.size);
        if offset >= end {
            return Ok(());
        }
        let first_whole = offset.div_ceil(layout::CHUNK);
        // The last chunk is whole if the range reaches the end of the file.
        let end_whole = if end == st.size { layout::chunks(end) } else { end / layout::CHUNK };
        let punched = if first_whole >= end_whole {
            self.zero(&mut st, offset, end)
        } else {
            self.zero(&mut st, offset, first_whole * layout::CHUNK)
                .and_then(|()| self.zero(&mut st, end_whole * layout::CHUNK, end))
                .and_then(|()| self.punch_chunks(&mut st, first_whole, end_whole))
        };
        // Also where it failed half-way.
        st.touch();
        punched
    }

    /// Zeroes bytes of chunks that have data.
    fn zero(&self, st: &mut State, from: u64, to: u64) -> Result<()> {
        for piece in pieces(from, to.saturating_sub(from) as usize) {
            let buffered = st.buffer.get(piece.index).is_some();
            if buffered || (!st.buffer.holds(piece.index) && self.has_data(st, piece.index)?) {
                let place = piece.start..piece.start + piece.out.len();
                self.buffered(st, piece.index, place.clone())?[place].fill(0);
            }
        }
        Ok(())
    }

    /// Makes whole chunks holes; where there is nothing, nothing is done. If it fails, all of them are as they were: a chunk
    /// that only left the buffer would show what the store has, which is older.
    fn punch_chunks(&self, st: &mut State, from: u64, to: u64) -> Result<()> {
        let stored = self.stored_data(st, from, to)?;
        for index in st.buffer.written(from..to) {
            st.buffer.remove(index);
        }
        stored.into_iter().for_each(|index| st.buffer.punch(index));
        Ok(())
    }

    /// The chunks of a range that the flushed version has data for.
    fn stored_data(&self, st: &mut State, from: u64, to: u64) -> Result<Vec<u64>> {
        let (mut stored, mut index) = (Vec::new(), from);
        let Some(identity) = st.identity.clone() else { return Ok(stored) };
        while index < to {
            st.tree.trim_cache();
            match st.tree.seek(self.source(&identity), index, true)? {
                Some(found) if found < to => {
                    stored.push(found);
                    index = found + 1;
                }
                _ => break,
            }
        }
        Ok(stored)
    }

    /// fallocate(2): reserves space in the store; grows the size unless `keep_size`.
    ///
    /// # Errors
    /// `TooLarge`, or the store's (ENOSPC, EOPNOTSUPP).
    pub fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= layout::MAX_SIZE).ok_or(Error::TooLarge)?;
        let mut st = self.state.write();
        self.land_all(&mut st);
        self.check_writable(&mut st)?;
        self.keep_mtime(&mut st)?;
        let first = layout::chunk_offset(offset / layout::CHUNK);
        self.store.reserve(first, layout::stored_size(end).saturating_sub(first))?;
        if !keep_size && end > st.size {
            self.grow(&mut st, end)?;
            st.touch();
        }
        self.restore_mtime(&st);
        Ok(())
    }

    /// SEEK_DATA (`data`) or SEEK_HOLE from `offset`, in steps of a chunk; the end of the file is a hole.
    ///
    /// # Errors
    /// `NoData` past the end, or when there is no data any more.
    pub fn seek(&self, offset: u64, data: bool) -> Result<u64> {
        let mut st = self.state.write();
        if offset >= st.size {
            return Err(Error::NoData);
        }
        self.flush_all(&mut st)?;
        let found = match st.identity.clone() {
            Some(identity) => {
                st.tree.trim_cache();
                st.tree.seek(self.source(&identity), offset / layout::CHUNK, data)?
            }
            None => (!data).then_some(0),
        };
        match found {
            Some(index) => Ok(offset.max(index * layout::CHUNK)),
            None if data => Err(Error::NoData),
            None => Ok(st.size),
        }
    }

    /// Gives the modification time that the stored file gets with the last of its content. `set` brings a time to
    /// the store: that one, or the store's own for as long as something is buffered.
    ///
    /// # Errors
    /// What `set` returned.
    pub fn set_mtime(&self, time: Time, set: impl FnOnce(Time) -> Result<()>) -> Result<()> {
        let mut st = self.state.write();
        let shown = if st.is_stored() {
            time
        } else {
            let (seconds, nanoseconds) = self.store.mtime()?;
            Time { seconds, nanoseconds }
        };
        set(shown)?;
        st.mtime = Some(time);
        Ok(())
    }
}

const _: () = assert!(CHUNK as u64 == layout::CHUNK);
