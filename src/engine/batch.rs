//! A batch: chunk jobs of any number of files over two contiguous buffers.

use super::Buffer;
use crate::crypto::chunk::{ChunkId, ChunkKeys, Tag};
use std::sync::Arc;

/// What a batch does to its chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Plaintext to ciphertext and tag.
    Seal,
    /// Ciphertext and tag to plaintext, or a failure.
    Open,
}

/// One chunk of a batch.
#[derive(Debug, Clone)]
pub struct ChunkJob {
    /// Place in `Batch::keys`.
    pub key: usize,
    /// Index, epoch and nonce.
    pub id: ChunkId,
    /// Bytes: 1 to 4096.
    pub len: usize,
    /// Where the chunk starts in the batch's buffers (input and output alike).
    pub offset: usize,
    /// Result of a seal; what an open must find.
    pub tag: Tag,
    /// Whether the job succeeded; set by the engine (an open may fail, a seal does not).
    pub ok: bool,
}

/// Chunk jobs over one buffer of input and one of output.
pub struct Batch {
    /// Seal or open.
    pub op: Op,
    /// The keys that the jobs name.
    pub keys: Vec<Arc<ChunkKeys>>,
    /// The chunks; their ranges do not overlap.
    pub jobs: Vec<ChunkJob>,
    /// What is read.
    pub input: Buffer,
    /// What is written, at least as long as `input`. The chunk of a failed open is zeroed.
    pub output: Buffer,
}

/// Why an engine could not run a batch; the batch's input is intact.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine is gone or failed.
    #[error("engine {engine}: {cause}")]
    Failed {
        /// Its name.
        engine: String,
        /// What it said.
        cause: String,
    },
}

/// Runs batches. Every engine makes the same bytes.
pub trait Engine: Send + Sync {
    /// Its name for people and logs.
    fn name(&self) -> &str;

    /// Runs the batch and returns when every job has its result.
    ///
    /// # Errors
    /// If the engine failed as a whole; the router then gives the batch to another.
    fn run(&self, batch: &mut Batch) -> Result<(), EngineError>;
}
