//! Stored files of a simulated process that is killed at a given write: later writes never reach the
//! store. Can also simulate a store that takes away its locks.

use parking_lot::Mutex;
use rustix::io::Errno;
use std::{
    ffi::{OsStr, OsString},
    io,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering},
    },
};
use store::{BackingFile, DirFile, Locks};

const PAGE: usize = 4096;

type Meanwhile = Box<dyn FnOnce() + Send>;

/// A simulated process. `writes` is how many more of its writes reach the store.
pub(crate) struct Life {
    writes: AtomicI64,
    when_locked: Mutex<Option<Meanwhile>>,
    unlockable: AtomicU32,
    pub(crate) locks: Locks,
}

impl Life {
    pub(crate) fn endless() -> Self {
        Life {
            writes: AtomicI64::new(i64::MAX),
            when_locked: Mutex::default(),
            unlockable: AtomicU32::new(0),
            locks: Locks::default(),
        }
    }

    pub(crate) fn end_after(&self, writes: i64) {
        self.writes.store(writes, Ordering::Relaxed);
    }

    /// Runs `meanwhile` the next time a stored file is locked.
    pub(crate) fn when_locked(&self, meanwhile: impl FnOnce() + Send + 'static) {
        *self.when_locked.lock() = Some(Box::new(meanwhile));
    }

    /// The next `times` attempts to lock a stored file fail with ENOLCK, as if the store had no locks
    /// left.
    pub(crate) fn has_no_lock(&self, times: u32) {
        self.unlockable.store(times, Ordering::Relaxed);
    }

    /// Spends `writes` if more than that are left.
    fn lasts_for(&self, writes: usize) -> bool {
        let spend = |left: i64| left.checked_sub(writes as i64).filter(|left| *left > 0);
        self.writes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok()
    }

    /// Spends one write and returns how many were left before it.
    fn spend(&self) -> i64 {
        self.writes.fetch_sub(1, Ordering::Relaxed)
    }
}

/// A stored file of such a process.
pub(super) struct Mortal {
    pub(super) store: Arc<DirFile>,
    pub(super) life: Arc<Life>,
}

fn dead() -> io::Error {
    io::Error::other("the process was killed")
}

impl Mortal {
    fn call(&self) -> io::Result<()> {
        self.life.locks.call(&self.store.fd())
    }

    fn alive(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.call()?;
        if self.life.spend() > 0 { work() } else { Err(dead()) }
    }
}

impl BackingFile for Mortal {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.call()?;
        self.store.read_at(buf, offset)
    }

    fn read_vectored_at(&self, pieces: &mut [io::IoSliceMut], offset: u64) -> io::Result<usize> {
        self.call()?;
        self.store.read_vectored_at(pieces, offset)
    }

    fn write_vectored_at(&self, pieces: &[io::IoSlice], mut offset: u64) -> io::Result<()> {
        self.call()?;
        if self.life.lasts_for(pieces.len()) {
            return self.store.write_vectored_at(pieces, offset);
        }
        for piece in pieces {
            self.write_at(piece, offset)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// The last write is cut at a page boundary, because a killed process leaves no page half-written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.call()?;
        match self.life.spend() {
            2.. => self.store.write_at(buf, offset),
            1 => {
                let pages = (buf.len() + offset as usize % PAGE) / PAGE / 2 * PAGE;
                let whole = pages.saturating_sub(offset as usize % PAGE).min(buf.len());
                self.store.write_at(&buf[..whole], offset).and(Err(dead()))
            }
            _ => Err(dead()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.alive(|| self.store.set_len(len))
    }

    fn len(&self) -> io::Result<u64> {
        self.life.locks.call_for_attributes(&self.store.fd())?;
        self.store.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.alive(|| self.store.sync_data())
    }

    fn sync_whole(&self) -> io::Result<()> {
        self.alive(|| self.store.sync_whole())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.alive(|| self.store.punch(offset, len))
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.call()?;
        self.store.next_data(offset)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.alive(|| self.store.reserve(offset, len))
    }

    fn mtime(&self) -> io::Result<(i64, u32)> {
        self.life.locks.call_for_attributes(&self.store.fd())?;
        self.store.mtime()
    }

    fn set_mtime(&self, seconds: i64, nanoseconds: u32) -> io::Result<()> {
        self.life.locks.call_for_attributes(&self.store.fd())?;
        if self.life.spend() > 0 { self.store.set_mtime(seconds, nanoseconds) } else { Err(dead()) }
    }

    fn attribute_names(&self) -> io::Result<Vec<OsString>> {
        self.life.locks.call_for_attributes(&self.store.fd())?;
        self.store.attribute_names()
    }

    fn set_attribute(&self, name: &OsStr, value: &[u8]) -> io::Result<()> {
        self.alive(|| self.store.set_attribute(name, value))
    }

    fn remove_attribute(&self, name: &OsStr) -> io::Result<()> {
        self.alive(|| self.store.remove_attribute(name))
    }

    fn forbid(&self, rights: u32) -> io::Result<()> {
        self.alive(|| self.store.forbid(rights))
    }

    fn try_lock(&self) -> io::Result<bool> {
        let less = |left: u32| left.checked_sub(1);
        if self.life.unlockable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return Err(Errno::NOLCK.into());
        }
        let locked = self.life.locks.lock(&self.store.fd(), || self.store.try_lock())?;
        if locked && let Some(meanwhile) = self.life.when_locked.lock().take() {
            meanwhile();
        }
        Ok(locked)
    }

    fn unlock(&self) {
        self.life.locks.unlock(&self.store.fd(), || self.store.unlock());
    }

    fn drop_cached(&self, len: u64) {
        self.store.drop_cached(len);
    }
}
