//! The `warpcrypt` program.

use std::process::ExitCode;
use warpcrypt::crypto::allocator::WipingAllocator;

#[global_allocator]
static ALLOCATOR: WipingAllocator = WipingAllocator;

fn main() -> ExitCode {
    warpcrypt::cli::main()
}
