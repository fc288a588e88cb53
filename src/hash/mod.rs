//! Hashing of files and folders: finds the files, reads and hashes them on all cores, compares them with lists of
//! known hashes, and finds files that share pieces. Files are on a plain filesystem or in a vault (`source`). The
//! output is made elsewhere.
//!
//! Short files are read into one buffer and hashed as one batch, so that the lanes of a vector are filled from
//! different files (`short`). Long files are cut into parts that all threads share, or several are hashed at once if
//! the function cannot be cut (`long`). A GPU hashes while the threads read on (`gpu`, `offload`).

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
pub use source::{Content, Kind, Listed, Plain, Source, VaultPlace, Vaulted};
pub use walk::count;
pub use worker::{Hashed, Options, Progress, Record};
