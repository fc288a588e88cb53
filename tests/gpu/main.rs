//! The GPU engine: over a fake CUDA driver that runs the real kernels on the CPU and fails on request,
//! and over a real device if there is one (`REQUIRE_GPU=1` requires one).
//!
//! A process chooses its driver library at startup, so the tests over the fake driver start this program
//! again. The tests marked as ignored run there.

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
