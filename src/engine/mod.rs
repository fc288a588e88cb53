//! Batches of chunks, and what runs them. Knows keys and buffers, no files.

mod batch;
mod buffer;
mod router;

pub use batch::{Batch, ChunkJob, Engine, EngineError, Op};
pub use buffer::{Buffer, BufferPool};
pub use router::{EngineChoice, Router};
