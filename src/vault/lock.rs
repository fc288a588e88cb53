//! The write lock: one process at a time has a vault open for writing, or several share it.
//!
//! Two things are locked. The lock file has content while it is held: the kernel releases the lock of a process
//! that is killed, and what the file then still holds says that this process did not come to the end of its work.
//! But a file can be deleted, and the next one of its name is another. So the vault's root directory is locked as
//! well, which is the same one by every path that leads to it. Some stores lock no directories (NFS: EBADF or
//! ENOLCK, or only among programs of one machine): there only the lock file counts, and it is put back at the next fsync if it went.
//!
//! A store between machines takes the locks of a machine away that it has not heard of for long. So the lock is taken again at
//! every fsync; where it is still held, that does nothing.

use super::OpenError;
use crate::{
    format::name::{LOCK_FILE, RESERVED},
    store::{BackingFile, DirFile, StoreDir},
};
use parking_lot::Mutex;
use rustix::{
    fs::{FlockOperation, OFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    thread,
    time::{Duration, Instant},
};

const HELD: &[u8] = b"open\n";
/// A lock file may be replaced between being opened and being locked: so often it is tried again.
const TRIES: u32 = 8;
/// So long a mount that shared a vault may take to end after it was unmounted.
const LAST_OF_SEVERAL: Duration = Duration::from_secs(1);
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

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
    directory: Option<OwnedFd>,
    /// The lock file of this name, or the one that is there now.
    file: Mutex<DirFile>,
    root: StoreDir,
    was_left: bool,
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
                // Nobody waits for the last of several to end.
                Err(OpenError::Shared) if users == Users::One && start.elapsed() < LAST_OF_SEVERAL => {
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
        let left = !file.is_empty().map_err(failed("cannot read"))?;
        // Where a lock file was deleted, whoever held it may have been killed.
        let lost = made && in_use(root);
        // On a full disk, or in the file of another user, nothing can be noted: the worst is assumed.
        let noted = note(&file).is_ok();
        let was_left = left || lost || !noted;
        Ok(WriteLock { users, directory, file: Mutex::new(file), root: own, was_left })
    }

    /// Whether the last process that held the lock ended without releasing it.
    pub(super) fn was_left(&self) -> bool {
        self.was_left
    }

    /// Puts the lock file back if it was removed or replaced, and takes its lock again if the store took that away.
    ///
    /// # Errors
    /// EIO if another process may be writing: it has the lock, or the lock file where the directory cannot be locked.
    pub(super) fn check(&self) -> io::Result<()> {
        let mut file = self.file.lock();
        if is_in_place(&self.root, &file) {
            return match rustix::fs::flock(&*file.fd(), self.users.lock()) {
                Err(Errno::WOULDBLOCK) => {
                    log::error!("the store took {LOCK_FILE}'s lock away, and another process has it now");
                    Err(Errno::IO.into())
                }
                locked => Ok(locked?),
            };
        }
        match lock_file(&self.root, self.users) {
            Ok((new, _)) => {
                log::warn!("{LOCK_FILE} was removed or replaced while the vault was open: it is put back");
                if let Err(e) = note(&new) {
                    log::warn!("{LOCK_FILE}: {e}");
                }
                *file = new;
                Ok(())
            }
            // Nobody else gets past the directory.
            Err(_) if self.directory.is_some() => Ok(()),
            Err(e) => {
                log::error!(
                    "{LOCK_FILE} was replaced, and is not to be had ({e}): another process may be writing"
                );
                Err(Errno::IO.into())
            }
        }
    }

    /// Says that all work is done. The lock itself lasts until this is dropped: whoever waits for it may then
    /// unmount the store as well.
    ///
    /// Several leave that to the next who has the vault alone: others may be at work, or have been killed.
    pub(super) fn finish(&self) -> io::Result<()> {
        let file = self.file.lock();
        if self.users == Users::One && file.writable() { file.set_len(0) } else { Ok(()) }
    }

    /// Says that there is work again.
    pub(super) fn resume(&self) {
        let file = self.file.lock();
        if file.writable()
            && let Err(e) = note(&file)
        {
            log::warn!("{LOCK_FILE}: {e}");
        }
    }
}

impl Drop for WriteLock {
    /// Closing alone would not do: a process that is just being started has the same open files until it runs its own program.
    fn drop(&mut self) {
        let unlock = |fd: BorrowedFd| rustix::fs::flock(fd, FlockOperation::Unlock);
        // What cannot be unlocked is closed.
        let _ = self.directory.take().map(|directory| unlock(directory.as_fd()));
        let _ = unlock(self.file.get_mut().fd().as_fd());
    }
}

/// Who keeps the vault from being locked: one who has it alone, or several.
fn who_has(root: &StoreDir) -> OpenError {
    match lock_file(root, Users::Several) {
        Ok(_) => OpenError::Shared,
        Err(_) => OpenError::Locked,
    }
}

/// Says in the lock file that it is held. On a full disk there is room for a length at least.
fn note(file: &DirFile) -> io::Result<()> {
    file.write_at(HELD, 0).or_else(|_| file.set_len(HELD.len() as u64))
}

/// The lock file, locked, and whether it was made. EWOULDBLOCK if another holds it.
fn lock_file(root: &StoreDir, users: Users) -> io::Result<(DirFile, bool)> {
    let mut any_made = false;
    for _ in 0..TRIES {
        let (fd, made) = open(root)?;
        any_made |= made;
        rustix::fs::flock(&fd, users.lock())?;
        let file = DirFile::new(fd);
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
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_being_started_keeps_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let root = StoreDir::open_path(dir.path()).unwrap();
        let lock = WriteLock::take(&root, dir.path(), Users::One).unwrap();
        // What it has between fork and exec.
        let file = lock.file.lock().fd().try_clone().unwrap();
        let directory = lock.directory.as_ref().map(|directory| directory.try_clone().unwrap());
        drop(lock);
        assert!(WriteLock::take(&root, dir.path(), Users::One).is_ok());
        drop((file, directory));
    }

    #[test]
    fn a_lock_that_the_store_took_away_is_taken_again() {
        let dir = tempfile::tempdir().unwrap();
        let root = StoreDir::open_path(dir.path()).unwrap();
        let take = |users| WriteLock::take(&root, dir.path(), users);
        let shared = take(Users::Several).unwrap();
        let lose = || {
            rustix::fs::flock(&*shared.file.lock().fd(), FlockOperation::Unlock).unwrap();
            rustix::fs::flock(shared.directory.as_ref().unwrap(), FlockOperation::Unlock).unwrap();
        };
        lose();
        let other = take(Users::One).unwrap();
        assert_eq!(shared.check().unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
        drop(other);
        shared.check().unwrap();
        assert!(matches!(take(Users::One), Err(OpenError::Shared)));
    }

    #[test]
    fn one_and_several_keep_each_other_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = StoreDir::open_path(dir.path()).unwrap();
        let take = |users| WriteLock::take(&root, dir.path(), users);
        let one = take(Users::One).unwrap();
        assert!(matches!(take(Users::Several), Err(OpenError::Locked)));
        one.finish().unwrap();
        drop(one);
        let several = [take(Users::Several).unwrap(), take(Users::Several).unwrap()];
        assert!(matches!(take(Users::One), Err(OpenError::Shared)));
        several[0].finish().unwrap();
        let [first, second] = several;
        drop(first);
        assert!(matches!(take(Users::One), Err(OpenError::Shared)));
        drop(second);
        assert!(take(Users::One).unwrap().was_left(), "nobody says that all of them ended well");
    }
}
