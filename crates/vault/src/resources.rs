//! Memory and engines that an open vault uses.

use super::Vault;
use crypto::chunk::CHUNK;
use engine::EngineCounters;

/// Default memory for file contents of an open vault, in bytes.
pub(super) const MEMORY: usize = 256 << 20;

/// Memory in use for contents, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
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
    pub fn memory(&self) -> MemoryUse {
        let context = self.files().context();
        let buffers = context.router.buffers.usage();
        MemoryUse {
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
