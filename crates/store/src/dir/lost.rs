//! For tests: simulates a store that revokes the locks of a client it has not heard from. Descriptors
//! that were locked then fail to read and write; newly opened ones work.

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

/// All locks of one client.
pub struct Locks {
    held: Mutex<Vec<Weak<OwnedFd>>>,
    lost: Mutex<Vec<Weak<OwnedFd>>>,
    /// Number of calls until all locks are revoked.
    left: AtomicI64,
    /// If set, a revoked descriptor can be locked again, and works again once it was unlocked, as on
    /// NFS. Otherwise it fails permanently, as on GlusterFS.
    until_unlocked: AtomicBool,
}

fn has(all: &Mutex<Vec<Weak<OwnedFd>>>, fd: &Arc<OwnedFd>) -> bool {
    all.lock().unwrap().iter().any(|one| one.as_ptr() == Arc::as_ptr(fd))
}

fn take_out(all: &Mutex<Vec<Weak<OwnedFd>>>, fd: &Arc<OwnedFd>) {
    all.lock().unwrap().retain(|one| one.as_ptr() != Arc::as_ptr(fd));
}

impl Default for Locks {
    fn default() -> Self {
        Locks {
            held: Mutex::default(),
            lost: Mutex::default(),
            left: AtomicI64::new(i64::MAX),
            until_unlocked: AtomicBool::new(false),
        }
    }
}

impl Locks {
    /// Lets descriptors with a revoked lock be locked again, and work again once they were
    /// unlocked, as on NFS.
    pub fn work_again_once_unlocked(&self) {
        self.until_unlocked.store(true, Ordering::Relaxed);
    }

    /// Revokes all locks.
    pub fn lose(&self) {
        self.left.store(i64::MAX, Ordering::Relaxed);
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        for fd in held.iter().filter_map(Weak::upgrade) {
            flock(&fd, FlockOperation::Unlock).unwrap();
        }
        self.lost.lock().unwrap().extend(held);
    }

    /// Revokes all locks after another `calls` calls.
    pub fn lose_after(&self, calls: i64) {
        self.left.store(calls, Ordering::Relaxed);
    }

    /// Whether the lock of this descriptor was revoked.
    pub fn is_lost(&self, fd: &Arc<OwnedFd>) -> bool {
        has(&self.lost, fd)
    }

    /// Counts a call on a descriptor, and fails it with EIO if its lock was revoked.
    pub fn call(&self, fd: &Arc<OwnedFd>) -> io::Result<()> {
        self.count();
        if self.is_lost(fd) { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// As [`Locks::call`], for reading or setting attributes. NFS does not check locks for those.
    pub fn call_for_attributes(&self, fd: &Arc<OwnedFd>) -> io::Result<()> {
        match self.call(fd) {
            Err(_) if self.until_unlocked.load(Ordering::Relaxed) => Ok(()),
            called => called,
        }
    }

    fn count(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            self.lose();
        }
    }

    /// Takes the lock of a descriptor by calling `lock`.
    pub fn lock(&self, fd: &Arc<OwnedFd>, lock: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        self.count();
        if self.is_lost(fd) {
            return if self.until_unlocked.load(Ordering::Relaxed) { lock() } else { Err(Errno::IO.into()) };
        }
        let locked = lock()?;
        if locked && !has(&self.held, fd) {
            self.held.lock().unwrap().push(Arc::downgrade(fd));
        }
        Ok(locked)
    }

    /// Releases the lock of a descriptor by calling `unlock`.
    pub fn unlock(&self, fd: &Arc<OwnedFd>, unlock: impl FnOnce()) {
        unlock();
        take_out(&self.held, fd);
        if self.until_unlocked.load(Ordering::Relaxed) {
            take_out(&self.lost, fd);
        }
    }
}
