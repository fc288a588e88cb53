//! Directory-descriptor operations: no path is ever resolved twice, no link followed.

use super::BackingFile;
use std::{io, os::fd::OwnedFd, sync::Arc};

/// A regular file of the store. Its descriptor can be exchanged for a writable one.
pub struct DirFile {
    fd: parking_lot::RwLock<Arc<OwnedFd>>,
}

impl DirFile {
    /// Over an open descriptor.
    pub fn new(fd: OwnedFd) -> Self {
        DirFile { fd: parking_lot::RwLock::new(Arc::new(fd)) }
    }

    /// The descriptor.
    pub fn fd(&self) -> Arc<OwnedFd> {
        self.fd.read().clone()
    }

    /// Takes over the descriptor of `other`, the same inode opened for writing.
    pub fn take_over(&self, other: DirFile) {
        *self.fd.write() = other.fd.into_inner();
    }

    /// Whether the descriptor may write.
    pub fn writable(&self) -> bool {
        todo!()
    }
}

impl BackingFile for DirFile {
    fn read_at(&self, _buf: &mut [u8], _offset: u64) -> io::Result<usize> {
        todo!()
    }
    fn write_at(&self, _buf: &[u8], _offset: u64) -> io::Result<()> {
        todo!()
    }
    fn set_len(&self, _len: u64) -> io::Result<()> {
        todo!()
    }
    fn len(&self) -> io::Result<u64> {
        todo!()
    }
    fn sync_data(&self) -> io::Result<()> {
        todo!()
    }
    fn punch(&self, _offset: u64, _len: u64) -> io::Result<()> {
        todo!()
    }
    fn reserve(&self, _offset: u64, _len: u64) -> io::Result<()> {
        todo!()
    }
    fn set_mtime(&self, _seconds: i64, _nanoseconds: u32) -> io::Result<()> {
        todo!()
    }
}
