//! The open files while the vault is locked or at rest.

use super::Files;
use crate::open_file::{Key, OpenFile};
use content::Error;
use std::sync::Arc;

impl Files {
    /// Stores everything under clean records. This includes files without a link, because programs keep
    /// using them afterwards.
    ///
    /// # Errors
    /// The first file that could not be stored, and why.
    pub fn store_all(&self) -> std::result::Result<(), (Key, Error)> {
        if self.context.read_only {
            return Ok(());
        }
        let left: Vec<_> = self.all().into_iter().filter(|open| !open.file.is_clean()).collect();
        let failed = |open: &Arc<OpenFile>, e| (open.key, e);
        let flush = |open: &Arc<OpenFile>| self.ctimes.keep(open, || open.file.flush());
        left.iter().try_for_each(|open| flush(open).map_err(|e| failed(open, e)))?;
        let why = self.clean(left.clone());
        match left.iter().find(|open| !open.file.is_clean()) {
            None => Ok(()),
            Some(open) => Err(why.unwrap_or_else(|| failed(open, Error::os(libc::EIO)))),
        }
    }

    /// Stops the flusher from touching the files. Call when everything is stored and no request is being
    /// served.
    pub fn halt(&self) {
        *self.halted.lock() = true;
        self.reap();
    }

    /// Whether the flusher is halted.
    #[cfg(test)]
    pub fn is_halted(&self) -> bool {
        *self.halted.lock()
    }

    /// Lets the flusher continue after [`Files::halt`].
    pub fn resume(&self) {
        *self.halted.lock() = false;
    }

    /// Makes every file drop its keys and content. Call after [`Files::halt`].
    pub fn put_away(&self) {
        self.all().iter().for_each(|open| open.file.put_away());
    }

    /// Reads every file's records again, then resumes the flusher. A file whose records cannot be read
    /// is logged and fails from then on.
    pub fn bring_back(&self) {
        for open in self.all() {
            if let Err(e) = open.file.bring_back() {
                log::error!("inode {}: cannot be read again after unlocking: {e}", open.key.1);
            }
        }
        self.resume();
    }
}
