//! What an open vault holds of the machine.

use super::Vault;
use crate::{crypto::chunk::CHUNK, engine::EngineCounters};
use std::sync::atomic::Ordering;

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
            ahead: context.ahead.load(Ordering::Relaxed),
            behind: context.buffered.chunks().saturating_mul(CHUNK),
        }
    }

    /// What each engine did: the CPU, then the GPUs in use.
    pub fn engines(&self) -> Vec<EngineCounters> {
        self.files().context().router.counters()
    }
}
