//! The write lock: either one process has a vault open for writing, or several share it.
//!
//! Two things are locked. The lock file has content while it is held: the kernel releases the lock of a
//! process that is killed, and the remaining content shows that the process did not finish its work. But
//! a file can be deleted, and a new one created under its name. So the vault's root directory, which is
//! the same one by every path, is locked as well. Some stores cannot lock directories (NFS: EBADF or
//! ENOLCK, or only among programs of one machine). There, only the lock file protects the vault, and it
//! is put back at the next fsync if it was removed.
//!
//! A store shared between machines revokes the locks of a machine that it has not heard from for a long
//! time. So the lock is taken again at every fsync, and before a write if that was not done within the
//! last second; if the lock is still held, this has no effect. A process that held it exclusively in
//! between has left another mark in the file (`lock_mark`). From then on, nothing is written. Local stores
//! are no exception: one may be exported over NFS, and a client's lock need not exclude the server's own.

use super::{
    OpenError,
    lock_mark::{Mark, ONE, REST, SEVERAL},
    sharing::{SharingRule, holds},
};
use format::name::{LOCK_FILE, RESERVED};
use parking_lot::Mutex;
use rustix::{
    fs::{FlockOperation, OFlags},
    io::Errno,
    time::{ClockId, clock_gettime},
};
use std::{
    ffi::OsStr,
    io,
    ops::Deref,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
    thread,
    time::{Duration, Instant},
};
use store::{BackingFile, DirFile, Flock, StoreDir};

/// Number of attempts to lock the lock file, which may be replaced between opening and locking it.
const TRIES: u32 = 8;
/// Maximum time that a sharing mount may take to exit after it was unmounted.
const LAST_OF_SEVERAL: Duration = Duration::from_secs(1);
/// Maximum time that a caller may hold the lock only to probe it or to write the sharing holders' mark.
pub(super) const MOMENT: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 1000 });
/// Maximum time for which the sharing holders' mark is assumed to be still being written. A busy store may
/// need many seconds to make it durable.
const LONGEST_WRITE: Duration = Duration::from_secs(30);
pub(super) const BETWEEN_TRIES: Duration = Duration::from_millis(20);
/// Number of times that a sharing holder looks for the mark of the first one. A caller that only probes
/// holds the lock just briefly.
const TRIES_FOR_MARK: u32 = 50;
/// Milliseconds for which a lock that was seen to be held is assumed not to be lost.
const RECENT: i64 = if cfg!(test) { 0 } else { 1000 };

/// How many processes may have a vault open for writing at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// Only this process.
    One,
    /// All processes that use this mode.
    Several,
}

impl Users {
    fn lock(self) -> FlockOperation {
        match self {
            Users::One => FlockOperation::NonBlockingLockExclusive,
            Users::Several => FlockOperation::NonBlockingLockShared,
        }
    }
}

/// Held while a vault is open for writing.
pub(super) struct WriteLock {
    users: Users,
    /// Declared before `held`, so that it is released first: a process waiting for the lock file then
    /// finds the directory free.
    directory: Option<Flock>,
    held: Mutex<Held>,
    /// Last time at which the lock was seen to be held, as `now` returns it.
    seen: AtomicI64,
    /// Whether another process has held the vault exclusively in the meantime.
    lost: AtomicBool,
    /// Whether the kernel may have a stale copy of the lock file, as on FUSE.
    is_cached: bool,
    root: StoreDir,
    was_left: bool,
}

struct Held {
    /// The lock file that was locked last.
    file: LockFile,
    mark: Mark,
}

/// The locked lock file. As with [`Flock`], dropping it releases the lock.
struct LockFile(DirFile);

impl Deref for LockFile {
    type Target = DirFile;

    fn deref(&self) -> &DirFile {
        &self.0
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // If unlocking fails, closing the file releases the lock.
        let _ = rustix::fs::flock(&*self.fd(), FlockOperation::Unlock);
    }
}

