//! Shared support for tests that mount a vault: a vault and its mount, commands with a time limit, seeds,
//! and trees to copy.

// Every test binary includes this module and uses only part of it.
#![allow(dead_code, unused_imports)]

pub mod command;
pub mod disk;
pub mod failure;
pub mod fake;
pub mod images;
pub mod mounted;
pub mod ordinary;
pub mod random;
pub mod raw;
pub mod ready;
pub mod store;
pub mod tree;
pub mod turns;
pub mod waiting;

use crypto::cipher::Cipher;
pub use ready::*;
use std::{path::PathBuf, str::FromStr};

/// A file of the source tree. `WARPCRYPT_TEST_SOURCES` names a copy of the tree on a machine that the tests
/// were copied to.
pub fn source(path: &str) -> PathBuf {
    let tree = std::env::var_os("WARPCRYPT_TEST_SOURCES");
    tree.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from).join(path)
}

/// The ciphers of a vault, by their names on the command line.
pub fn ciphers() -> [&'static str; Cipher::ALL.len()] {
    Cipher::ALL.map(Cipher::name)
}

/// The values of `--cache`.
pub const CACHES: [&str; 4] = ["auto", "kernel", "direct", "write-back"];

/// Whether tests should be exhaustive, as in `just prove`, instead of using a fixed sample.
pub fn is_proof() -> bool {
    std::env::var_os("PROVE").is_some()
}

/// The environment variable `name`, if it is set and parses as this type.
pub fn setting<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}
