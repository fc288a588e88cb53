//! Memory and engines that an open vault uses.

use super::Vault;
use crypto::chunk::CHUNK;
use engine::EngineCounters;

/// Default memory for file contents of an open vault, in bytes.
pub(super) const MEMORY: usize = 256 << 20;

/// How that memory is divided, in bytes. The parts do not add up to all of it: the rest is for requests,
/// and for the allocator's overhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Buffers, including those kept for reuse.
    pub buffers: usize,
    /// The part of `buffers` for data decrypted ahead of readers. With a GPU, the data takes twice as
    /// much while it is being decrypted.
    pub ahead: usize,
    /// Limit for chunks of all files that were written one by one and are not flushed yet. From this
    /// limit on, files with many such chunks flush them. From twice the limit on, all files do.
    pub behind: usize,
    /// Limit for such chunks of one file. It is high because the chunks of a group share a page of
    /// entries and a digest.
    pub singles: usize,
    /// A close may leave data unflushed while less than this is unflushed in all, in buffers or outside
    /// them.
    pub left_at_close: usize,
    /// Memory for leaves of slots.
    pub slots: usize,
}

impl Budget {
    /// Divides `memory` bytes.
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

/// Memory in use for contents, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// In buffers of batches at the moment.
    pub buffers: usize,
    /// The most that buffers in use ever held.
    pub peak: usize,
    /// Limit for buffers, in use or kept.
    pub bound: usize,
    /// Decrypted ahead of readers. A part of `buffers`.
    pub ahead: usize,
    /// Written but not in the store yet. Data in stripes or in flight is a part of `buffers`.
    pub behind: usize,
    /// Slots of chunks, in addition to `buffers`.
    pub slots: usize,
}

impl Vault {
    /// Memory in use for contents.
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

    /// Work done by each engine: the CPU first, then the GPUs in use.
    pub fn engines(&self) -> Vec<EngineCounters> {
        self.files().context().router.counters()
    }
}
