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
