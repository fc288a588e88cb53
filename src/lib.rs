//! warpcrypt: an encrypted, authenticated directory for Linux.
//!
//! The modules of the data path are layers; each calls only those to its left: `content` ← `vault` ← `fuse` ← `cli`.
//! The lower layers are crates.

// In tests, the store fails on command.
#[cfg(test)]
extern crate store_testing as store;

pub mod cli;
pub mod content;
pub mod fuse;
pub mod hash;
pub mod vault;

/// Number of cases a test runs: `sample`, or `whole` if `PROVE` is set, as `just prove` does.
#[cfg(test)]
fn cases(sample: u64, whole: u64) -> u64 {
    if std::env::var_os("PROVE").is_some() { whole } else { sample }
}
