//! Removing and moving names.

use super::{Dir, Kind, Pin, Stat, StoredName, Vault, dir_lock::LockMode, names::StoredPlace};
use content::Result;
use rustix::io::Errno;
use std::{
    cell::OnceCell,
    ffi::OsStr,
    io,
    sync::{Arc, atomic::Ordering},
};
use store::Flock;

/// The flags of renameat2(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces an existing target.
    Replace,
    /// Fails with EEXIST if the target exists.
    NoReplace,
    /// Swaps both.
    Exchange,
    /// Leaves a whiteout under the old name: device 0, which hides entries of an overlay's lower layers.
    /// The store does both in one step or refuses, so a crash cannot separate them.
    Whiteout {
        /// Whether an existing target is replaced. If false, it gives EEXIST.
        replace: bool,
    },
}

/// A name's place in a directory, and the node that was found there.
pub struct Spot {
    place: StoredPlace,
    /// The node under the name, if there is one.
    pub there: Option<There>,
}

/// A node found under a name.
#[derive(Debug)]
pub struct There {
    /// Its inode.
    pub pin: Pin,
    /// Its attributes when it was found.
    pub stat: Stat,
    links_left: OnceCell<Option<u64>>,
}

impl Spot {
    /// Its name in the store.
    pub fn stored(&self) -> &StoredName {
        &self.place.stored
    }

    fn there(&self) -> Result<&There> {
        self.there.as_ref().ok_or(Errno::NOENT.into())
    }
}

impl There {
    /// A node that was found with these attributes.
    pub fn new(pin: Pin, stat: Stat) -> There {
        There { pin, stat, links_left: OnceCell::new() }
    }

    /// Device and inode number in the store.
    pub fn inode(&self) -> (u64, u64) {
        (self.stat.dev, self.stat.ino)
    }

    /// Whether its last name is gone. Call it after the name was removed.
    pub fn is_gone(&self) -> bool {
        self.stat.kind == Kind::Dir || self.links_left().map_or(self.stat.nlink <= 1, |links| links == 0)
    }

    /// The number of names after one was removed, if the store tells. The first call asks the store rather
    /// than the earlier attributes, because a link may have been created meanwhile.
    fn links_left(&self) -> Option<u64> {
        *self.links_left.get_or_init(|| self.pin.links().ok())
    }
}

impl Vault {
    /// Looks up the name that is to be removed, moved or replaced. The caller makes sure that nobody
    /// else changes the name until that is done.
    ///
    /// # Errors
    /// The store's. A missing name is not an error.
    pub fn find(&self, parent: &Dir, name: &OsStr) -> Result<Spot> {
        let place = self.place(parent, name)?;
        let there = match parent.store.node(&place.stored.0) {
            Ok(node) => {
                let stat =
                    self.with_target_len(self.present(&node.stat_behind()?)?, || Ok(node.readlink()?))?;
                Some(There::new(Pin::new(node), stat))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e.into()),
        };
        Ok(Spot { place, there })
    }

    /// Removes a name of anything but a directory. ENOENT if `spot` is empty.
    pub fn unlink(&self, parent: &Dir, spot: &Spot) -> Result<()> {
        self.writable()?;
        let there = spot.there()?;
        let _changing = self.changing(parent, &spot.place.name)?;
        let _locked = self.lock_long_name(parent, &spot.place)?;
        let _long = self.lock_long(&[&spot.place]);
        parent.store.unlink(&spot.place.stored.0)?;
        self.clear(parent, &spot.place);
        self.name_went(there, parent, &spot.place.name);
        Ok(())
    }

    /// Removes an empty directory. ENOENT if `spot` is empty.
    pub fn rmdir(&self, parent: &Dir, spot: &Spot) -> Result<()> {
        self.writable()?;
        if spot.there()?.stat.kind != Kind::Dir {
            return Err(Errno::NOTDIR.into());
        }
        let place = &spot.place;
        let dir = Dir::new(parent.store.open_dir(&place.stored.0)?, None);
        let _changing = self.changing(parent, &place.name)?;
        let wanted = [(parent, LockMode::to_remove(place)), (&dir, LockMode::ToGo)];
        let [_locked, locked] = self.lock_dirs(wanted)?;
        let _long = self.long_names.lock();
        self.take_away((parent, place), (&dir, locked), || parent.store.rmdir(&place.stored.0))?;
        self.clear(parent, place);
        Ok(())
    }

