//! The write lock: one process at a time has a vault open for writing, or several share it.
//!
//! Two things are locked. The lock file has content while it is held: the kernel releases the lock of a process
//! that is killed, and what the file then still holds says that this process did not come to the end of its work.
//! But a file can be deleted, and the next one of its name is another. So the vault's root directory is locked as
//! well, which is the same one by every path that leads to it. Some stores lock no directories (NFS: EBADF or
//! ENOLCK, or only among programs of one machine): there only the lock file counts, and it is put back at the next fsync if it went.
//!
//! A store between machines takes the locks of a machine away that it has not heard of for long. So the lock is taken again at
//! every fsync, and before something is written where that was not done for a second; where it is still held, that does nothing.
//! Who held it alone meanwhile has left another mark in the file (`lock_mark`). Then nothing is written any more.

use super::{
    OpenError,
    lock_mark::{Mark, ONE, REST, SEVERAL},
    sharing::{Rule, holds},
};
use crate::{
    format::name::{LOCK_FILE, RESERVED},
    store::{BackingFile, DirFile, Flock, StoreDir},
};
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

/// A lock file may be replaced between being opened and being locked: so often it is tried again.
const TRIES: u32 = 8;
/// So long a mount that shared a vault may take to end after it was unmounted.
const LAST_OF_SEVERAL: Duration = Duration::from_secs(1);
/// So long one may have a lock who only asks for it, or writes the mark of several.
pub(super) const MOMENT: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 1000 });
pub(super) const BETWEEN_TRIES: Duration = Duration::from_millis(20);
/// So often those who share a vault look for the mark of the first of them. Who only asks for the lock keeps it for a moment.
const TRIES_FOR_MARK: u32 = 50;
/// The lock was not lost if it was there so many milliseconds ago.
const RECENT: i64 = if cfg!(test) { 0 } else { 1000 };

/// Who may have a vault open for writing at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// This process alone.
    One,
    /// All that say this.
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
    /// Goes before the lock file does: whoever waits for that finds the directory free.
    directory: Option<Flock>,
    held: Mutex<Held>,
    /// When that was seen to be so.
    seen: AtomicI64,
    /// Another had the vault alone meanwhile.
    lost: AtomicBool,
    /// Whether the kernel may have an old copy of the lock file: one of FUSE's.
    is_cached: bool,
    root: StoreDir,
    was_left: bool,
}

struct Held {
    /// The lock file of this name, or the one that is there now.
    file: LockFile,
    mark: Mark,
}

/// The lock file, locked: as [`Flock`], it is unlocked when this is dropped.
struct LockFile(DirFile);

impl Deref for LockFile {
    type Target = DirFile;

    fn deref(&self) -> &DirFile {
        &self.0
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // What cannot be unlocked is closed.
        let _ = rustix::fs::flock(&*self.fd(), FlockOperation::Unlock);
    }
}

