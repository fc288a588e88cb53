//! Batches of chunks, and what runs them. Knows keys and buffers, no files.

mod batch;
mod buffer;
mod cpu;
mod pool;
mod router;

pub use batch::{Batch, ChunkJob, Engine, EngineError, Op};
pub use buffer::{Buffer, BufferPool};
pub use cpu::CpuEngine;
pub use router::{EngineChoice, Router};

#[cfg(test)]
mod tests;
