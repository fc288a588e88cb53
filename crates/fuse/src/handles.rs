//! Handles given out by open and opendir.

use super::{errno, inodes::Node};
use content::Result;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use vault::{Dir, Listing, OpenFile};

/// An open file.
#[derive(Clone)]
pub struct FileHandle {
    /// The file's node.
    pub node: Arc<Node>,
    /// The open file, shared with the other handles of its inode.
    pub file: Arc<OpenFile>,
    /// Whether the handle may write.
    pub write: bool,
    /// Whether the handle uses direct I/O instead of the kernel's page cache.
    pub direct_io: bool,
}

/// An open directory.
pub struct DirHandle {
    /// Number of the directory's node.
    pub node: u64,
    /// The directory.
    pub dir: Arc<Dir>,
    /// The listing and its position; `None` before the first read.
    pub listing: Mutex<Option<Listing>>,
}

#[derive(Clone)]
enum Handle {
    File(FileHandle),
    Dir(Arc<DirHandle>),
}

/// The open handles.
#[derive(Default)]
pub struct Handles {
    open: RwLock<HashMap<u64, Handle>>,
    last: AtomicU64,
}

impl Handles {
    /// Adds a file handle and returns its number.
    pub fn add_file(&self, handle: FileHandle) -> u64 {
        self.add(Handle::File(handle))
    }

    /// Adds a directory handle and returns its number.
    pub fn add_dir(&self, handle: DirHandle) -> u64 {
        self.add(Handle::Dir(Arc::new(handle)))
    }

    /// Looks up an open file; EBADF if `handle` is not one.
    pub fn file(&self, handle: u64) -> Result<FileHandle> {
        match self.open.read().get(&handle) {
            Some(Handle::File(file)) => Ok(file.clone()),
            _ => Err(errno::bad_handle()),
        }
    }

    /// Looks up an open directory; EBADF if `handle` is not one.
    pub fn dir(&self, handle: u64) -> Result<Arc<DirHandle>> {
        match self.open.read().get(&handle) {
            Some(Handle::Dir(dir)) => Ok(dir.clone()),
            _ => Err(errno::bad_handle()),
        }
    }

    /// Removes a handle; returns it if it was a file's.
    pub fn remove(&self, handle: u64) -> Option<FileHandle> {
        match self.open.write().remove(&handle)? {
            Handle::File(file) => Some(file),
            Handle::Dir(_) => None,
        }
    }

    fn add(&self, handle: Handle) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(number, handle);
        number
    }
}
