//! The CUDA kernels compared with the portable implementation, byte for byte: on the CPU through
//! `cuda_on_cpu.h` everywhere, and on a CUDA device if there is one (`REQUIRE_GPU=1` requires one).

mod batches;
mod checked;
mod checks;
mod hashes;
mod layout;
mod manifest;
mod primitives;
mod runner;
mod trees;
