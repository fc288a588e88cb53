//! Listing a directory of the store.

use super::StoreDir;
use rustix::{
    fs::{FileType, RawDir},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
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

/// Enough for several hundred entries a call; the longest single entry takes 280 bytes.
const BUFFER: usize = 32 * 1024;

impl StoreDir {
    /// Every entry but "." and "..". An entry that goes away meanwhile may be left out.
    ///
    /// # Errors
    /// The store's.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        let mut buffer: Vec<u8> = Vec::with_capacity(BUFFER);
        let mut entries = RawDir::new(self.readable()?, buffer.spare_capacity_mut());
        let mut out = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // A directory that was removed while it was open has no entries.
                Err(Errno::NOENT) => break,
                Err(e) => return Err(e.into()),
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name = OsStr::from_bytes(name);
            if let Some(kind) = self.kind(name, entry.file_type())? {
                out.push(Listed { name: name.to_owned(), kind, ino: entry.ino() });
            }
        }
        Ok(out)
    }

    /// The type of an entry, asked for where the listing does not give it; `None` if it is gone.
    fn kind(&self, name: &OsStr, listed: FileType) -> io::Result<Option<FileType>> {
        if listed != FileType::Unknown {
            return Ok(Some(listed));
        }
        match self.stat(name) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}
