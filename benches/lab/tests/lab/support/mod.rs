//! Helpers for the tests of the laboratory, most of them shared with the program's tests.

// The files below belong to the program's tests, which use everything in them.
#![allow(dead_code)]

#[path = "../../../../../tests/support/command.rs"]
pub mod command;
#[path = "../../../../../tests/support/ready.rs"]
pub mod ready;
#[path = "../../../../../tests/support/turns.rs"]
mod turns;

use std::{path::Path, process::Command};

/// A command that runs the laboratory.
pub fn bench<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpcrypt-bench"));
    command.args(arguments);
    command
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