    /// Renames. ENOENT if `from` is empty.
    pub fn rename(&self, from: (&Dir, &Spot), to: (&Dir, &Spot), mode: RenameMode) -> Result<()> {
        self.writable()?;
        let (old, new) = (&from.1.place, &to.1.place);
        let moved = from.1.there()?;
        self.may_go(from.0, &old.stored, to.0)?;
        let exchange = mode == RenameMode::Exchange;
        if exchange {
            self.may_go(to.0, &new.stored, from.0)?;
        }
        let replaced = self.replaced_dir(moved, to, mode)?;
        let _changing = [self.changing(from.0, &old.name)?, self.changing(to.0, &new.name)?];
        let [source, target] = LockMode::for_rename(old, new, mode);
        let replaced_mode = if replaced.is_some() { LockMode::ToGo } else { LockMode::Not };
        let wanted = [(from.0, source), (to.0, target), (replaced.as_ref().unwrap_or(to.0), replaced_mode)];
        let [_from, _to, locked] = self.lock_dirs(wanted)?;
        let alone = self.long_names.lock();
        self.moves.fetch_add(1, Ordering::Relaxed);
        // The moved node may be durable, so what its new name depends on must be durable first.
        self.prepare(to.0, new)?;
        if exchange {
            self.prepare(from.0, old)?;
        }
        if new.is_long() || exchange && old.is_long() || !Arc::ptr_eq(&from.0.store, &to.0.store) {
            self.make_names_durable_among(&alone)?;
        }
        let (source, target) = (&from.0.store, &to.0.store);
        match mode {
            RenameMode::Exchange => source.exchange(&old.stored.0, target, &new.stored.0)?,
            RenameMode::NoReplace if self.is_shared() => {
                source.rename_to_free(&old.stored.0, target, &new.stored.0)?;
            }
            RenameMode::NoReplace => source.rename_new(&old.stored.0, target, &new.stored.0)?,
            RenameMode::Replace => {
                let rename = || source.rename(&old.stored.0, target, &new.stored.0);
                self.replace((to.0, new), (replaced, locked), rename)?;
            }
            RenameMode::Whiteout { replace } => {
                let rename = || source.rename_whiteout(&old.stored.0, target, &new.stored.0, replace);
                self.replace((to.0, new), (replaced, locked), rename)?;
            }
        }
        if to.1.there.as_ref().is_some_and(|there| there.inode() == moved.inode()) {
            // rename(2) of one link of a file onto another does nothing: both names stay.
            return Ok(());
        }
        self.files.changed(moved.inode());
        match &to.1.there {
            Some(there) if exchange => self.files.changed(there.inode()),
            Some(there) => self.name_went(there, to.0, &new.name),
            None => {}
        }
        match mode {
            // In a shared vault, `to` may meanwhile have become another name of the same file. Then
            // nothing was renamed.
            RenameMode::Replace | RenameMode::NoReplace
                if self.is_shared() && from.0.store.stat(&old.stored.0).is_ok() => {}
            RenameMode::Replace | RenameMode::NoReplace => self.clear(from.0, old),
            // The old name stays in use.
            RenameMode::Exchange | RenameMode::Whiteout { .. } => {}
        }
        Ok(())
    }

    /// The directory that a rename replaces with another one, if any. Even an empty directory contains
    /// the vault's own files, which have to be removed. A directory that is renamed onto itself is not
    /// replaced.
    fn replaced_dir(
        &self,
        moved: &There,
        (to, spot): (&Dir, &Spot),
        mode: RenameMode,
    ) -> Result<Option<Dir>> {
        let is_dir = |there: &There| there.stat.kind == Kind::Dir;
        let replaces = match mode {
            RenameMode::Replace | RenameMode::Whiteout { .. } => true,
            RenameMode::NoReplace | RenameMode::Exchange => false,
        };
        match &spot.there {
            Some(there) if replaces && is_dir(there) && is_dir(moved) && there.inode() != moved.inode() => {
                Ok(Some(Dir::new(to.store.open_dir(&spot.place.stored.0)?, None)))
            }
            _ => Ok(None),
        }
    }

    fn replace(
        &self,
        at: (&Dir, &StoredPlace),
        (replaced, locked): (Option<Dir>, Option<Flock>),
        rename: impl FnOnce() -> io::Result<()>,
    ) -> Result<()> {
        match replaced {
            Some(dir) => self.take_away(at, (&dir, locked), rename),
            None => Ok(rename()?),
        }
    }

    /// Called after a name was removed from `dir`. If it was the last name of an open file, unflushed
    /// data need not be stored.
    fn name_went(&self, there: &There, dir: &Dir, name: &OsStr) {
        match there.stat.kind {
            Kind::File => match there.links_left() {
                Some(0) => {
                    self.list_of_file_went(there.pin.node(), &dir.store);
                    self.file_went(there.pin.node(), dir, name);
                    self.files.forget(there.inode());
                }
                _ => self.files.changed(there.inode()),
            },
            Kind::Symlink => self.link_went(&there.pin, &dir.store),
            Kind::Dir | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {}
        }
    }
}
