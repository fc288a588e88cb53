//! The CUDA kernels against the portable implementation, byte for byte: on the CPU through `cuda_on_cpu.h`
//! everywhere, and on a CUDA device where there is one (REQUIRE_GPU=1 makes it an error that there is none).

#[path = "kernels/batches.rs"]
mod batches;
#[path = "kernels/checked.rs"]
mod checked;
#[path = "kernels/checks.rs"]
mod checks;
#[path = "kernels/hashes.rs"]
mod hashes;
#[path = "kernels/layout.rs"]
mod layout;
#[path = "kernels/manifest.rs"]
mod manifest;
#[path = "kernels/primitives.rs"]
mod primitives;
#[path = "kernels/runner.rs"]
mod runner;
#[path = "kernels/trees.rs"]
mod trees;