impl WriteLock {
    /// Takes the lock of the vault `root`, found at `path`.
    ///
    /// # Errors
    /// `Locked` if another process has it exclusively, `Shared` if several share it; `ReadOnlyStore`;
    /// `Store`.
    pub(super) fn take(root: &StoreDir, path: &Path, users: Users) -> Result<Self, OpenError> {
        let start = Instant::now();
        loop {
            match WriteLock::try_take(root, path, users) {
                // Retry: an unmount does not wait for the last sharing process to exit, nor for the
                // first to write the mark.
                Err(OpenError::Shared) if users == Users::One && start.elapsed() < LAST_OF_SEVERAL => {
                    thread::sleep(BETWEEN_TRIES);
                }
                // Retry on both: when `who_has` probes, the exclusive holder may already admit others.
                Err(OpenError::Locked | OpenError::Shared)
                    if users == Users::Several
                        && (start.elapsed() < MOMENT
                            || start.elapsed() < LONGEST_WRITE && has_mark_of_several(root)) =>
                {
                    thread::sleep(BETWEEN_TRIES);
                }
                taken => return taken,
            }
        }
    }

    fn try_take(root: &StoreDir, path: &Path, users: Users) -> Result<Self, OpenError> {
        let failed = |action: &'static str| {
            move |source: io::Error| match source.kind() {
                io::ErrorKind::WouldBlock => who_has(root),
                io::ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnlyStore,
                _ => OpenError::Store { action, path: path.join(LOCK_FILE), source },
            }
        };
        let own = root.try_clone().map_err(failed("cannot open"))?;
        let (file, made) = lock_file(root, users).map_err(failed("cannot lock"))?;
        let directory = match root.lock(users.lock()) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(who_has(root)),
            Err(e) => {
                log::info!("{}: cannot lock the directory ({e}); only {LOCK_FILE} is locked", path.display());
                None
            }
            Ok(fd) => Some(fd),
        };
        let left = Mark::read(&file).map_err(failed("cannot read"))?;
        // If the lock file was deleted, its holder may have been killed.
        let lost = made && in_use(root);
        let noted = match users {
            Users::One => Mark::put_new(&file, ONE),
            Users::Several => mark_of_several(&file),
        };
        let was_left = !left.is_of_none() || lost || noted.is_err();
        let mark = match noted {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(who_has(root)),
            // No mark can be written on a full disk, or to another user's file: assume the worst.
            Err(_) => Mark::read(&file).map_err(failed("cannot read"))?,
            Ok(mark) => mark,
        };
        let is_cached = root.filesystem().is_ok_and(|store| !store.syncs());
        let held = Mutex::new(Held { file, mark });
        let (seen, lost) = (AtomicI64::new(now()), AtomicBool::new(false));
        Ok(WriteLock { users, directory, held, seen, lost, is_cached, root: own, was_left })
    }

    /// Whether the last process that held the lock ended without releasing it.
    pub(super) fn was_left(&self) -> bool {
        self.was_left
    }

    /// Puts the lock file back if it was removed or replaced, and takes its lock again if the store
    /// revoked it.
    ///
    /// # Errors
    /// EIO if another process may be writing or has written: it holds the lock, has left its mark, or
    /// has the lock file where the directory cannot be locked. All later calls then fail, too.
    pub(super) fn check(&self) -> io::Result<()> {
        self.look(&mut self.held.lock())
    }

    /// Like `check`, for use before a write; skipped if the lock was checked very recently.
    ///
    /// # Errors
    /// Those of `check`.
    pub(super) fn check_to_write(&self) -> io::Result<()> {
        let is_recent = (0..RECENT).contains(&(now() - self.seen.load(Ordering::Relaxed)));
        if is_recent || !holds(SharingRule::AskBeforeWriting) { self.refuse_lost() } else { self.check() }
    }

    fn refuse_lost(&self) -> io::Result<()> {
        if self.lost.load(Ordering::Relaxed) { Err(Errno::IO.into()) } else { Ok(()) }
    }

    fn look(&self, held: &mut Held) -> io::Result<()> {
        self.refuse_lost()?;
        let seen = now();
        if self.is_cached {
            held.file.drop_cached(0);
        }
        // Failing to lock the directory proves nothing while the lock file is in place: some stores do
        // not lock directories properly.
        let directory = self.directory.as_ref().map_or(Ok(()), |fd| rustix::fs::flock(fd, self.users.lock()));
        let there = match is_in_place(&self.root, &held.file) {
            true => self.take_again(held),
            false if directory == Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK.into()),
            false => self.put_back(held),
        };
        match there {
            Ok(()) => self.seen.store(seen, Ordering::Relaxed),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                log::error!(
                    "the store revoked the lock on {LOCK_FILE} and another process acquired it: unsaved changes are lost"
                );
                self.lost.store(true, Ordering::Relaxed);
            }
            Err(e) => return Err(e),
        }
        self.refuse_lost()
    }

    /// EWOULDBLOCK if another process holds or has held the lock.
    fn take_again(&self, held: &mut Held) -> io::Result<()> {
        let lock = |held: &Held| {
            self.lock_again(&held.file)?;
            if held.mark.is_in(&held.file)? || !holds(SharingRule::KnowOwnMark) {
                Ok(())
            } else {
                Err(io::Error::from(Errno::WOULDBLOCK))
            }
        };
        match lock(held) {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        // A descriptor that lost its lock may have become unusable.
        let _ = rustix::fs::flock(&*held.file.fd(), FlockOperation::Unlock);
        held.file = lock_file(&self.root, self.users)?.0;
        lock(held)
    }

    /// EWOULDBLOCK if another process holds the lock for longer than `MOMENT`.
    fn lock_again(&self, file: &DirFile) -> io::Result<()> {
        let start = Instant::now();
        loop {
            match rustix::fs::flock(&*file.fd(), self.users.lock()) {
                Err(Errno::WOULDBLOCK) if start.elapsed() < MOMENT => thread::sleep(BETWEEN_TRIES),
                locked => return Ok(locked?),
            }
        }
    }

    /// Like `take_again`, for the case that the lock file was removed or replaced.
    fn put_back(&self, held: &mut Held) -> io::Result<()> {
        if held.mark.is_in(&held.file).is_ok_and(|is| !is) {
            return Err(Errno::WOULDBLOCK.into());
        }
        let (new, made) = match lock_file(&self.root, self.users) {
            // The directory's lock still keeps others out.
            Err(_) if self.directory.is_some() => return Ok(()),
            found => found?,
        };
        // A lock file that was already there may belong to another holder, unless the directory is
        // locked.
        if !made && self.directory.is_none() && !held.mark.is_in(&new)? {
            return Err(Errno::WOULDBLOCK.into());
        }
        log::warn!("{LOCK_FILE} was removed or replaced while the vault was open; restoring it");
        if let Err(e) = held.mark.put(&new) {
            log::warn!("{LOCK_FILE}: {e}");
            held.mark = Mark::read(&new)?;
        }
        held.file = new;
        Ok(())
    }

    /// Records that all work is done. The lock itself is held until this is dropped, so that a process
    /// waiting for it can then also unmount the store.
    ///
    /// Sharing holders leave the mark for the next exclusive holder: others may still be at work, or
    /// have been killed.
    ///
    /// # Errors
    /// EIO if another process has had the lock; otherwise the store's error.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut held = self.held.lock();
        self.look(&mut held)?;
        if self.users == Users::One && held.file.writable() {
            held.mark = Mark::put_nothing(&held.file)?;
        }
        Ok(())
    }

    /// Like `finish`, when more work may follow later.
    ///
    /// # Errors
    /// Those of `finish`.
    pub(super) fn rest(&self) -> io::Result<()> {
        let mut held = self.held.lock();
        self.look(&mut held)?;
        if self.users == Users::One && held.file.writable() {
            held.mark = Mark::put_new(&held.file, REST).or_else(|_| Mark::put_nothing(&held.file))?;
        }
        Ok(())
    }

    /// Records that work has resumed.
    pub(super) fn resume(&self) {
        let mut held = self.held.lock();
        if self.look(&mut held).is_ok() && self.users == Users::One && held.file.writable() {
            match Mark::put_new(&held.file, ONE) {
                Ok(mark) => held.mark = mark,
                Err(e) => {
                    log::warn!("{LOCK_FILE}: {e}");
                    held.mark = Mark::read(&held.file).unwrap_or_else(|_| held.mark.clone());
                }
            }
        }
    }

    /// Releases the locks, as a store that revokes them does.
    #[cfg(test)]
    pub(super) fn lose(&self) {
        rustix::fs::flock(&*self.held.lock().file.fd(), FlockOperation::Unlock).unwrap();
        self.directory.iter().for_each(|fd| rustix::fs::flock(fd, FlockOperation::Unlock).unwrap());
    }
}

