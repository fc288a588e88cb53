//! Requests on names: lookup, create, remove, rename and link.

use super::{
    attr,
    caller::Caller,
    errno,
    inodes::{Id, Name, Names, Node},
    server::Server,
    wanted::Wanted,
};
use content::{Error, Result};
use fuser::{FopenFlags, OpenFlags, RenameFlags};
use std::{ffi::OsStr, sync::Arc};
use vault::{Dir, Kind, OpenFile, RenameMode, Spot, Stat, StoredName, Target, There};

/// A node as a reply describes it.
pub struct Entry {
    /// Its identity.
    pub id: Id,
    /// Its attributes.
    pub stat: Stat,
}

impl Server {
    /// Looks up a name; `None` if it does not exist.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<Option<Entry>> {
        let dir = self.dir(parent)?;
        loop {
            let (stored, stat) = match self.vault.lookup(&dir, name) {
                Ok(found) => found,
                Err(e) if errno::is_no_entry(&e) => return Ok(None),
                Err(e) => return Err(e),
            };
            // Otherwise it has vanished meanwhile: look again.
            if let Some(id) = self.found(parent, &dir, stored, &stat) {
                return Ok(Some(Entry { id, stat }));
            }
        }
    }

    /// Creates a regular file and opens it. Also returns its handle, and how the kernel must treat it.
    pub fn create(
        &self,
        parent: u64,
        name: &OsStr,
        new: Wanted,
        flags: OpenFlags,
    ) -> Result<(Entry, u64, FopenFlags)> {
        self.writable()?;
        let dir = self.dir(parent)?;
        let acl = self.default_acl(parent, &dir)?;
        let made = self.vault.create(&dir, name, new.under(acl.as_ref(), self.owners));
        let (stored, stat, file) = made.map_err(|e| match e {
            // Another machine created the file after the kernel's lookup. The kernel looks it up again,
            // and opens it.
            e if self.vault.is_shared() && flags.0 & libc::O_EXCL == 0 && errno::is_taken(&e) => {
                errno::stale()
            }
            e => e,
        })?;
        let id = self.made(parent, &dir, stored, &stat, acl.is_none(), Some(&file))?;
        self.open_made(Entry { id, stat }, file, flags)
    }

    /// Creates a regular file without a name and opens it. Returns the same as `create`.
    pub fn tmpfile(&self, parent: u64, new: Wanted, flags: OpenFlags) -> Result<(Entry, u64, FopenFlags)> {
        self.writable()?;
        let dir = self.dir(parent)?;
        let acl = self.default_acl(parent, &dir)?;
        let (there, file) = self.vault.create_nameless(&dir, new.under(acl.as_ref(), self.owners))?;
        let stat = there.stat;
        let id = self.inodes.made_nameless(there);
        *self.inodes.get(id.number)?.bare.write() = acl.is_none() && self.changes_alone();
        self.open_made(Entry { id, stat }, file, flags)
    }

    fn open_made(
        &self,
        entry: Entry,
        file: Arc<OpenFile>,
        flags: OpenFlags,
    ) -> Result<(Entry, u64, FopenFlags)> {
        let node = self.inodes.get(entry.id.number)?;
        let mut in_use = node.in_use.lock();
        let mode = self.open_mode(flags, &in_use);
        let handle = self.give_out(&node, &mut in_use, file, flags, mode);
        Ok((entry, handle, mode))
    }

    /// Creates a regular file without opening it, or a FIFO, a socket or a device.
    pub fn mknod(&self, parent: u64, name: &OsStr, new: Wanted, format: u32, rdev: u32) -> Result<Entry> {
        self.writable()?;
        let kind = attr::kind_of_mode(format).ok_or(Error::Invalid("type of node"))?;
        let dir = self.dir(parent)?;
        let acl = self.default_acl(parent, &dir)?;
        let (stored, stat) =
            self.vault.mknod(&dir, name, new.under(acl.as_ref(), self.owners), kind, rdev.into())?;
        Ok(Entry { id: self.made(parent, &dir, stored, &stat, acl.is_none(), None)?, stat })
    }

    /// Creates a directory.
    pub fn mkdir(&self, parent: u64, name: &OsStr, new: Wanted) -> Result<Entry> {
        self.writable()?;
        let dir = self.dir(parent)?;
        let acl = self.default_acl(parent, &dir)?;
        let (stored, stat) = self.vault.mkdir(&dir, name, new.under(acl.as_ref(), self.owners))?;
        Ok(Entry { id: self.made(parent, &dir, stored, &stat, acl.is_none(), None)?, stat })
    }

    /// Creates a symbolic link.
    pub fn symlink(&self, parent: u64, name: &OsStr, target: &OsStr, new: Wanted) -> Result<Entry> {
        self.writable()?;
        let dir = self.dir(parent)?;
        let (stored, stat) = self.vault.symlink(&dir, name, target, new.under(None, self.owners))?;
        Ok(Entry { id: self.made(parent, &dir, stored, &stat, true, None)?, stat })
    }

    /// Adds a name to a node.
    pub fn link(&self, number: u64, parent: u64, name: &OsStr) -> Result<Entry> {
        self.writable()?;
        let node = self.inodes.get(number)?;
        let to = self.dir(parent)?;
        let (stored, stat) = match self.link_nameless(&node, parent, &to, name)? {
            Some(linked) => linked,
            None => {
                self.with_name(&node, |dir, stored| self.vault.link(Target::Entry(dir, stored), &to, name))?
            }
        };
        let id = self.found(parent, &to, stored, &stat).ok_or_else(errno::no_entry)?;
        Ok(Entry { id, stat })
    }

    /// Gives an open file its first name; `None` if it has a name already.
    fn link_nameless(
        &self,
        node: &Node,
        parent: u64,
        to: &Dir,
        name: &OsStr,
    ) -> Result<Option<(StoredName, Stat)>> {
        let mut names = node.names.write();
        if names.any().is_some() {
            return Ok(None);
        }
        let file = self.open_file(node.key).ok_or_else(errno::no_entry)?;
        let (stored, stat) = self.vault.link(Target::File(&file), to, name)?;
        names.came_back(Name { parent, stored: stored.clone() });
        Ok(Some((stored, stat)))
    }

    /// Removes a name of a node other than a directory.
    pub fn unlink(&self, parent: u64, name: &OsStr) -> Result<()> {
        self.remove(parent, name, |dir, spot| self.vault.unlink(dir, spot))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: u64, name: &OsStr) -> Result<()> {
        self.remove(parent, name, |dir, spot| self.vault.rmdir(dir, spot))
    }

    /// Removes a name with `removal`. The kernel locks the directory, so the entry that was found is the
    /// one removed.
    fn remove(
        &self,
        parent: u64,
        name: &OsStr,
        removal: impl FnOnce(&Dir, &Spot) -> Result<()>,
    ) -> Result<()> {
        self.writable()?;
        let dir = self.dir(parent)?;
        let spot = self.vault.find(&dir, name)?;
        let node = spot.there.as_ref().and_then(|there| self.known(there));
        let mut names = node.as_ref().map(|n| n.names.write());
        removal(&dir, &spot)?;
        let name = Name { parent, stored: spot.stored().clone() };
        self.went(names.as_deref_mut(), &name, spot.there);
        Ok(())
    }

    /// Records the removal of a name. `names` are those of its node, if the kernel knows it.
    fn went(&self, names: Option<&mut Names>, name: &Name, there: Option<There>) {
        let Some(there) = there else { return };
        if there.stat.kind == Kind::Dir {
            self.dirs.drop_dir(self.inodes.number_of(there.inode()));
        }
        if let Some(names) = names {
            let last = there.is_gone();
            names.remove(name, &there.stat, last, last.then_some(there.pin));
        }
    }

    /// Renames a node, or exchanges two.
    pub fn rename(
        &self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: RenameFlags,
        caller: Caller,
    ) -> Result<()> {
        self.writable()?;
        let mode = rename_mode(flags)?;
        let (from_dir, to_dir) = (self.dir(from.0)?, self.dir(to.0)?);
        let (source, target) = (self.vault.find(&from_dir, from.1)?, self.vault.find(&to_dir, to.1)?);
        let moved = source.there.as_ref().ok_or_else(errno::no_entry)?;
        let there = target.there.as_ref();
        let same = there.map(There::inode) == Some(moved.inode());
        match mode {
            // Two links of one inode: rename(2) leaves both.
            RenameMode::Replace | RenameMode::Whiteout { replace: true } if same => return Ok(()),
            RenameMode::Whiteout { replace: false } if same => return Err(Error::os(libc::EEXIST)),
            _ => {}
        }
        let moved = self.known(moved);
        let there = there.filter(|_| !same).and_then(|there| self.known(there));
        // Lock both, in lock order, until the table matches the store.
        let swapped = matches!((&moved, &there), (Some(m), Some(t)) if t.order() < m.order());
        let (mut moved_names, mut there_names);
        if swapped {
            there_names = there.as_ref().map(|n| n.names.write());
            moved_names = moved.as_ref().map(|n| n.names.write());
        } else {
            moved_names = moved.as_ref().map(|n| n.names.write());
            there_names = there.as_ref().map(|n| n.names.write());
        }
        self.vault.rename((&from_dir, &source), (&to_dir, &target), mode)?;
        let old = Name { parent: from.0, stored: source.stored().clone() };
        let new = Name { parent: to.0, stored: target.stored().clone() };
        match (mode, &mut there_names) {
            (RenameMode::Exchange, Some(names)) => names.replace(&new, old.clone()),
            (RenameMode::Exchange, None) => {}
            (_, names) => self.went(names.as_deref_mut(), &new, target.there),
        }
        if let Some(names) = &mut moved_names {
            names.replace(&old, new);
        }
        match mode {
            RenameMode::Whiteout { .. } => {
                let (uid, gid) = self.owners.instead_of(caller.user, caller.group);
                self.vault.adopt_whiteout(&from_dir, source.stored(), uid, gid)
            }
            RenameMode::Replace | RenameMode::NoReplace | RenameMode::Exchange => Ok(()),
        }
    }
}

fn rename_mode(flags: RenameFlags) -> Result<RenameMode> {
    const NEW_WHITEOUT: RenameFlags = RenameFlags::RENAME_NOREPLACE.union(RenameFlags::RENAME_WHITEOUT);
    match flags {
        f if f.is_empty() => Ok(RenameMode::Replace),
        f if f == RenameFlags::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        f if f == RenameFlags::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        f if f == RenameFlags::RENAME_WHITEOUT => Ok(RenameMode::Whiteout { replace: true }),
        f if f == NEW_WHITEOUT => Ok(RenameMode::Whiteout { replace: false }),
        _ => Err(Error::Invalid("rename flags")),
    }
}

#[cfg(test)]
mod tests;
