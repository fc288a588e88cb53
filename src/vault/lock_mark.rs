//! What the lock file says: a mark of whoever has the vault. One has a mark of its own, several have the one that the first of
//! them wrote. So who takes a lock again that the store took away sees whether another had the vault alone meanwhile.
//!
//! The file is empty once the last work came to its end, and has a mark that says so while a vault rests.

use crate::{
    crypto::random,
    store::{BackingFile, DirFile},
};
use std::{fmt::Write, io};

/// What the mark begins with of one who has the vault alone. Older versions wrote `open` without more.
pub(super) const ONE: &str = "open ";
/// Of several who share it.
pub(super) const SEVERAL: &str = "shared ";
/// Of one who has the vault alone, and whose work is done so far.
pub(super) const REST: &str = "rest ";

/// More than any mark has.
const MOST: usize = 64;

/// What the lock file has, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark(Vec<u8>);

impl Mark {
    /// What the file has now.
    pub(super) fn read(file: &DirFile) -> io::Result<Self> {
        let mut content = vec![0; MOST];
        let len = file.read_at(&mut content, 0)?;
        content.truncate(len);
        Ok(Mark(content))
    }

    /// Whether whoever was at work said that it was done.
    pub(super) fn is_of_none(&self) -> bool {
        self.0.is_empty() || self.0.starts_with(REST.as_bytes())
    }

    /// Whether several share the vault, or did so last.
    pub(super) fn is_of_several(&self) -> bool {
        self.0.starts_with(SEVERAL.as_bytes())
    }

    /// Puts a new one into the file, durably.
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

    /// Puts it into the file. On a full disk there is room for another length at least, which is nobody's; that fails, too.
    pub(super) fn put(&self, file: &DirFile) -> io::Result<()> {
        let len = self.0.len() as u64;
        let written = file.write_at(&self.0, 0).and_then(|()| file.set_len(len));
        if written.is_err() {
            file.set_len(if file.len()? == 1 { 2 } else { 1 })?;
        }
        file.sync_data()?;
        written
    }

    /// Empties the file: all work is done.
    pub(super) fn put_nothing(file: &DirFile) -> io::Result<Self> {
        file.set_len(0)?;
        Ok(Mark(Vec::new()))
    }

    /// Whether the file still has it.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn is_in(&self, file: &DirFile) -> io::Result<bool> {
        Ok(Mark::read(file)? == *self)
    }
}
