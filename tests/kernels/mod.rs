//! The CUDA kernels against the portable implementation, byte for byte: on the CPU through `cuda_on_cpu.h`
//! everywhere, and on a CUDA device where there is one (REQUIRE_GPU=1 makes it an error that there is none).

mod batches;
mod checked;
mod checks;
mod hashes;
mod layout;
mod manifest;
mod primitives;
mod runner;
mod trees;
