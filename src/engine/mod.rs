//! Batches of chunks, and what runs them. Knows keys and buffers, no files.

mod batch;
mod buffer;
mod cpu;
mod gpu;
mod measure;
mod pool;
mod router;
mod survey;

pub use batch::{Batch, ChunkJob, Engine, EngineError, Op};
pub use buffer::{Buffer, BufferPool, Usage};
pub use cpu::CpuEngine;
pub use gpu::{Description, DriverError, Fault, GpuEngine, Shape, find as find_gpu, lab};
pub use gpu::{DeviceMemory, HostMemory, Module};
pub use measure::{Comparison, Curve};
pub use router::{EngineChoice, Router};
pub use survey::{Survey, survey};

#[cfg(test)]
mod tests;
