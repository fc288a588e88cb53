//! Listing a directory of the store.

use super::StoreDir;
use rustix::{
    fs::{FileType, RawDir, SeekFrom},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
};

/// A directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: OsString,
    /// Its type.
    pub kind: FileType,
    /// Its inode number.
    pub ino: u64,
}

/// Buffer size in bytes. Holds about a thousand entries; the longest single entry takes 280 bytes.
const BUFFER: usize = 64 * 1024;

/// An open directory that is listed in batches.
pub struct DirStream {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl DirStream {
    /// Continues from a position that [`DirStream::next`] returned with an entry; 0 is the start.
    ///
    /// # Errors
    /// EINVAL if `position` is invalid; otherwise any error from the store.
    pub fn seek(&mut self, position: u64) -> io::Result<()> {
        rustix::fs::seek(&self.fd, SeekFrom::Start(position))?;
        Ok(())
    }

    /// Returns the next batch of entries, each with the position that follows it. Empty at the end.
    /// `dir` must be the directory that this stream reads.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn next(&mut self, dir: &StoreDir) -> io::Result<Vec<(u64, Listed)>> {
        let mut entries = RawDir::new(&self.fd, self.buffer.spare_capacity_mut());
        let mut out = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // A directory that was removed while open has no entries.
                Err(Errno::NOENT) => break,
                Err(e) => return Err(e.into()),
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let (position, ino) = (entry.next_entry_cookie(), entry.ino());
            if let Some(kind) = dir.kind(name, entry.file_type())? {
                out.push((position, Listed { name: name.to_owned(), kind, ino }));
            }
            if entries.is_buffer_empty() && !out.is_empty() {
                break;
            }
        }
        Ok(out)
    }
}

impl StoreDir {
    /// Starts listing the entries, including "." and "..".
    ///
    /// # Errors
    /// Any error from the store.
    pub fn stream(&self) -> io::Result<DirStream> {
        #[cfg(feature = "testing")]
        super::nfs::sweep();
        Ok(DirStream { fd: self.readable()?, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Lists all entries except "." and "..". An entry removed concurrently may be missing.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        let mut stream = self.stream()?;
        let mut out = Vec::new();
        loop {
            let some = stream.next(self)?;
            if some.is_empty() {
                return Ok(out);
            }
            out.extend(some.into_iter().map(|(_, entry)| entry).filter(|e| !is_dots(&e.name)));
        }
    }

    /// The type of an entry, from stat if the listing lacks it. `None` if the entry no longer exists.
    fn kind(&self, name: &OsStr, listed: FileType) -> io::Result<Option<FileType>> {
        if listed != FileType::Unknown {
            return Ok(Some(listed));
        }
        if is_dots(name) {
            return Ok(Some(FileType::Directory));
        }
        match self.stat(name) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Whether a name is "." or "..".
pub fn is_dots(name: &OsStr) -> bool {
    name == "." || name == ".."
}
