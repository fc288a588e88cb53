//! The `warpcrypt` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpcrypt::cli::main()
}
