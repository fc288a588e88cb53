//! Locks of open files: flock(2).

use rustix::fs::{FlockOperation, flock};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// A locked file or directory, unlocked when this is dropped.
///
/// Closing it would not always unlock it: a process that is being started has the same open files until it runs its own program.
#[derive(Debug)]
pub struct Flock(OwnedFd);

impl Flock {
    /// # Errors
    /// EWOULDBLOCK if another has it locked and `operation` does not wait; EBADF, ENOLCK and others where the store has no such
    /// locks.
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
        // What cannot be unlocked is closed.
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
        // What such a process has between fork and exec.
        let _child = lock.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        take().unwrap();
    }
}
