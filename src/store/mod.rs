//! The encrypted directory's bytes: moves them, knows no crypto.

mod dir;
mod faulty;
mod file;

pub use dir::{DirFile, Listed, Node, StoreDir};
pub use faulty::{Failure, FaultyFile, SECTOR, Snapshot};
pub use file::BackingFile;
