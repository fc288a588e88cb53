//! Hashing of files and folders: finding the files, reading and hashing them on all cores, comparing with
//! lists of known hashes, and finding files that share pieces. Files lie on a plain filesystem or in a vault
//! (`source`); what a person sees is made elsewhere.
//!
//! The files of a folder are read side by side into one buffer and hashed as one batch, so that the lanes
//! of a vector are filled from different files; long files are cut in parts that all threads share, or
//! where the function forbids that, hashed several at once. What a GPU can hash goes to it
//! while the threads read on (`gpu`, `flights`).

mod flights;
pub mod gpu;
mod known;
mod large;
pub mod list;
pub mod pieces;
mod queue;
mod serial;
mod short;
mod source;
mod tree;
mod walk;
mod work;

#[cfg(test)]
mod changing;
#[cfg(test)]
mod tests;

pub use known::{Audit, Known, Verdict};
pub use source::{Content, Kind, Listed, Plain, Source, Vaulted};
pub use walk::count;
pub use work::{Hashed, Options, Progress, Record, run};
