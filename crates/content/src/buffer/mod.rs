//! Data written but not yet flushed: whole chunks of plaintext, and chunks to become holes.
//!
//! The chunks of a stream are in extents. All others are buffered individually.

mod extent;
mod plain;
mod shared;

use super::chunk_range::ChunkRange;
use crypto::chunk::CHUNK;
use engine::Buffer;
use extent::Length;
use format::layout;
use shared::Streamed;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

pub(super) use extent::{Extent, is_border};
pub(super) use plain::PlainBuffer;
pub use shared::Buffered;
pub(super) use shared::Share;

/// Maximum extents of a file, filling for several writers or waiting to be started.
pub(super) const EXTENTS: usize = 8;
/// This many consecutive chunks are considered a stream.
const STREAM: u64 = if cfg!(any(test, feature = "testing")) { 4 } else { 64 };

/// The write-back buffer of a file. A chunk is in at most one place in it.
pub(crate) struct WriteBuffer {
    chunks: BTreeMap<u64, PlainBuffer>,
    /// Oldest first. Their ranges do not overlap.
    extents: Vec<Extent>,
    streamed: Option<Streamed>,
    punched: BTreeSet<u64>,
    /// The chunk after the last one put in, and the number of consecutive chunks up to it.
    next: u64,
    in_a_row: u64,
    total: Arc<Buffered>,
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        std::mem::take(&mut self.chunks).into_values().for_each(|plain| self.total.take_back(plain));
        let pooled = self.extents.iter().map(Extent::count).sum();
        self.total.pooled.fetch_sub(pooled, Ordering::Relaxed);
    }
}

impl WriteBuffer {
    /// An empty buffer that counts its chunks in `total`.
    pub(crate) fn new(total: Arc<Buffered>) -> Self {
        WriteBuffer {
            chunks: BTreeMap::new(),
            extents: Vec::new(),
            streamed: None,
            punched: BTreeSet::new(),
            next: 0,
            in_a_row: 0,
            total,
        }
    }

    /// Plaintext of a buffered chunk.
    pub(crate) fn get(&self, index: u64) -> Option<&[u8; CHUNK]> {
        let extent = self.extents.iter().find_map(|extent| extent.get(index));
        extent.or_else(|| self.chunks.get(&index).map(|plain| &**plain))
    }

    pub(crate) fn get_mut(&mut self, index: u64) -> Option<&mut [u8; CHUNK]> {
        let extent = self.extents.iter_mut().find_map(|extent| extent.get_mut(index));
        extent.or_else(|| self.chunks.get_mut(&index).map(|plain| &mut **plain))
    }

    /// The buffered chunks of a range, ascending.
    pub(crate) fn written(&self, range: ChunkRange) -> Vec<u64> {
        let mut all: Vec<u64> = self.chunks.range(range.clone()).map(|(index, _)| *index).collect();
        all.extend(self.extents.iter().flat_map(Extent::chunks).filter(|index| range.contains(index)));
        all.sort_unstable();
        all
    }

    /// The individually buffered chunks of a range, ascending.
    pub(crate) fn single(&self, range: ChunkRange) -> Vec<u64> {
        self.chunks.range(range).map(|(index, _)| *index).collect()
    }

    /// The chunks of a range that become holes, ascending.
    pub(crate) fn holes(&self, range: ChunkRange) -> Vec<u64> {
        self.punched.range(range).copied().collect()
    }

    /// Whether the chunk becomes a hole.
    pub(crate) fn is_punched(&self, index: u64) -> bool {
        self.punched.contains(&index)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.punched.is_empty() && self.extents.iter().all(|s| s.count() == 0)
    }

