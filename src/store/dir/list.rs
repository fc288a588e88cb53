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

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: OsString,
    /// Its type.
    pub kind: FileType,
    /// Its inode number.
    pub ino: u64,
}

/// Enough for about a thousand entries a call; the longest single entry takes 280 bytes.
const BUFFER: usize = 64 * 1024;

/// A directory being read, piece by piece.
pub struct DirStream {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl DirStream {
    /// Continues at a position that an entry was listed with; 0 is the start.
    ///
    /// # Errors
    /// EINVAL for what is no position; else the store's.
    pub fn seek(&mut self, position: u64) -> io::Result<()> {
        rustix::fs::seek(&self.fd, SeekFrom::Start(position))?;
        Ok(())
    }

    /// The next entries, each with the position after it; none at the end. `dir` is the directory.
    ///
    /// # Errors
    /// The store's.
    pub fn next(&mut self, dir: &StoreDir) -> io::Result<Vec<(u64, Listed)>> {
        let mut entries = RawDir::new(&self.fd, self.buffer.spare_capacity_mut());
        let mut out = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // A directory that was removed while it was open has no entries.
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
    /// Begins to read the entries, "." and ".." among them.
    ///
    /// # Errors
    /// The store's.
    pub fn stream(&self) -> io::Result<DirStream> {
        #[cfg(test)]
        super::nfs::sweep();
        Ok(DirStream { fd: self.readable()?, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Every entry but "." and "..". An entry that goes away meanwhile may be left out.
    ///
    /// # Errors
    /// The store's.
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

    /// The type of an entry, asked for where the listing does not give it; `None` if it is gone.
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

/// Whether a name is that of a directory itself or of the one above.
pub fn is_dots(name: &OsStr) -> bool {
    name == "." || name == ".."
}
