//! The write lock: one process at a time has a vault open for writing.

use super::OpenError;
use crate::{format::name::LOCK_FILE, store::StoreDir};
use rustix::{
    fs::{FlockOperation, OFlags},
    io::Errno,
};
use std::{ffi::OsStr, io, os::fd::OwnedFd, path::Path};

/// Held while a vault is open for writing; the kernel releases it with the process.
pub(super) struct WriteLock {
    _file: OwnedFd,
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
        let name = OsStr::new(LOCK_FILE);
        let file = match root.open_file(name, OFlags::RDWR) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => root.create_file(name, 0o600),
            other => other,
        };
        // Another may have made it in between.
        let file = match file {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => root.open_file(name, OFlags::RDWR),
            other => other,
        };
        let file = file.map_err(failed("cannot open"))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(WriteLock { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(OpenError::Locked),
            Err(e) => Err(failed("cannot lock")(e.into())),
        }
    }
}
