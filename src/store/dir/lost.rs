//! Locks that a store takes away from a client that it has not heard of for long, for tests. What has been opened before and was
//! locked then neither reads nor writes any more; what is opened anew does.

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

/// The locks of one client.
pub struct Locks {
    held: Mutex<Vec<Weak<OwnedFd>>>,
    lost: Mutex<Vec<Weak<OwnedFd>>>,
    /// So many more calls, and all are lost.
    left: AtomicI64,
    /// A descriptor can be locked again, and works again once it was unlocked, as with NFS. Else it fails for good (GlusterFS).
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
    /// A descriptor whose lock was taken away can be locked again, and works again once it was unlocked.
    pub fn work_again_once_unlocked(&self) {
        self.until_unlocked.store(true, Ordering::Relaxed);
    }

    /// Takes all of them away.
    pub fn lose(&self) {
        self.left.store(i64::MAX, Ordering::Relaxed);
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        for fd in held.iter().filter_map(Weak::upgrade) {
            flock(&fd, FlockOperation::Unlock).unwrap();
        }
        self.lost.lock().unwrap().extend(held);
    }

    /// The same before another so many calls are done.
    pub fn lose_after(&self, calls: i64) {
        self.left.store(calls, Ordering::Relaxed);
    }

    /// Whether what this descriptor had locked was taken away.
    pub fn is_lost(&self, fd: &Arc<OwnedFd>) -> bool {
        has(&self.lost, fd)
    }

    /// A call by a descriptor.
    pub fn call(&self, fd: &Arc<OwnedFd>) -> io::Result<()> {
        self.count();
        if self.is_lost(fd) { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// A call that asks for attributes or sets them: NFS takes no notice of locks there.
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

    /// Locks a descriptor by `lock`.
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

    /// Unlocks it by `unlock`.
    pub fn unlock(&self, fd: &Arc<OwnedFd>, unlock: impl FnOnce()) {
        unlock();
        take_out(&self.held, fd);
        if self.until_unlocked.load(Ordering::Relaxed) {
            take_out(&self.lost, fd);
        }
    }
}
