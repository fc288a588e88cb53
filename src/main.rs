//! The `warpcrypt` program.

use crypto::allocator::WipingAllocator;
use std::{alloc::System, process::ExitCode};

#[global_allocator]
static ALLOCATOR: WipingAllocator = WipingAllocator(System);

fn main() -> ExitCode {
    warpcrypt::cli::main()
}
