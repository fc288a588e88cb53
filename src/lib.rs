//! warpcrypt: an encrypted, authenticated directory for Linux.
//!
//! The data path, one module a layer, each calling only those to its left:
//! `crypto` ← `engine` ← `vault` ← `fuse` ← `cli`. Beside them `format` turns bytes into checked
//! types (it knows `crypto`'s types only), `store` moves bytes and knows no crypto, and `report` shows what
//! measurements found.

pub mod cli;
pub mod crypto;
pub mod engine;
pub mod format;
pub mod fuse;
pub mod hash;
pub mod metrics;
pub mod report;
pub mod store;
pub mod vault;
