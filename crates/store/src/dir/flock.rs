//! Locks on open files, by flock(2).

use rustix::fs::{FlockOperation, flock};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// A locked file or directory. Dropping it unlocks it.
///
/// Closing the descriptor would not be enough: a child between fork and exec holds a copy of it.
#[derive(Debug)]
pub struct Flock(OwnedFd);

impl Flock {
    /// Applies flock(2) to `fd`.
    ///
    /// # Errors
    /// EWOULDBLOCK if there is another holder and `operation` is non-blocking; EBADF, ENOLCK and
    /// others if the store does not support such locks.
    pub fn take(fd: OwnedFd, operation: FlockOperation) -> io::Result<Self> {
        flock(&fd, operation)?;
        Ok(Flock(fd))
    }
}

impl AsFd for Flock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Flock {
    fn drop(&mut self) {
        // If unlocking fails, closing the descriptor still releases the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_process_that_is_being_started_does_not_keep_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let take = || {
            let fd = OwnedFd::from(File::open(dir.path()).unwrap());
            Flock::take(fd, FlockOperation::NonBlockingLockExclusive)
        };
        let lock = take().unwrap();
        // The copy that a child holds between fork and exec.
        let _child = lock.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        take().unwrap();
    }
}