/// Why the vault cannot be locked: an exclusive holder, or shared holders.
fn who_has(root: &StoreDir) -> OpenError {
    match lock_file(root, Users::Several) {
        Ok(_) => OpenError::Shared,
        Err(_) => OpenError::Locked,
    }
}

/// Whether the lock file, which another process has locked, contains the mark of sharing holders. An
/// exclusive holder replaces it immediately.
fn has_mark_of_several(root: &StoreDir) -> bool {
    open(root).and_then(|(fd, _)| Mark::read(&DirFile::new(fd))).is_ok_and(|mark| mark.is_of_several())
}

/// The mark of the sharing holders, in a file that this process has locked; the first of them writes it.
/// EWOULDBLOCK if a process holds the vault exclusively.
fn mark_of_several(file: &DirFile) -> io::Result<Mark> {
    let fd = file.fd();
    let lock = |operation| rustix::fs::flock(&*fd, operation);
    for _ in 0..TRIES_FOR_MARK {
        let mark = Mark::read(file)?;
        if mark.is_of_several() {
            return Ok(mark);
        }
        // The exclusive lock prevents concurrent writers. Converting it releases the shared lock for a
        // moment, so read the mark again.
        match lock(Users::One.lock()) {
            Ok(()) => {
                let written = match Mark::read(file)?.is_of_several() {
                    true => Ok(()),
                    false => Mark::put_new(file, SEVERAL).map(drop),
                };
                lock(Users::Several.lock())?;
                written?;
            }
            Err(Errno::WOULDBLOCK) => {
                thread::sleep(BETWEEN_TRIES);
                lock(Users::Several.lock())?;
            }
            Err(e) => {
                lock(Users::Several.lock())?;
                return Err(e.into());
            }
        }
    }
    // Sharing holders of an older version have no mark.
    Mark::read(file)
}

