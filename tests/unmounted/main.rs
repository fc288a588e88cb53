//! Tests that need no mount: documents and layers compared with the source, published vectors, stored
//! vaults, and the kernels on the CPU.

mod format_document;
#[path = "../kernels/mod.rs"]
mod kernels;
mod layering;
#[path = "../support/mod.rs"]
mod support;
mod vaults;
#[path = "../vectors/mod.rs"]
mod vectors;
