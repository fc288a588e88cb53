//! warpcrypt: an encrypted, authenticated directory for Linux.
//!
//! The modules of the data path are layers; each calls only those to its left: `vault` ← `fuse` ← `cli`.
//! Beside them, `reverse` computes what a vault would store. The crates `crypto`, `engine`, `format`,
//! `metrics` and `store` are below all of these.

// In tests, the store fails on command.
#[cfg(test)]
extern crate store_testing as store;

pub mod cli;
pub mod fuse;
pub mod hash;
pub mod reverse;
pub mod vault;

/// Number of cases a test runs: `sample`, or `whole` if `PROVE` is set, as `just prove` does.
#[cfg(test)]
fn cases(sample: u64, whole: u64) -> u64 {
    if std::env::var_os("PROVE").is_some() { whole } else { sample }
}
