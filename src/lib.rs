//! warpcrypt: an encrypted, authenticated directory for Linux.
//!
//! The modules of the data path are layers; each calls only those to its left: `vault` ← `fuse` ← `cli`.
//! The lower layers are crates.

// In tests, the store fails on command, and rules of files can be broken.
#[cfg(test)]
extern crate content_testing as content;
#[cfg(test)]
extern crate store_testing as store;

pub mod cli;
pub mod fuse;
pub mod hash;
pub mod vault;

#[cfg(test)]
use content::testing::cases;
