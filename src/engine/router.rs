//! The only place that decides which engine runs a batch.

use super::{Batch, BufferPool, CpuEngine, Engine, EngineError};
use crate::crypto::{
    AuthError,
    chunk::{ChunkId, ChunkKeys, Tag},
};
use std::sync::Arc;

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EngineChoice {
    /// Whatever finishes first.
    #[default]
    Auto,
    /// CPU only.
    Cpu,
    /// GPU, or an error if there is none.
    Gpu,
}

/// Small work inline, batches over the engines.
pub struct Router {
    /// The buffers of its batches.
    pub buffers: Arc<BufferPool>,
    cpu: CpuEngine,
}

impl Router {
    /// Starts the engines; `memory` bounds the buffers in bytes. Starts threads: a process that forks
    /// into the background does so before.
    ///
    /// # Errors
    /// If the chosen engine is not to be had.
    pub fn new(choice: EngineChoice, memory: usize) -> Result<Self, EngineError> {
        if choice == EngineChoice::Gpu {
            return Err(EngineError::Failed {
                engine: "gpu".to_owned(),
                cause: "no GPU engine in this build".to_owned(),
            });
        }
        let cpu = CpuEngine::new();
        if choice == EngineChoice::Auto {
            log::info!("engine: {} threads of the CPU, as this build has no other engine", cpu.threads());
        }
        Ok(Router { buffers: Arc::new(BufferPool::new(memory)), cpu })
    }

    /// Threads that work on one batch at most: a batch of fewer than 16 chunks for each keeps some idle.
    pub fn threads(&self) -> usize {
        self.cpu.threads()
    }

    /// Runs a batch and returns when every job has its result.
    ///
    /// # Errors
    /// If a job is not one (`EngineError::BadJob`, and none was run), or no engine could run the batch.
    pub fn run(&self, batch: &mut Batch) -> Result<(), EngineError> {
        self.cpu.run(batch)
    }

    /// One chunk, inline.
    ///
    /// # Panics
    /// As `ChunkKeys::seal`: if the lengths differ or the index is out of range.
    pub fn seal_one(&self, keys: &ChunkKeys, id: &ChunkId, plain: &[u8], out: &mut [u8]) -> Tag {
        keys.seal(id, plain, out)
    }

    /// One chunk, inline, in place.
    ///
    /// # Errors
    /// `AuthError` if it does not verify; `data` is then untouched.
    ///
    /// # Panics
    /// As `ChunkKeys::open_in_place`: if the index is out of range.
    pub fn open_one(
        &self,
        keys: &ChunkKeys,
        id: &ChunkId,
        tag: &Tag,
        data: &mut [u8],
    ) -> Result<(), AuthError> {
        keys.open_in_place(id, tag, data)
    }
}
