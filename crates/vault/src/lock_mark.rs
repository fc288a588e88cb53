//! The content of the lock file: a mark of the holder. An exclusive holder writes a new mark; sharing
//! holders use the mark of the first of them. When the store has revoked a lock and a holder takes it
//! again, the mark shows whether another had the vault exclusively in between.
//!
//! The file is empty after all work has finished, and contains a mark that says so while a vault rests.

use crypto::random;
use std::{fmt::Write, io};
use store::{BackingFile, DirFile};

/// Prefix of an exclusive holder's mark. Older versions wrote `open` without anything after it.
pub(super) const ONE: &str = "open ";
/// Prefix of the mark of sharing holders.
pub(super) const SEVERAL: &str = "shared ";
/// Prefix of the mark of an exclusive holder that has finished its work for now.
pub(super) const REST: &str = "rest ";

/// More bytes than any mark has.
const MOST: usize = 64;

/// The content of the lock file, as far as known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark(Vec<u8>);

impl Mark {
    /// Reads the file's present content.
    pub(super) fn read(file: &DirFile) -> io::Result<Self> {
        let mut content = vec![0; MOST];
        let len = file.read_at(&mut content, 0)?;
        content.truncate(len);
        Ok(Mark(content))
    }

    /// Whether the last holder recorded that its work was finished.
    pub(super) fn is_of_none(&self) -> bool {
        self.0.is_empty() || self.0.starts_with(REST.as_bytes())
    }

    /// Whether the vault is shared, or was when it was last used.
    pub(super) fn is_of_several(&self) -> bool {
        self.0.starts_with(SEVERAL.as_bytes())
    }

    /// Writes a new mark durably.
    pub(super) fn put_new(file: &DirFile, word: &str) -> io::Result<Self> {
        let mut number = [0; 16];
        random::fill(&mut number)?;
        let mut content = word.to_owned();
        for byte in number {
            write!(content, "{byte:02x}").map_err(io::Error::other)?;
        }
        content.push('\n');
        let mark = Mark(content.into_bytes());
        mark.put(file).map(|()| mark)
    }

    /// Writes the mark durably. If that fails, as on a full disk, changes the file's length, so that the
    /// content is nobody's mark; the error is returned all the same.
    pub(super) fn put(&self, file: &DirFile) -> io::Result<()> {
        let len = self.0.len() as u64;
        let written = file.write_at(&self.0, 0).and_then(|()| file.set_len(len));
        if written.is_err() {
            file.set_len(if file.len()? == 1 { 2 } else { 1 })?;
        }
        file.sync_data()?;
        written
    }

    /// Empties the file: all work has finished.
    pub(super) fn put_nothing(file: &DirFile) -> io::Result<Self> {
        file.set_len(0)?;
        Ok(Mark(Vec::new()))
    }

    /// Whether the file still contains this mark.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn is_in(&self, file: &DirFile) -> io::Result<bool> {
        Ok(Mark::read(file)? == *self)
    }
}
