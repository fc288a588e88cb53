//! Completion scripts and man pages, generated from the command-line grammar.

use super::{
    exit::{Failure, Outcome},
    print,
};
use clap::Command;
use clap_complete::Shell;
use std::path::Path;

/// Prints a shell's completion script for `program`.
///
/// # Errors
/// If standard output cannot be written.
pub fn completions(mut program: Command, shell: Shell) -> Outcome {
    let (name, mut script) = (program.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut program, name, &mut script);
    print(&String::from_utf8_lossy(&script)).map(drop)
}

/// Writes a man page for `program`, and one for each of its commands, into `dir`.
///
/// # Errors
/// If a page cannot be written.
pub fn man(program: Command, dir: &Path) -> Outcome {
    clap_mangen::generate_to(program, dir)
        .map_err(|e| Failure::io(format!("man pages in {}", dir.display()), &e))
}
