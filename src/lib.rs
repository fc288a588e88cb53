//! warpcrypt: an encrypted, authenticated directory for Linux.
//!
//! The modules of the data path are layers; each calls only those to its left: `fuse` ← `cli`. The lower layers are
//! crates.

pub mod cli;
pub mod fuse;
pub mod hash;
