//! The write lock: one process at a time has a vault open for writing.
//!
//! The lock file has content while it is held. The kernel releases the lock of a process that is killed,
//! and what the file then still holds says that this process did not come to the end of its work.

use super::OpenError;
use crate::{
    format::name::LOCK_FILE,
    store::{BackingFile, DirFile, StoreDir},
};
use rustix::{
    fs::{FlockOperation, OFlags},
    io::Errno,
};
use std::{ffi::OsStr, io, os::fd::OwnedFd, path::Path};

const HELD: &[u8] = b"open\n";

/// Held while a vault is open for writing.
pub(super) struct WriteLock {
    file: DirFile,
    was_left: bool,
}

impl WriteLock {
    /// Takes the lock of the vault `root`, found at `path`.
    ///
    /// # Errors
    /// `Locked` if another has it; `ReadOnlyStore`; `Store`.
    pub(super) fn take(root: &StoreDir, path: &Path) -> Result<Self, OpenError> {
        let failed = |action: &'static str| {
            move |source: io::Error| match source.kind() {
                io::ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnlyStore,
                _ => OpenError::Store { action, path: path.join(LOCK_FILE), source },
            }
        };
        let file = DirFile::new(open(root).map_err(failed("cannot open"))?);
        match rustix::fs::flock(&*file.fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(OpenError::Locked),
            Err(e) => return Err(failed("cannot lock")(e.into())),
        }
        let was_left = !file.is_empty().map_err(failed("cannot read"))?;
        // On a full disk, or in the file of another user, nothing can be noted: the worst is assumed.
        let noted = file.write_at(HELD, 0).is_ok();
        Ok(WriteLock { file, was_left: was_left || !noted })
    }

    /// Whether the last process that held the lock ended without releasing it.
    pub(super) fn was_left(&self) -> bool {
        self.was_left
    }

    /// Says that all work is done. The lock itself lasts until this is dropped: whoever waits for it may then
    /// unmount the store as well.
    pub(super) fn finish(&self) -> io::Result<()> {
        if self.file.writable() { self.file.set_len(0) } else { Ok(()) }
    }
}

/// The lock file, made if there is none. One of another user may be locked all the same.
fn open(root: &StoreDir) -> io::Result<OwnedFd> {
    let name = OsStr::new(LOCK_FILE);
    let existing = || {
        root.open_file(name, OFlags::RDWR).or_else(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => root.open_file(name, OFlags::RDONLY),
            _ => Err(e),
        })
    };
    match existing() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    match root.create_file(name, 0o644) {
        // Another was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => existing(),
        made => made,
    }
}
