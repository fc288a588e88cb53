//! The vault format v1: bytes to checked types and back. `docs/format.md` is the normative text.

pub mod config;
pub mod entry;
pub mod layout;
pub mod name;
pub mod record;
pub mod tree;