/// Opens and locks the lock file; returns whether it was created. EWOULDBLOCK if another process holds
/// it.
fn lock_file(root: &StoreDir, users: Users) -> io::Result<(LockFile, bool)> {
    let mut any_made = false;
    for _ in 0..TRIES {
        let (fd, made) = open(root)?;
        any_made |= made;
        rustix::fs::flock(&fd, users.lock())?;
        let file = LockFile(DirFile::new(fd));
        if is_in_place(root, &file) {
            return Ok((file, any_made));
        }
    }
    Err(Errno::WOULDBLOCK.into())
}

/// Whether the lock file's name still leads to `file`; assumed if the store cannot tell.
fn is_in_place(root: &StoreDir, file: &DirFile) -> bool {
    let own = rustix::fs::fstat(&*file.fd()).map(|stat| (stat.st_dev, stat.st_ino));
    match root.stat(OsStr::new(LOCK_FILE)) {
        Ok(there) => own.is_ok_and(|own| own == (there.st_dev, there.st_ino)),
        Err(e) => e.kind() != io::ErrorKind::NotFound,
    }
}

/// Milliseconds on a clock that also counts while the machine is suspended.
fn now() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// Whether the root contains entries, which means that the vault was open before. Assumed if it cannot
/// be listed.
fn in_use(root: &StoreDir) -> bool {
    let entry = |name: &OsStr| !name.as_bytes().starts_with(RESERVED.as_bytes());
    root.list().map_or(true, |listed| listed.iter().any(|found| entry(&found.name)))
}

/// Opens the lock file; returns whether it had to be created. Another user's file may be read-only, but
/// can be locked.
fn open(root: &StoreDir) -> io::Result<(OwnedFd, bool)> {
    let name = OsStr::new(LOCK_FILE);
    let existing = || {
        let found = root.open_file(name, OFlags::RDWR).or_else(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => root.open_file(name, OFlags::RDONLY),
            _ => Err(e),
        });
        found.map(|fd| (fd, false))
    };
    match existing() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    match root.create_file(name, 0o644) {
        // Another process created it first.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => existing(),
        made => made.map(|fd| (fd, true)),
    }
}

#[cfg(test)]
mod tests;
