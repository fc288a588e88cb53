//! The encrypted directory's bytes: moves them, knows no crypto.

mod dir;
mod faulty;
mod file;

pub use dir::{DirFile, DirStream, Filesystem, Listed, Node, StoreDir, is_dots};
pub use faulty::{Call, Failure, FaultyFile, SECTOR, Snapshot};
pub use file::BackingFile;
