//! The interface between the file format and the place where its bytes are stored.

use std::{
    ffi::{OsStr, OsString},
    io,
};

/// A stored file. All methods may be called from several threads.
pub trait BackingFile: Send + Sync {
    /// Reads until `buf` is full or the file ends; returns the number of bytes read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Reads into consecutive buffers, in as few calls as the store allows, until they are full or the
    /// file ends; returns the number of bytes read.
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
    /// Writes consecutive buffers, in as few calls as the store allows.
    fn write_vectored_at(&self, pieces: &[io::IoSlice], mut offset: u64) -> io::Result<()> {
        for piece in pieces {
            self.write_at(piece, offset)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }
    /// Truncates, or extends with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Length of the file in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has length 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// As fdatasync(2): content and length are durable on return.
    fn sync_data(&self) -> io::Result<()>;
    /// As fsync(2): also makes owner, permissions, times and attributes durable. By default the same as
    /// `sync_data`, for stores without such metadata.
    fn sync_whole(&self) -> io::Result<()> {
        self.sync_data()
    }
    /// Frees the space of a range, which then reads as zeros. Best effort: a store without holes does
    /// nothing.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
    /// The first offset from `offset` on that is not in a hole (SEEK_DATA); `None` if there is none. By
    /// default the whole file counts as data, for stores that do not track holes.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok((offset < self.len()?).then_some(offset))
    }
    /// Reserves space for a range without changing content or length; EOPNOTSUPP if it cannot.
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()>;
    /// The modification time: seconds and nanoseconds since 1970.
    fn mtime(&self) -> io::Result<(i64, u32)>;
    /// Sets the modification time: seconds and nanoseconds since 1970.
    fn set_mtime(&self, seconds: i64, nanoseconds: u32) -> io::Result<()>;
    /// Names of the extended attributes. By default empty, for stores without attributes.
    fn attribute_names(&self) -> io::Result<Vec<OsString>> {
        Ok(Vec::new())
    }
    /// Sets an extended attribute.
    fn set_attribute(&self, _name: &OsStr, _value: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes an extended attribute, if it exists.
    fn remove_attribute(&self, _name: &OsStr) -> io::Result<()> {
        Ok(())
    }
    /// Removes permission bits from the file's mode.
    fn forbid(&self, _rights: u32) -> io::Result<()> {
        Ok(())
    }
    /// Locks the file against all other openers that lock it, on any machine; returns false if one of
    /// them holds the lock. If the file is not open for writing, the lock is a shared one.
    ///
    /// # Errors
    /// `Unsupported` if the store has no such locks; otherwise any error from the store.
    fn try_lock(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Releases the lock.
    fn unlock(&self) {}
    /// Drops cached data of the first `len` bytes (0: of the whole file), so that the next read sees
    /// what other machines have written.
    fn drop_cached(&self, _len: u64) {}
}
