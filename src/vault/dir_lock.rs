//! In a shared vault: who changes the names of a directory, among several machines.
//!
//! A lock of a directory's id file. Who adds a name has it shared, so that nobody takes the directory away meanwhile: between its
//! id file and the directory itself, which no store removes in one step. Who removes the directory, or changes a long name in it,
//! which has a sidecar, has it alone. The rest are single operations of the store.

use super::{
    Dir, Error, RenameMode, Result, Vault,
    attr::key,
    file::wait_for,
    names::Place,
    sharing::{Rule, holds},
};
use crate::{format::name::DIR_ID_NAME, store::Flock};
use rustix::{
    fs::{FlockOperation, OFlags, fstat},
    io::Errno,
};
use std::{ffi::OsStr, io, time::Duration};

/// How often a directory without its id file is looked at, and for how long: who removes it may be about to put that back.
const BETWEEN: Duration = Duration::from_millis(20);
const FOR_AN_ID: Duration = Duration::from_secs(1);

/// How a directory is to be locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LockMode {
    /// Not at all.
    Not,
    /// Nobody removes it.
    Shared,
    /// Nobody else changes a long name in it.
    Alone,
    /// Nobody adds a name to it: it is removed.
    ToGo,
}

impl LockMode {
    /// For a name that is added.
    fn to_add(place: &Place) -> Self {
        if place.is_long() { LockMode::Alone } else { LockMode::Shared }
    }

    /// For the directories that a rename takes a name from and gives one to.
    pub(super) fn for_rename(old: &Place, new: &Place, mode: RenameMode) -> [Self; 2] {
        let source = match mode {
            RenameMode::Exchange | RenameMode::Whiteout { .. } => LockMode::to_add(old),
            RenameMode::Replace | RenameMode::NoReplace => LockMode::to_remove(old),
        };
        [source, LockMode::to_add(new)]
    }

    /// For a name that is removed.
    pub(super) fn to_remove(place: &Place) -> Self {
        if place.is_long() { LockMode::Alone } else { LockMode::Not }
    }
}

impl Vault {
    /// Whether other machines may write to the vault.
    pub fn is_shared(&self) -> bool {
        self.sharing.is_some()
    }

    /// Keeps others from removing a directory while a name is added to it, or from changing long names if the name `is_long`.
    /// `None` in a vault that is not shared.
    ///
    /// # Errors
    /// EAGAIN if others do not let go of it in time; ENOENT if it is gone; else the store's.
    pub(super) fn lock_dir(&self, dir: &Dir, is_long: bool) -> Result<Option<Flock>> {
        let Some(patience) = self.sharing.filter(|_| holds(Rule::LockDirectory)) else { return Ok(None) };
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

    /// The same, to remove a name: nothing but the sidecar of a long one needs it.
    ///
    /// # Errors
    /// As there.
    pub(super) fn lock_long_name(&self, dir: &Dir, place: &Place) -> Result<Option<Flock>> {
        if place.is_long() { self.lock_dir(dir, true) } else { Ok(None) }
    }

    /// Locks several directories, or none in a vault that is not shared: in an order that all machines keep, and before any lock of
    /// this process alone, so that no two machines wait for each other.
    ///
    /// # Errors
    /// As there; one that is to go need not be there any more, nor have an id: then nobody adds a name to it.
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

    /// `None` if another has it, or has put another id file there.
    fn try_lock_dir(&self, dir: &Dir, operation: FlockOperation) -> io::Result<Option<Flock>> {
        let name = OsStr::new(DIR_ID_NAME);
        // Over NFS an exclusive lock takes a descriptor that may write.
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

    /// The id file of a directory that is there without: whoever was removing it vanished, or is about to find it in use.
    fn put_id_back(&self, dir: &Dir) -> io::Result<()> {
        let Some(id) = dir.id.filter(|_| dir.store.itself().stat().is_ok_and(|stat| stat.st_nlink > 0))
        else {
            return Err(Errno::NOENT.into());
        };
        self.write_small(dir, OsStr::new(DIR_ID_NAME), &self.keys().dir_ids.encode(&id))
    }

    /// Waits for the id of a directory that another machine is removing: it goes, or gets its id file back.
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
