//! The GPU engine: over a fake CUDA driver that runs the real kernels on the CPU and fails when told to,
//! and over a real device where there is one (`REQUIRE_GPU=1`: there has to be).
//!
//! A library is chosen when a process starts, so the tests over the fake driver start this program again:
//! those that are marked as ignored here run there.

#[path = "gpu/batches.rs"]
mod batches;
#[path = "gpu/fake.rs"]
mod fake;
#[path = "gpu/faults.rs"]
mod faults;
#[path = "gpu/hashing.rs"]
mod hashing;
#[path = "gpu/memory.rs"]
mod memory;
#[path = "gpu/mounted.rs"]
mod mounted;
#[path = "gpu/planted.rs"]
mod planted;
#[path = "gpu/rates.rs"]
mod rates;
#[path = "gpu/real.rs"]
mod real;
#[path = "gpu/several.rs"]
mod several;
#[path = "gpu/startup.rs"]
mod startup;
mod support;
