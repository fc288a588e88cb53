//! warpcrypt: an encrypted, authenticated directory for Linux.
//!
//! The data path, one module a layer, each calling only those to its left:
//! `crypto` ← `engine` ← `vault` ← `fuse` ← `cli`. Beside them `reverse` computes what a vault would store, `format` turns bytes into checked
//! types (it knows `crypto`'s types only), and `store` moves bytes and knows no crypto.

pub mod cli;
pub mod crypto;
pub mod engine;
pub mod format;
pub mod fuse;
pub mod hash;
pub mod metrics;
pub mod reverse;
pub mod store;
pub mod vault;

/// How many cases a test takes: a fixed sample, or `whole` where `PROVE` is set, as `just prove` does.
#[cfg(test)]
fn cases(sample: u64, whole: u64) -> u64 {
    if std::env::var_os("PROVE").is_some() { whole } else { sample }
}
