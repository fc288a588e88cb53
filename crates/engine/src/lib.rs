//! Batches of chunks and the engines that run them. Deals in keys and buffers, not files.

mod batch;
mod buffer;
mod calibration;
mod cost;
mod cpu;
mod cpu_pressure;
mod engine_load;
mod engine_set;
mod gpu;
mod measure;
mod pool;
mod profile;
mod records;
mod router;

pub use batch::{Batch, ChunkJob, Engine, EngineError, Op};
pub use buffer::{Buffer, BufferPool, Usage};
pub use calibration::{Calibration, Measured, calibrate};
pub use cpu::CpuEngine;
pub use engine_set::EngineCounters;
pub use gpu::{
    COMMAND as GPU_COMMAND, STARTER_COMMAND as GPU_STARTER_COMMAND, serve as serve_gpu,
    serve_starter as serve_gpu_starter, start_gpu_process, start_gpus_apart, start_gpus_through,
    start_gpus_with,
};
pub use gpu::{
    ChannelError, Description, DriverError, Fault, GpuEngine, Shape, Timeouts, TransferModes,
    devices as gpus, driver, is_installed as gpu_is_installed,
};
pub use profile::{Curve, Function, Profile, crossover};
pub use records::{forget as forget_measurements, open_dir as measurements_dir};
pub use router::{EngineChoice, Router};

#[cfg(test)]
mod tests;
