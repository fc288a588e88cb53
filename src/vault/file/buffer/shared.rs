//! What the buffers of all files of a vault hold together, and memory that is kept for them.

use super::plain::Plain;
use crate::crypto::chunk::CHUNK;
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Chunks of all files of a vault that were written and are not in the store.
#[derive(Default)]
pub struct Buffered {
    /// Each in memory of its own.
    pub single: AtomicUsize,
    /// In extents or in flight: in buffers of the pool.
    pub pooled: AtomicUsize,
    /// Files that are written as streams: each from its first extent until all of it is flushed.
    pub streams: AtomicUsize,
    /// Memory of chunks that are no longer here, for those to come: new memory costs more than what is done with it.
    spare: Mutex<Vec<Plain>>,
    /// How many chunks it is kept for, those that are here included.
    kept: usize,
}

impl Buffered {
    /// None yet. Keeps memory that was used for them for so many bytes.
    pub fn new(kept: usize) -> Self {
        Buffered { kept: kept / CHUNK, ..Buffered::default() }
    }

    /// Memory for a chunk. Its content is unspecified.
    pub(super) fn memory(&self) -> Plain {
        let spare = self.spare.lock().pop();
        self.single.fetch_add(1, Ordering::Relaxed);
        spare.unwrap_or_else(Plain::zeros)
    }

    /// Takes the memory of a chunk back.
    pub(super) fn take_back(&self, memory: Plain) {
        self.single.fetch_sub(1, Ordering::Relaxed);
        self.keep([memory]);
    }

    /// Keeps memory of chunks that are no longer counted.
    fn keep(&self, memory: impl IntoIterator<Item = Plain>) {
        let room = self.kept.saturating_sub(self.single.load(Ordering::Relaxed));
        let mut spare = self.spare.lock();
        let more = room.saturating_sub(spare.len());
        spare.extend(memory.into_iter().take(more));
    }

    /// Lets go of memory that is kept; it is wiped.
    pub fn forget_spare(&self) {
        self.spare.lock().clear();
    }

    /// All of them.
    pub fn chunks(&self) -> usize {
        self.single.load(Ordering::Relaxed) + self.pooled.load(Ordering::Relaxed)
    }
}

/// Chunks in flight, counted as buffered until this is dropped.
pub(in crate::vault::file) struct Share {
    total: Arc<Buffered>,
    chunks: usize,
}

impl Share {
    pub(in crate::vault::file) fn new(total: Arc<Buffered>, chunks: usize) -> Self {
        total.pooled.fetch_add(chunks, Ordering::Relaxed);
        Share { total, chunks }
    }

    /// Takes back the memory of chunks that were copied to a batch.
    pub(in crate::vault::file) fn keep(&self, memory: Vec<Plain>) {
        self.total.keep(memory);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.total.pooled.fetch_sub(self.chunks, Ordering::Relaxed);
    }
}

/// A file counted as streamed until this is dropped.
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
