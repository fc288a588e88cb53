//! `tools/vaultread.py`, the second implementation of the format, compared with the program.

use crate::support::{command::ok, is_proof, mounted::program_path, ready, source};
use std::process::Command;

/// Runs one test case of `tools/test_vaultread.py`, which creates vaults with the program.
fn agree(case: &str, seconds: u64) {
    if !ready(&["python3"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("python3");
    command.arg("-B").arg(source("tools/test_vaultread.py")).arg(case);
    command.env("WARPCRYPT_TEST_PROGRAM", program_path()).env("TMPDIR", place.path());
    ok(&mut command, if is_proof() { 3600 } else { seconds });
}

#[test]
fn the_reader_computes_the_published_answers() {
    agree("Primitives", 120);
}

#[test]
fn the_reader_reads_what_the_program_wrote() {
    agree("Matrix", 300);
}

#[test]
fn the_reader_recovers_killed_files_as_the_program_does() {
    agree("Killed", 300);
}

#[test]
fn the_reader_accepts_under_a_former_key_what_the_program_does() {
    agree("Rotated", 300);
}

#[test]
fn every_flipped_byte_of_a_file_gets_one_verdict() {
    agree("Flips", 300);
}

#[test]
fn every_flipped_byte_of_what_is_no_content_gets_one_verdict() {
    agree("Nodes", 300);
}
