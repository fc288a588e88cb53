//! `bench`: hands over to the laboratory, a program of its own that is installed beside this one.

use super::exit::{Code, Failure, Outcome};
use std::{env, ffi::OsString, io, os::unix::process::CommandExt, process::Command};

const PROGRAM: &str = "warpcrypt-bench";

/// Becomes the laboratory, which gets these arguments.
///
/// # Errors
/// If it is not there, or cannot be started.
pub fn run(arguments: &[OsString]) -> Outcome {
    let program = env::current_exe().map_err(|e| Failure::io("this program", &e))?.with_file_name(PROGRAM);
    let error = Command::new(&program).args(arguments).exec();
    if error.kind() != io::ErrorKind::NotFound {
        return Err(Failure::io(program.display(), &error));
    }
    Err(Failure::new(
        Code::Usage,
        format!("there is no program {}, which measures", program.display()),
        "It is built from the same sources, `cargo build --release -p warpcrypt-bench`, and installed beside this one.",
    ))
}
