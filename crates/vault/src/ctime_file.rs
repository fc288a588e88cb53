//! The file with the change times that outlive a mount. It is a cache: without it, written files seem
//! changed once, and an entry for a file that has changed since has no effect. So the file is not
//! synced, and an error in it never fails an operation.

use super::{Vault, names::read_up_to};
use format::{
    change_times::{ChangeTime, SEALED_MAX},
    name::TIMES_FILE,
};
use rustix::fs::OFlags;
use std::{ffi::OsStr, io};
use store::{BackingFile, DirFile};

impl Vault {
    /// Loads the change times that the previous session showed. If there is no valid list, creates an
    /// empty file now: creating it at unmount would change the root's times after programs have seen
    /// them.
    pub(super) fn recall_ctimes(&self) {
        if self.is_shared() {
            return;
        }
        let unread = match self.read_ctimes() {
            Ok(times) => return self.files.recall_ctimes(&times),
            Err(e) => e,
        };
        let made = if self.read_only() { Ok(()) } else { self.write_ctimes(&[]) };
        let is_none = unread.kind() == io::ErrorKind::NotFound;
        if let Some(e) = if is_none { made.err() } else { Some(unread) } {
            log::info!("{TIMES_FILE}: {e}: written files may appear to have changed");
        }
    }

    /// Stores the change times shown now for the next session. Files that are being worked on are left
    /// out, so call it when files are clean.
    pub(super) fn store_ctimes(&self) {
        if self.is_shared() || self.writable().is_err() {
            return;
        }
        // A locked vault has stored them already.
        let Some(keys) = self.keys.unless_locked() else { return };
        let sealed = keys.change_times.seal(&self.files.remembered_ctimes());
        if let Err(e) = self.write_ctimes(&sealed) {
            log::info!("{TIMES_FILE}: {e}: written files will appear to have changed");
        }
    }

    /// Accepts only the present key: others may know a former one.
    fn read_ctimes(&self) -> io::Result<Vec<ChangeTime>> {
        let sealed = read(&DirFile::new(self.root.store.open_file(OsStr::new(TIMES_FILE), OFlags::RDONLY)?))?;
        if sealed.is_empty() {
            return Ok(Vec::new());
        }
        self.keys().change_times.open(&sealed).map_err(io::Error::other)
    }

    /// Writes in place, because replacing the file would change the root's times. A list half-written by a
    /// crash does not verify.
    fn write_ctimes(&self, sealed: &[u8]) -> io::Result<()> {
        let file = self.times_file()?;
        // Not rewritten if unchanged: programs that copy the store compare modification times.
        if read(&file).is_ok_and(|there| there == sealed) {
            return Ok(());
        }
        file.write_at(sealed, 0)?;
        file.set_len(sealed.len() as u64)
    }

    /// Opens the file for writing. Replaces it if it is not a regular file with a single link, or cannot
    /// be opened for writing.
    fn times_file(&self) -> io::Result<DirFile> {
        let name = OsStr::new(TIMES_FILE);
        if let Ok(fd) = self.root.store.open_file(name, OFlags::RDWR)
            && rustix::fs::fstat(&fd)?.st_nlink == 1
        {
            return Ok(DirFile::new(fd));
        }
        match self.root.store.unlink(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => self.make_times_file(),
        }
    }

    /// Readable by all, because the next mount may be another user's; the content is encrypted.
    fn make_times_file(&self) -> io::Result<DirFile> {
        Ok(DirFile::new(self.root.store.create_file(OsStr::new(TIMES_FILE), 0o644)?))
    }
}

/// Reads one byte more than the longest list, so that a longer file does not verify.
fn read(file: &DirFile) -> io::Result<Vec<u8>> {
    read_up_to(file, SEALED_MAX + 1)
}
