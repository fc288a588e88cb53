//! The open files: one `OpenFile` an inode, and the keeper that brings idle ones to rest.

use super::{File, Result, file::Context};
use crate::store::DirFile;
use std::sync::Arc;

/// An open regular file, shared by all its handles.
pub struct OpenFile {
    /// Its content.
    pub file: File,
    /// Its descriptor in the store.
    pub store: Arc<DirFile>,
    /// Device and inode number in the store.
    pub key: (u64, u64),
}

/// The open files of a vault.
pub struct Files {
    _todo: (),
}

impl Files {
    /// No open files.
    pub fn new(_context: Arc<Context>) -> Arc<Files> {
        Arc::new(Files { _todo: () })
    }

    /// Flushes every file, makes all durable and writes the clean records.
    pub fn shut_down(&self) -> Result<()> {
        Ok(())
    }

    /// The open file of an inode, if it is open (or kept to be brought to rest).
    pub fn get(&self, _key: (u64, u64)) -> Option<Arc<OpenFile>> {
        None
    }

    /// The open file of an inode: the one in the table, or a new one over `store`. If the one in the
    /// table has a read-only descriptor and `store` is writable, it takes over `store`'s.
    pub fn open(&self, _key: (u64, u64), _store: DirFile) -> Result<Arc<OpenFile>> {
        todo!()
    }

    /// Says that the inode's last link is gone: what was not flushed need not be.
    pub fn forget(&self, _key: (u64, u64)) {}
}
