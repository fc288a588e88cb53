//! A file's lease: whether this process may change a file that other machines may write, too.

use super::error::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use store::BackingFile;

/// A file's lease.
#[derive(Default)]
pub(super) struct Lease {
    /// Whether this process may change the file. Set by the thread whose turn it is, cleared under the
    /// state's lock.
    held: AtomicBool,
    /// Whether the stored file is locked for writing.
    locked: AtomicBool,
    /// Whether the store revoked the lease. Permanent.
    lost: AtomicBool,
}

impl Lease {
    /// Whether this process holds the lease.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    pub(super) fn set_held(&self, held: bool) {
        self.held.store(held, Ordering::Release);
    }

    /// Whether the stored file is locked for writing.
    pub(super) fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Acquire)
    }

    /// Called after the stored file was locked.
    pub(super) fn note_lock(&self) {
        self.locked.store(true, Ordering::Release);
    }

    /// Unlocks the stored file if it is locked.
    pub(super) fn unlock(&self, store: &dyn BackingFile) {
        if self.locked.swap(false, Ordering::AcqRel) {
            store.unlock();
        }
    }

    /// Whether the store revoked the lease. It is never taken again then.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// # Errors
    /// EIO if the store revoked the lease.
    pub(super) fn refuse_lost(&self) -> Result<()> {
        if self.is_lost() { Err(Error::os(libc::EIO)) } else { Ok(()) }
    }
}
