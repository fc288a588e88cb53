//! The GPU engine: over a fake CUDA driver that runs the real kernels on the CPU and fails when told to,
//! and over a real device where there is one (`REQUIRE_GPU=1`: there has to be).
//!
//! A library is chosen when a process starts, so the tests over the fake driver start this program again:
//! those that are marked as ignored here run there.

mod batches;
mod fake;
mod faults;
mod hashing;
mod memory;
mod mounted;
mod planted;
mod rates;
mod real;
mod several;
mod startup;
#[path = "../support/mod.rs"]
mod support;
