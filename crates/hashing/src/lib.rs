//! Hashing of files and folders. Finds the files, reads and hashes them on all cores, compares them with
//! lists of known hashes, and finds files that share pieces. The files are on a plain filesystem or in a
//! vault (`source`). The output is formatted elsewhere.
//!
//! Short files are read into one buffer and hashed as one batch, so that different files fill the lanes of
//! a vector (`short`). Long files are split into parts that all threads share. If the function does not
//! allow that, several files are hashed side by side (`long`). A GPU hashes while the threads continue
//! reading (`gpu`, `offload`).

pub mod gpu;
mod in_flight;
mod known;
mod large;
pub mod list;
mod long;
mod offload;
pub mod pieces;
mod queue;
mod run;
mod serial;
mod short;
mod source;
mod tree;
mod walk;
mod worker;

#[cfg(test)]
mod changing;
#[cfg(test)]
mod tests;

pub use known::{Audit, Known, Verdict};
pub use run::run;
pub use source::{Content, Plain, Source, SourceEntry, SourceKind, VaultPlace, Vaulted};
pub use walk::count;
pub use worker::{HashRecord, Hashed, Options, Progress};
