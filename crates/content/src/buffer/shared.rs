//! Counters over the write buffers of all files of a vault, and spare memory for their chunks.

use super::plain::PlainBuffer;
use crypto::chunk::CHUNK;
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Chunks of all files of a vault that were written but are not yet in the store.
#[derive(Default)]
pub struct Buffered {
    /// Chunks that are allocated individually.
    pub single: AtomicUsize,
    /// Chunks in extents or in flight, which are in pool buffers.
    pub pooled: AtomicUsize,
    /// Files written as streams, each counted from its first extent until everything is flushed.
    pub streams: AtomicUsize,
    /// Spare memory of chunks no longer buffered. Allocating new memory costs more than the work done in
    /// it.
    spare: Mutex<Vec<PlainBuffer>>,
    /// Limit for spare and individually buffered chunks together.
    kept: usize,
}

impl Buffered {
    /// No chunks yet. Keeps up to this many bytes of spare memory, less the chunks in use.
    pub fn new(kept: usize) -> Self {
        Buffered { kept: kept / CHUNK, ..Buffered::default() }
    }

    /// Memory for a chunk. Its content is unspecified.
    pub(super) fn memory(&self) -> PlainBuffer {
        let spare = self.spare.lock().pop();
        self.single.fetch_add(1, Ordering::Relaxed);
        spare.unwrap_or_else(PlainBuffer::zeros)
    }

    /// Takes back the memory of a chunk.
    pub(super) fn take_back(&self, memory: PlainBuffer) {
        self.single.fetch_sub(1, Ordering::Relaxed);
        self.keep([memory]);
    }

    /// Keeps memory of chunks that are no longer counted, up to the limit.
    fn keep(&self, memory: impl IntoIterator<Item = PlainBuffer>) {
        let room = self.kept.saturating_sub(self.single.load(Ordering::Relaxed));
        let mut spare = self.spare.lock();
        let more = room.saturating_sub(spare.len());
        spare.extend(memory.into_iter().take(more));
    }

    /// Frees the spare memory, which wipes it.
    pub fn forget_spare(&self) {
        self.spare.lock().clear();
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.single.load(Ordering::Relaxed) + self.pooled.load(Ordering::Relaxed)
    }
}

/// Chunks in flight, counted as buffered until this is dropped.
pub(crate) struct Share {
    total: Arc<Buffered>,
    chunks: usize,
}

impl Share {
    pub(crate) fn new(total: Arc<Buffered>, chunks: usize) -> Self {
        total.pooled.fetch_add(chunks, Ordering::Relaxed);
        Share { total, chunks }
    }

    /// Takes back the memory of chunks that were copied to a batch.
    pub(crate) fn keep(&self, memory: Vec<PlainBuffer>) {
        self.total.keep(memory);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.total.pooled.fetch_sub(self.chunks, Ordering::Relaxed);
    }
}

/// Counts a file as streamed until this is dropped.
pub(super) struct Streamed(Arc<Buffered>);

impl Streamed {
    pub(super) fn new(total: Arc<Buffered>) -> Self {
        total.streams.fetch_add(1, Ordering::Relaxed);
        Streamed(total)
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
