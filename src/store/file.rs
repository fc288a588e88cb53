//! The small trait between a file's format and where its bytes are.

use std::{
    ffi::{OsStr, OsString},
    io,
};

/// One stored file. All methods may be called from several threads.
pub trait BackingFile: Send + Sync {
    /// Reads until `buf` is full or the file ends; returns the bytes read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Reads one behind the other into the pieces, in as few calls as the store allows, until they are full
    /// or the file ends; returns the bytes read.
    fn read_vectored_at(&self, pieces: &mut [io::IoSliceMut], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        for piece in pieces {
            let read = self.read_at(piece, offset + done as u64)?;
            done += read;
            if read < piece.len() {
                break;
            }
        }
        Ok(done)
    }
    /// Writes all of `buf`.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Writes the pieces one behind the other, in as few calls as the store allows.
    fn write_vectored_at(&self, pieces: &[io::IoSlice], mut offset: u64) -> io::Result<()> {
        for piece in pieces {
            self.write_at(piece, offset)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }
    /// Cuts or extends (with zeros).
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// fdatasync: what was written is durable when it returns.
    fn sync_data(&self) -> io::Result<()>;
    /// fsync: its owner, permissions, times and attributes, too. A store that has none need not know the difference.
    fn sync_whole(&self) -> io::Result<()> {
        self.sync_data()
    }
    /// Frees a range (it reads as zeros); a store that cannot may do nothing.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
    /// The first byte from `offset` on that lies in no hole of the store; `None` if there is none (SEEK_DATA). A store that
    /// does not know its holes has none.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok((offset < self.len()?).then_some(offset))
    }
    /// Reserves space for a range without changing content or length; EOPNOTSUPP if it cannot.
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()>;
    /// The modification time: seconds and nanoseconds since 1970.
    fn mtime(&self) -> io::Result<(i64, u32)>;
    /// Sets the modification time: seconds and nanoseconds since 1970.
    fn set_mtime(&self, seconds: i64, nanoseconds: u32) -> io::Result<()>;
    /// Names of its extended attributes. A store that has none need not know of them.
    fn attribute_names(&self) -> io::Result<Vec<OsString>> {
        Ok(Vec::new())
    }
    /// Sets an extended attribute.
    fn set_attribute(&self, _name: &OsStr, _value: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes an extended attribute, if it is there.
    fn remove_attribute(&self, _name: &OsStr) -> io::Result<()> {
        Ok(())
    }
    /// Takes permission bits away.
    fn forbid(&self, _rights: u32) -> io::Result<()> {
        Ok(())
    }
    /// Locks the file against all others who have opened it and lock it, on any machine; false if one of them has it locked.
    /// Where it cannot be written, they may read, too.
    ///
    /// # Errors
    /// `Unsupported` where that cannot be; else the store's.
    fn try_lock(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Gives the lock back.
    fn unlock(&self) {}
    /// Has the next read of the first `len` bytes, or of all if that is 0, ask the store for what another machine wrote.
    fn drop_cached(&self, _len: u64) {}
}
