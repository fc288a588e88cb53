//! Completion scripts and man pages, made from the grammar of the command line.

use super::{
    args::Cli,
    exit::{Failure, Outcome},
    print,
};
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::Path;

/// Prints the completion script of a shell.
pub fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "warpcrypt", &mut script);
    print(&String::from_utf8_lossy(&script)).map(drop)
}

/// Writes a man page for the program and one for each command into `dir`.
///
/// # Errors
/// If a page cannot be written.
pub fn man(dir: &Path) -> Outcome {
    clap_mangen::generate_to(Cli::command(), dir)
        .map_err(|e| Failure::io(format!("man pages in {}", dir.display()), &e))
}
