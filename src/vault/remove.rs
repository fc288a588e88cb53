//! Removing names, and moving them.

use super::{Dir, Error, Kind, Result, Stat, StoredName, Target, Vault, names::Place};
use rustix::io::Errno;
use std::{ffi::OsStr, io, os::fd::AsFd, sync::Arc};

/// The flags of renameat2(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces what is there.
    Replace,
    /// Fails with EEXIST if something is there.
    NoReplace,
    /// Swaps both.
    Exchange,
}

impl Vault {
    /// Removes a name; returns the node's attributes from before (its nlink tells whether it was the last).
    pub fn unlink(&self, parent: &Dir, name: &OsStr) -> Result<Stat> {
        self.writable()?;
        let place = self.place(parent, name)?;
        let _long = self.lock_long(&[&place]);
        let stat = self.stat(Target::Entry(parent, &place.stored))?;
        parent.store.unlink(&place.stored.0)?;
        self.clear(parent, &place);
        self.forget_if_gone(&stat);
        Ok(stat)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: &Dir, name: &OsStr) -> Result<Stat> {
        self.writable()?;
        let place = self.place(parent, name)?;
        let _long = self.long_names.lock();
        let stat = self.stat(Target::Entry(parent, &place.stored))?;
        if stat.kind != Kind::Dir {
            return Err(Errno::NOTDIR.into());
        }
        let stored = &place.stored.0;
        self.take_away(parent, stored, || parent.store.rmdir(stored))?;
        self.clear(parent, &place);
        Ok(stat)
    }

    /// Renames; returns the new stored name, and what was replaced if anything was.
    pub fn rename(
        &self,
        from: (&Dir, &OsStr),
        to: (&Dir, &OsStr),
        mode: RenameMode,
    ) -> Result<(StoredName, Option<Stat>)> {
        self.writable()?;
        let (old, new) = (self.place(from.0, from.1)?, self.place(to.0, to.1)?);
        let _long = self.long_names.lock();
        let moved = self.stat(Target::Entry(from.0, &old.stored))?;
        let replaced = match self.stat(Target::Entry(to.0, &new.stored)) {
            Ok(stat) => Some(stat),
            Err(Error::Store(e)) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        // What is moved may be durable, so what its new name depends on has to be first.
        self.prepare(to.0, &new)?;
        if new.is_long() || !Arc::ptr_eq(&from.0.store, &to.0.store) {
            self.make_names_durable()?;
        }
        let (source, target) = (&from.0.store, &to.0.store);
        match mode {
            RenameMode::Exchange => {
                self.prepare(from.0, &old)?;
                source.exchange(&old.stored.0, target, &new.stored.0)?;
                for stat in [Some(moved), replaced].into_iter().flatten() {
                    self.files.changed((stat.dev, stat.ino));
                }
                return Ok((new.stored, None));
            }
            RenameMode::NoReplace => source.rename_new(&old.stored.0, target, &new.stored.0)?,
            RenameMode::Replace => self.replace((from.0, &old, &moved), (to.0, &new, replaced.as_ref()))?,
        }
        let same = replaced.is_some_and(|stat| (stat.dev, stat.ino) == (moved.dev, moved.ino));
        if same {
            // rename(2) of one link of a file onto another does nothing: both names stay.
            return Ok((new.stored, None));
        }
        self.clear(from.0, &old);
        self.files.changed((moved.dev, moved.ino));
        if let Some(stat) = &replaced {
            self.forget_if_gone(stat);
        }
        Ok((new.stored, replaced))
    }

    fn replace(
        &self,
        (from, old, moved): (&Dir, &Place, &Stat),
        (to, new, replaced): (&Dir, &Place, Option<&Stat>),
    ) -> Result<()> {
        let rename = || from.store.rename(&old.stored.0, &to.store, &new.stored.0);
        match replaced {
            // An empty directory still holds files of the vault's own; a directory onto itself stays.
            Some(stat) if stat.kind == Kind::Dir && moved.kind == Kind::Dir && stat.ino != moved.ino => {
                self.take_away(to, &new.stored.0, rename)
            }
            _ => Ok(rename()?),
        }
    }

    /// After a name went: if it was the last of an open file, what is not flushed need not be.
    fn forget_if_gone(&self, stat: &Stat) {
        if stat.kind != Kind::File {
            return;
        }
        let inode = (stat.dev, stat.ino);
        self.files.changed(inode);
        // Asked again rather than counted: a link may have been made meanwhile.
        let file = self.files.get(inode);
        let gone =
            file.is_some_and(|f| rustix::fs::fstat(f.store.fd().as_fd()).is_ok_and(|raw| raw.st_nlink == 0));
        // Not while it is held here: then the table would keep it, and the store its room.
        if gone {
            self.files.forget(inode);
        }
    }
}
