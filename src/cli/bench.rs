//! `bench`: runs the benchmark program, a separate executable installed in the same directory.

use super::exit::{Code, Failure, Outcome};
use std::{env, ffi::OsString, io, os::unix::process::CommandExt, process::Command};

const PROGRAM: &str = "warpcrypt-bench";

/// Replaces this process with the benchmark program.
///
/// # Errors
/// If it is missing or cannot be started.
pub fn run(arguments: &[OsString]) -> Outcome {
    let program = env::current_exe().map_err(|e| Failure::io("this program", &e))?.with_file_name(PROGRAM);
    let error = Command::new(&program).args(arguments).exec();
    if error.kind() != io::ErrorKind::NotFound {
        return Err(Failure::io(program.display(), &error));
    }
    Err(Failure::new(
        Code::Usage,
        format!("the benchmark program {} is missing", program.display()),
        "Build it with `cargo build --release -p warpcrypt-bench` and install it in the same directory as this one.",
    ))
}
