//! What the tests that mount a vault share: a vault and its mount, commands with a time limit, seeds,
//! trees to copy.

// Every test binary includes this module and uses its own part of it.
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

pub use ready::*;
use std::{path::PathBuf, str::FromStr};
use warpcrypt::crypto::cipher::Cipher;

/// A file of the source tree. `WARPCRYPT_TEST_SOURCES` names a copy of the tree on a machine that the tests were carried to.
pub fn source(path: &str) -> PathBuf {
    let tree = std::env::var_os("WARPCRYPT_TEST_SOURCES");
    tree.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from).join(path)
}

/// The ciphers of a vault, as the command line names them.
pub fn ciphers() -> [&'static str; Cipher::ALL.len()] {
    Cipher::ALL.map(Cipher::name)
}

/// The ways that `--cache` takes.
pub const CACHES: [&str; 4] = ["auto", "kernel", "direct", "write-back"];

/// Whether tests are to do all that they can, as in `just prove`, and not a fixed sample.
pub fn is_proof() -> bool {
    std::env::var_os("PROVE").is_some()
}

/// What the environment's variable `name` says, if it says something of this type.
pub fn setting<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}
