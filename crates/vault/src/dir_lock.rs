//! Directory locks, which coordinate changes of names among the machines that share a vault.
//!
//! Each is a lock on the directory's id file. A process that adds a name holds it shared, so that nobody
//! removes the directory meanwhile: removal takes the id file first and then the directory, which no
//! store does in one step. A process that removes the directory, or changes a long name in it, which has
//! a sidecar, holds it exclusively. All other changes are single operations of the store.

use super::{
    Dir, RenameMode, Vault,
    attr::key,
    names::StoredPlace,
    sharing::{SharingRule, holds},
};
use content::{Error, Result, wait_for};
use format::name::DIR_ID_NAME;
use rustix::{
    fs::{FlockOperation, OFlags, fstat},
    io::Errno,
};
use std::{ffi::OsStr, io, time::Duration};
use store::Flock;

/// How often, and for how long, to check a directory without an id file: the process removing it may be
/// about to put the file back.
const BETWEEN: Duration = Duration::from_millis(20);
const FOR_AN_ID: Duration = Duration::from_secs(1);

/// How to lock a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LockMode {
    /// No lock.
    Not,
    /// Prevents its removal.
    Shared,
    /// Prevents its removal, and changes of long names by others.
    Alone,
    /// Prevents additions, because the directory is being removed.
    ToGo,
}

impl LockMode {
    /// Mode for adding a name.
    fn to_add(place: &StoredPlace) -> Self {
        if place.is_long() { LockMode::Alone } else { LockMode::Shared }
    }

    /// Modes for the source and target directories of a rename.
    pub(super) fn for_rename(old: &StoredPlace, new: &StoredPlace, mode: RenameMode) -> [Self; 2] {
        let source = match mode {
            RenameMode::Exchange | RenameMode::Whiteout { .. } => LockMode::to_add(old),
            RenameMode::Replace | RenameMode::NoReplace => LockMode::to_remove(old),
        };
        [source, LockMode::to_add(new)]
    }

    /// Mode for removing a name.
    pub(super) fn to_remove(place: &StoredPlace) -> Self {
        if place.is_long() { LockMode::Alone } else { LockMode::Not }
    }
}

impl Vault {
    /// Whether other machines may write to the vault.
    pub fn is_shared(&self) -> bool {
        self.sharing.is_some()
    }

    /// Prevents others from removing a directory while a name is added to it or, with `is_long`, from
    /// changing long names in it. `None` if the vault is not shared.
    ///
    /// # Errors
    /// EAGAIN if others hold the lock too long; ENOENT if the directory is gone; otherwise the store's
    /// error.
    pub(super) fn lock_dir(&self, dir: &Dir, is_long: bool) -> Result<Option<Flock>> {
        let Some(patience) = self.sharing.filter(|_| holds(SharingRule::LockDirectory)) else {
            return Ok(None);
        };
        let operation = match is_long {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        let mut lock = None;
        wait_for(patience, || {
            lock = self.try_lock_dir(dir, operation)?;
            Ok(lock.is_some())
        })?;
        Ok(lock)
    }

    /// Like `lock_dir`, for removing a name. Only a long name, which has a sidecar, needs the lock.
    ///
    /// # Errors
    /// Those of `lock_dir`.
    pub(super) fn lock_long_name(&self, dir: &Dir, place: &StoredPlace) -> Result<Option<Flock>> {
        if place.is_long() { self.lock_dir(dir, true) } else { Ok(None) }
    }

    /// Locks several directories; none if the vault is not shared. All machines lock in the same order,
    /// and before any lock that is local to this process, so that no two machines wait for each other.
    ///
    /// # Errors
    /// Those of `lock_dir`; but a directory locked with `ToGo` may be gone or have no id: then nobody adds a
    /// name to it.
    pub(super) fn lock_dirs<const N: usize>(
        &self,
        wanted: [(&Dir, LockMode); N],
    ) -> Result<[Option<Flock>; N]> {
        let mut locks = [const { None }; N];
        if !self.is_shared() {
            return Ok(locks);
        }
        let mut order = Vec::new();
        for (at, (dir, _)) in wanted.iter().enumerate().filter(|(_, (_, mode))| *mode != LockMode::Not) {
            order.push((key(&dir.store.itself().stat()?), at));
        }
        order.sort_unstable();
        for same in order.chunk_by(|(one, _), (other, _)| one == other) {
            let modes = || same.iter().map(|(_, at)| wanted[*at].1);
            let first = same[0].1;
            let locked = self.lock_dir(wanted[first].0, modes().any(|mode| mode != LockMode::Shared));
            locks[first] = match locked {
                Err(Error::Store(e))
                    if e.kind() == io::ErrorKind::NotFound && modes().all(|mode| mode == LockMode::ToGo) =>
                {
                    None
                }
                locked => locked?,
            };
        }
        Ok(locks)
    }

    /// `None` if another process holds the lock, or has replaced the id file.
    fn try_lock_dir(&self, dir: &Dir, operation: FlockOperation) -> io::Result<Option<Flock>> {
        let name = OsStr::new(DIR_ID_NAME);
        // Over NFS, an exclusive lock requires a writable descriptor.
        let open =
            || dir.store.open_file(name, OFlags::RDWR).or_else(|_| dir.store.open_file(name, OFlags::RDONLY));
        let file = match open() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.put_id_back(dir)?;
                open()?
            }
            opened => opened?,
        };
        let lock = match Flock::take(file, operation) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            locked => locked?,
        };
        match dir.store.stat(name) {
            Ok(there) => {
                let own = fstat(&lock)?;
                Ok(((own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)).then_some(lock))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Writes the missing id file of an existing directory: the process that was removing it has died,
    /// or is about to find the directory in use.
    fn put_id_back(&self, dir: &Dir) -> io::Result<()> {
        let Some(id) = dir.id.filter(|_| dir.store.itself().stat().is_ok_and(|stat| stat.st_nlink > 0))
        else {
            return Err(Errno::NOENT.into());
        };
        self.write_small(dir, OsStr::new(DIR_ID_NAME), &self.keys().dir_ids.encode(&id))
    }

    /// Waits while another machine removes a directory: either the directory disappears, or its id file
    /// returns.
    pub(super) fn await_id(&self, dir: &Dir) -> io::Result<()> {
        let patience = self.sharing.unwrap_or_default().min(FOR_AN_ID);
        let mut left = patience.as_millis() / BETWEEN.as_millis();
        loop {
            match dir.store.stat(OsStr::new(DIR_ID_NAME)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                found => return found.map(drop),
            }
            if dir.store.itself().stat()?.st_nlink == 0 {
                return Err(Errno::NOENT.into());
            }
            if left == 0 {
                return Ok(());
            }
            left -= 1;
            std::thread::sleep(BETWEEN);
        }
    }
}