impl WriteLock {
    /// Takes the lock of the vault `root`, found at `path`.
    ///
    /// # Errors
    /// `Locked` if another has it, `Shared` if several have; `ReadOnlyStore`; `Store`.
    pub(super) fn take(root: &StoreDir, path: &Path, users: Users) -> Result<Self, OpenError> {
        let start = Instant::now();
        loop {
            match WriteLock::try_take(root, path, users) {
                // Nobody waits for the last of several to end, nor for the first of them to write their mark.
                Err(OpenError::Shared) if users == Users::One && start.elapsed() < LAST_OF_SEVERAL => {
                    thread::sleep(BETWEEN_TRIES);
                }
                // By the time it is asked who kept it, that one may have let the others in.
                Err(OpenError::Locked | OpenError::Shared)
                    if users == Users::Several && start.elapsed() < MOMENT =>
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
                log::info!("{}: cannot be locked ({e}): only {LOCK_FILE} is", path.display());
                None
            }
            Ok(fd) => Some(fd),
        };
        let left = Mark::read(&file).map_err(failed("cannot read"))?;
        // Where a lock file was deleted, whoever held it may have been killed.
        let lost = made && in_use(root);
        let noted = match users {
            Users::One => Mark::put_new(&file, ONE),
            Users::Several => mark_of_several(&file),
        };
        let was_left = !left.is_of_none() || lost || noted.is_err();
        let mark = match noted {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(who_has(root)),
            // On a full disk, or in the file of another user, nothing can be noted: the worst is assumed.
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

    /// Puts the lock file back if it was removed or replaced, and takes its lock again if the store took that away.
    ///
    /// # Errors
    /// EIO if another process may be writing, or has written: it has the lock, or left its mark, or has the lock file where the
    /// directory cannot be locked. From then on always.
    pub(super) fn check(&self) -> io::Result<()> {
        self.look(&mut self.held.lock())
    }

    /// The same before something is written, unless it was done just now.
    ///
    /// # Errors
    /// As there.
    pub(super) fn check_to_write(&self) -> io::Result<()> {
        let is_recent = (0..RECENT).contains(&(now() - self.seen.load(Ordering::Relaxed)));
        if is_recent || !holds(Rule::AskBeforeWriting) { self.refuse_lost() } else { self.check() }
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
        // The directory's is not certain to be worth anything.
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
                    "the store took {LOCK_FILE}'s lock away, and another process had it: what was not stored is lost"
                );
                self.lost.store(true, Ordering::Relaxed);
            }
            Err(e) => return Err(e),
        }
        self.refuse_lost()
    }

    /// EWOULDBLOCK if another has, or had, the lock.
    fn take_again(&self, held: &mut Held) -> io::Result<()> {
        let lock = |held: &Held| {
            self.lock_again(&held.file)?;
            if held.mark.is_in(&held.file)? || !holds(Rule::KnowOwnMark) {
                Ok(())
            } else {
                Err(io::Error::from(Errno::WOULDBLOCK))
            }
        };
        match lock(held) {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        // A descriptor whose lock was lost may be of no use any more.
        let _ = rustix::fs::flock(&*held.file.fd(), FlockOperation::Unlock);
        held.file = lock_file(&self.root, self.users)?.0;
        lock(held)
    }

    /// EWOULDBLOCK if another has it for longer than a moment.
    fn lock_again(&self, file: &DirFile) -> io::Result<()> {
        let start = Instant::now();
        loop {
            match rustix::fs::flock(&*file.fd(), self.users.lock()) {
                Err(Errno::WOULDBLOCK) if start.elapsed() < MOMENT => thread::sleep(BETWEEN_TRIES),
                locked => return Ok(locked?),
            }
        }
    }

    /// The same, where the lock file is gone, or another.
    fn put_back(&self, held: &mut Held) -> io::Result<()> {
        if held.mark.is_in(&held.file).is_ok_and(|is| !is) {
            return Err(Errno::WOULDBLOCK.into());
        }
        let (new, made) = match lock_file(&self.root, self.users) {
            // Nobody else gets past the directory.
            Err(_) if self.directory.is_some() => return Ok(()),
            found => found?,
        };
        // Whose is it? Where the directory is locked, nobody's.
        if !made && self.directory.is_none() && !held.mark.is_in(&new)? {
            return Err(Errno::WOULDBLOCK.into());
        }
        log::warn!("{LOCK_FILE} was removed or replaced while the vault was open: it is put back");
        if let Err(e) = held.mark.put(&new) {
            log::warn!("{LOCK_FILE}: {e}");
            held.mark = Mark::read(&new)?;
        }
        held.file = new;
        Ok(())
    }

    /// Says that all work is done. The lock itself lasts until this is dropped: whoever waits for it may then
    /// unmount the store as well.
    ///
    /// Several leave that to the next who has the vault alone: others may be at work, or have been killed.
    ///
    /// # Errors
    /// EIO if another has had the lock; the store's.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut held = self.held.lock();
        self.look(&mut held)?;
        if self.users == Users::One && held.file.writable() {
            held.mark = Mark::put_nothing(&held.file)?;
        }
        Ok(())
    }

    /// The same, where there may be work again later.
    ///
    /// # Errors
    /// As there.
    pub(super) fn rest(&self) -> io::Result<()> {
        let mut held = self.held.lock();
        self.look(&mut held)?;
        if self.users == Users::One && held.file.writable() {
            held.mark = Mark::put_new(&held.file, REST).or_else(|_| Mark::put_nothing(&held.file))?;
        }
        Ok(())
    }

    /// Says that there is work again.
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

    /// The store takes the locks away, for tests.
    #[cfg(test)]
    pub(super) fn lose(&self) {
        rustix::fs::flock(&*self.held.lock().file.fd(), FlockOperation::Unlock).unwrap();
        self.directory.iter().for_each(|fd| rustix::fs::flock(fd, FlockOperation::Unlock).unwrap());
    }
}

/// Who keeps the vault from being locked: one who has it alone, or several.
fn who_has(root: &StoreDir) -> OpenError {
    match lock_file(root, Users::Several) {
        Ok(_) => OpenError::Shared,
        Err(_) => OpenError::Locked,
    }
}

/// The mark of those who share the vault, in a file that is locked by them: the first writes it. EWOULDBLOCK if one has the vault
/// alone.
fn mark_of_several(file: &DirFile) -> io::Result<Mark> {
    let fd = file.fd();
    let lock = |operation| rustix::fs::flock(&*fd, operation);
    for _ in 0..TRIES_FOR_MARK {
        let mark = Mark::read(file)?;
        if mark.is_of_several() {
            return Ok(mark);
        }
        // So nobody else writes one at the same time. The shared lock is let go of for a moment, so the file is looked at again.
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
    // Those of an older version have none.
    Mark::read(file)
}

/// The lock file, locked, and whether it was made. EWOULDBLOCK if another holds it.
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

/// Whether the name of the lock file still leads to this one; also where the store does not say.
fn is_in_place(root: &StoreDir, file: &DirFile) -> bool {
    let own = rustix::fs::fstat(&*file.fd()).map(|stat| (stat.st_dev, stat.st_ino));
    match root.stat(OsStr::new(LOCK_FILE)) {
        Ok(there) => own.is_ok_and(|own| own == (there.st_dev, there.st_ino)),
        Err(e) => e.kind() != io::ErrorKind::NotFound,
    }
}

/// Milliseconds by the clock that goes on while the machine sleeps.
fn now() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// Whether there are entries in the root, so that it was open before.
fn in_use(root: &StoreDir) -> bool {
    let entry = |name: &OsStr| !name.as_bytes().starts_with(RESERVED.as_bytes());
    root.list().map_or(true, |listed| listed.iter().any(|found| entry(&found.name)))
}

/// The lock file, and whether it was made because there was none. One of another user may be locked all the same.
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
        // Another was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => existing(),
        made => made.map(|fd| (fd, true)),
    }
}

#[cfg(test)]
mod tests;
