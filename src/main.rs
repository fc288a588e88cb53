//! The `warpcrypt` program.

use std::{alloc::System, process::ExitCode};
use warpcrypt::crypto::allocator::WipingAllocator;

#[global_allocator]
static ALLOCATOR: WipingAllocator = WipingAllocator(System);

fn main() -> ExitCode {
    warpcrypt::cli::main()
}
