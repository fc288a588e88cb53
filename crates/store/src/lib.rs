//! Access to the encrypted directory. This crate moves bytes and knows nothing about encryption.

mod dir;
#[cfg(feature = "testing")]
mod faulty;
mod file;

pub use dir::{
    DirFile, DirStream, Filesystem, Flock, Listed, Node, StoreDir, fsync, is_dots, is_marked, is_to_be_marked,
};
#[cfg(feature = "testing")]
pub use dir::{Locks, after_power_cut, cut_power_after, is_kept, like_nfs, scarce, sweep};
#[cfg(feature = "testing")]
pub use faulty::{Call, Failure, FaultyFile, SECTOR, Snapshot};
pub use file::BackingFile;
