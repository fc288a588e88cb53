//! The commands of warpcrypt: an encrypted, authenticated directory for Linux.
//!
//! The layers below are crates.

pub mod cli;
