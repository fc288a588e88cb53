//! Tests of the laboratory.

mod crypto;
mod experiments;
mod kernels;
mod mount;
mod papers;
mod support;
