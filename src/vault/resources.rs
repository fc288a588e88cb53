//! What an open vault holds of the machine.

use super::Vault;
use crate::{crypto::chunk::CHUNK, engine::EngineCounters};

/// Memory for contents of an open vault, in bytes.
pub(super) const MEMORY: usize = 256 << 20;

/// How that memory is shared out, in bytes. The parts are less than all of it: the rest is for requests, and
/// for what the allocator cannot use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Buffers, those that are kept for reuse included.
    pub buffers: usize,
    /// Of these: what is opened ahead of readers. With a GPU it takes twice as much while it is being opened.
    pub ahead: usize,
    /// Chunks that were written one by one and not flushed yet: from here on the larger files flush theirs,
    /// from twice as many on all do.
    pub behind: usize,
    /// Of these: what one file has at most. Many: chunks of a group share a page of entries and a digest.
    pub singles: usize,
    /// What was written and not flushed, in buffers or beside them, up to which a close may leave some.
    pub left_at_close: usize,
    /// Leaves of slots.
    pub slots: usize,
}

impl Budget {
    /// Of so many bytes.
    pub fn of(memory: usize) -> Self {
        Budget {
            buffers: memory / 4 * 3,
            ahead: memory / 4,
            behind: memory / 16,
            singles: if cfg!(test) { 1 << 20 } else { 16 << 20 },
            left_at_close: memory / 4,
            slots: memory / 16,
        }
    }
}

/// Memory for contents, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// In buffers of batches, at the moment.
    pub buffers: usize,
    /// The most that buffers in use ever held.
    pub peak: usize,
    /// What buffers may hold, in use or kept.
    pub bound: usize,
    /// Opened ahead of readers; a part of `buffers`.
    pub ahead: usize,
    /// Written and not in the store yet: what is in stripes or on its way is a part of `buffers`.
    pub behind: usize,
    /// Slots of chunks; beside `buffers`.
    pub slots: usize,
}

impl Vault {
    /// Memory for contents.
    pub fn memory(&self) -> Memory {
        let context = self.files().context();
        let buffers = context.router.buffers.usage();
        Memory {
            buffers: buffers.in_use,
            peak: buffers.peak,
            bound: buffers.bound,
            ahead: context.ahead.bytes(),
            behind: context.buffered.chunks().saturating_mul(CHUNK),
            slots: context.slots.bytes(),
        }
    }

    /// What each engine did: the CPU, then the GPUs in use.
    pub fn engines(&self) -> Vec<EngineCounters> {
        self.files().context().router.counters()
    }
}