    /// Bytes of the individually buffered chunks.
    pub(crate) fn single_bytes(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Whether the chunk's current content is in the buffer.
    pub(crate) fn holds(&self, index: u64) -> bool {
        self.get(index).is_some() || self.punched.contains(&index)
    }

    /// Adds a chunk and returns its buffer, whose content is unspecified.
    pub(crate) fn put(&mut self, index: u64) -> &mut [u8; CHUNK] {
        self.in_a_row = if index == self.next { self.in_a_row + 1 } else { 1 };
        self.next = index + 1;
        self.punched.remove(&index);
        if let Some(extent) = self.extents.iter_mut().find(|extent| extent.covers(index)) {
            let new = extent.get(index).is_none();
            self.total.pooled.fetch_add(usize::from(new), Ordering::Relaxed);
            return extent.put(index);
        }
        self.chunks.entry(index).or_insert_with(|| self.total.memory())
    }

    /// Like `put` for up to `most` chunks from `index`, limited to one extent. The caller must write all
    /// of them. `None` if no extent covers `index`, or if `most` is 0.
    pub(crate) fn put_chunks(&mut self, index: u64, most: usize) -> Option<&mut [u8]> {
        let extent = self.extents.iter_mut().find(|extent| most > 0 && extent.covers(index))?;
        let (new, places) = extent.put_chunks(index, most);
        let count = (places.len() / CHUNK) as u64;
        self.total.pooled.fetch_add(new, Ordering::Relaxed);
        self.in_a_row = if index == self.next { self.in_a_row + count } else { count };
        self.next = index + count;
        if !self.punched.is_empty() {
            (index..self.next).for_each(|index| _ = self.punched.remove(&index));
        }
        Some(places)
    }

    /// Adds a chunk with this content.
    pub(crate) fn insert(&mut self, index: u64, plain: &[u8; CHUNK]) {
        *self.put(index) = *plain;
    }

    /// The range of an extent that should begin before the chunk `index` is put in. Its length suits this
    /// many streams and this many bytes of memory for extents. It is shorter if another extent overlaps.
    pub(crate) fn wants_extent(&self, index: u64, streams: usize, memory: usize) -> Option<ChunkRange> {
        if index != self.next || self.in_a_row < STREAM {
            return None;
        }
        let apart = |a: &ChunkRange, b: ChunkRange| a.end <= b.start || b.end <= a.start;
        let is_free = |range: &ChunkRange| self.extents.iter().all(|extent| apart(range, extent.range()));
        let lengths = Length::of(streams, memory).and_shorter();
        let range = lengths.map(|length| length.range(index)).find(is_free)?;
        (self.in_a_row.is_multiple_of(STREAM) || range.start == index).then_some(range)
    }

    /// Begins an extent, which takes over the chunks of its range. If there are too many extents, splits
    /// up an old one.
    pub(crate) fn begin_extent(&mut self, range: ChunkRange, buffers: (Buffer, Buffer)) {
        self.streamed.get_or_insert_with(|| Streamed::new(self.total.clone()));
        if self.extents.len() == EXTENTS {
            self.spill(self.extents.iter().position(|extent| !extent.is_full()).unwrap_or(0));
        }
        let mut extent = Extent::new(range.clone(), buffers);
        for index in self.single(range) {
            if let Some(plain) = self.chunks.remove(&index) {
                *extent.put(index) = *plain;
                self.total.take_back(plain);
            }
        }
        self.total.pooled.fetch_add(extent.count(), Ordering::Relaxed);
        self.extents.push(extent);
    }

    /// Splits up the extent that has this chunk, if any; its chunks are then buffered individually.
    pub(crate) fn spill_extent_of(&mut self, index: u64) {
        if let Some(place) = self.extents.iter().position(|extent| extent.get(index).is_some()) {
            self.spill(place);
        }
    }

    /// Like `spill_extent_of`, for the extent whose range contains the chunk, written or not.
    pub(crate) fn spill_extent_over(&mut self, index: u64) {
        if let Some(place) = self.place_over(index) {
            self.spill(place);
        }
    }

    fn spill(&mut self, place: usize) {
        let extent = self.take(place);
        for index in extent.chunks() {
            if let Some(content) = extent.get(index) {
                let mut plain = self.total.memory();
                *plain = *content;
                self.chunks.insert(index, plain);
            }
        }
    }

    /// Called once everything has been flushed: the streams may have ended.
    pub(crate) fn end_streams(&mut self) {
        self.streamed = None;
    }

    /// The extents, oldest first.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The extent whose range contains this chunk.
    pub(crate) fn extent_over(&self, index: u64) -> Option<&Extent> {
        self.place_over(index).map(|place| &self.extents[place])
    }

    fn place_over(&self, index: u64) -> Option<usize> {
        self.extents.iter().position(|extent| extent.covers(index))
    }

    /// Removes and returns the extent whose range contains this chunk.
    pub(crate) fn take_extent(&mut self, index: u64) -> Option<Extent> {
        self.place_over(index).map(|place| self.take(place))
    }

    fn take(&mut self, place: usize) -> Extent {
        let extent = self.extents.remove(place);
        self.total.pooled.fetch_sub(extent.count(), Ordering::Relaxed);
        extent
    }

    /// Makes a chunk a hole.
    pub(crate) fn punch(&mut self, index: u64) {
        self.remove(index);
        self.punched.insert(index);
    }

    /// Forgets a chunk that the store now has, or that remains the hole it is there.
    pub(crate) fn remove(&mut self, index: u64) {
        if let Some(plain) = self.chunks.remove(&index) {
            self.total.take_back(plain);
        } else if self.extents.iter_mut().any(|extent| extent.remove(index)) {
            self.total.pooled.fetch_sub(1, Ordering::Relaxed);
            self.extents.retain(|extent| extent.count() > 0);
        }
        self.punched.remove(&index);
    }

    /// Removes and returns an individually buffered chunk. Its memory is returned with the `Share` of its
    /// write.
    pub(crate) fn take_single(&mut self, index: u64) -> Option<PlainBuffer> {
        let plain = self.chunks.remove(&index)?;
        self.total.single.fetch_sub(1, Ordering::Relaxed);
        Some(plain)
    }

    /// Forgets a hole that the store now has.
    pub(crate) fn forget_hole(&mut self, index: u64) {
        self.punched.remove(&index);
    }

    /// Forgets everything past `size` and zeroes the rest of the last chunk.
    pub(crate) fn cut(&mut self, size: u64) {
        let end = layout::chunks(size);
        for index in self.written(end..u64::MAX) {
            self.remove(index);
        }
        self.punched.split_off(&end);
        if let Some(last) = end.checked_sub(1)
            && let Some(plain) = self.get_mut(last)
        {
            plain[layout::chunk_len(size, last)..].fill(0);
        }
    }
}
