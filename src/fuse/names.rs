//! Requests on names: looking up, making, removing, renaming, linking.

use super::{
    attr, errno,
    handles::FileHandle,
    inodes::{self, Id, Name},
    server::Server,
};
use crate::vault::{Error, Kind, NewNode, Pin, RenameMode, Result, Stat, Target};
use fuser::RenameFlags;
use std::ffi::OsStr;

/// What a reply tells of a node.
pub struct Entry {
    /// Its number.
    pub id: Id,
    /// Its attributes.
    pub stat: Stat,
}

impl Server {
    /// Finds a name; `None` if there is none.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<Option<Entry>> {
        let dir = self.dir(parent)?;
        match self.vault.lookup(&dir, name) {
            Ok((stored, stat)) => Ok(Some(Entry { id: self.found(parent, stored, &stat), stat })),
            Err(e) if errno::is_no_entry(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Makes a regular file and opens it.
    pub fn create(&self, parent: u64, name: &OsStr, new: NewNode, write: bool) -> Result<(Entry, u64)> {
        self.writable()?;
        let dir = self.dir(parent)?;
        let (stored, stat, file) = self.vault.create(&dir, name, new)?;
        let id = self.found(parent, stored, &stat);
        let handle = self.handles.add_file(FileHandle { node: id.number, file, write });
        Ok((Entry { id, stat }, handle))
    }

    /// Makes a regular file without opening it, a FIFO, a socket or a device.
    pub fn mknod(&self, parent: u64, name: &OsStr, new: NewNode, format: u32, rdev: u32) -> Result<Entry> {
        self.writable()?;
        let kind = attr::kind_of_mode(format).ok_or(Error::Invalid("type of node"))?;
        let dir = self.dir(parent)?;
        let (stored, stat) = self.vault.mknod(&dir, name, new, kind, rdev.into())?;
        Ok(Entry { id: self.found(parent, stored, &stat), stat })
    }

    /// Makes a directory.
    pub fn mkdir(&self, parent: u64, name: &OsStr, new: NewNode) -> Result<Entry> {
        self.writable()?;
        let dir = self.dir(parent)?;
        let (stored, stat) = self.vault.mkdir(&dir, name, new)?;
        Ok(Entry { id: self.found(parent, stored, &stat), stat })
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, parent: u64, name: &OsStr, target: &OsStr, new: NewNode) -> Result<Entry> {
        self.writable()?;
        let dir = self.dir(parent)?;
        let (stored, stat) = self.vault.symlink(&dir, name, target, new)?;
        Ok(Entry { id: self.found(parent, stored, &stat), stat })
    }

    /// Gives a node another name.
    pub fn link(&self, number: u64, parent: u64, name: &OsStr) -> Result<Entry> {
        self.writable()?;
        let node = self.inodes.get(number)?;
        let to = self.dir(parent)?;
        let (stored, stat) =
            self.with_name(&node, |dir, stored| self.vault.link(Target::Entry(dir, stored), &to, name))?;
        Ok(Entry { id: self.found(parent, stored, &stat), stat })
    }

    /// Removes a name of something other than a directory.
    pub fn unlink(&self, parent: u64, name: &OsStr) -> Result<()> {
        self.remove(parent, name, |dir| self.vault.unlink(dir, name)).map(|_| ())
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: u64, name: &OsStr) -> Result<()> {
        let before = self.remove(parent, name, |dir| self.vault.rmdir(dir, name))?;
        self.dirs.drop_dir(self.inodes.number_of(inodes::key(&before)));
        Ok(())
    }

    /// Removes a name by `removal`, which returns the node's attributes from before.
    fn remove(
        &self,
        parent: u64,
        name: &OsStr,
        removal: impl FnOnce(&crate::vault::Dir) -> Result<Stat>,
    ) -> Result<Stat> {
        self.writable()?;
        let dir = self.dir(parent)?;
        let (stored, stat) = self.vault.lookup(&dir, name)?;
        let node = self.inodes.find(inodes::key(&stat));
        let names = node.as_ref().map(|n| n.names.write());
        let pin = names.as_ref().and_then(|_| self.vault.pin(&dir, &stored).ok());
        let before = removal(&dir)?;
        if let Some(mut names) = names {
            names.remove(&Name { parent, stored }, &before, was_last(&before, pin.as_ref()), pin);
        }
        Ok(before)
    }

    /// Renames or exchanges.
    pub fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), flags: RenameFlags) -> Result<()> {
        self.writable()?;
        let mode = rename_mode(flags)?;
        let (from_dir, to_dir) = (self.dir(from.0)?, self.dir(to.0)?);
        let (stored, stat) = self.vault.lookup(&from_dir, from.1)?;
        let there = match self.vault.lookup(&to_dir, to.1) {
            Ok((stored, stat)) => Some((inodes::key(&stat), stored)),
            Err(e) if errno::is_no_entry(&e) => None,
            Err(e) => return Err(e),
        };
        let same = there.as_ref().is_some_and(|(inode, _)| *inode == inodes::key(&stat));
        if same && mode == RenameMode::Replace {
            return Ok(()); // Two links of one inode: rename(2) leaves both.
        }
        let moved = self.inodes.find(inodes::key(&stat));
        let pin = there.as_ref().and_then(|(_, stored)| self.vault.pin(&to_dir, stored).ok());
        let there = there.filter(|_| !same).and_then(|(inode, _)| self.inodes.find(inode));
        // Both are locked, in the order of their numbers, until the table says what the store does.
        let swapped = matches!((&moved, &there), (Some(m), Some(t)) if t.number < m.number);
        let (mut moved_names, mut there_names);
        if swapped {
            there_names = there.as_ref().map(|n| n.names.write());
            moved_names = moved.as_ref().map(|n| n.names.write());
        } else {
            moved_names = moved.as_ref().map(|n| n.names.write());
            there_names = there.as_ref().map(|n| n.names.write());
        }
        let (new_stored, replaced) = self.vault.rename((&from_dir, from.1), (&to_dir, to.1), mode)?;
        let old = Name { parent: from.0, stored };
        let new = Name { parent: to.0, stored: new_stored };
        if let Some(names) = &mut there_names {
            match (mode, &replaced) {
                (RenameMode::Exchange, _) => names.replace(&new, old.clone()),
                (_, Some(before)) => names.remove(&new, before, was_last(before, pin.as_ref()), pin),
                (_, None) => {}
            }
        }
        if let Some(names) = &mut moved_names {
            names.replace(&old, new);
        }
        if let Some(before) = replaced.filter(|b| b.kind == Kind::Dir && mode == RenameMode::Replace) {
            self.dirs.drop_dir(self.inodes.number_of(inodes::key(&before)));
        }
        Ok(())
    }
}

/// Whether a name that was removed was the last of its node. The store is asked, not the attributes from
/// before: a link may have been made meanwhile.
fn was_last(before: &Stat, pin: Option<&Pin>) -> bool {
    let links = pin.and_then(|pin| pin.look().ok()).filter(|(inode, _)| *inode == inodes::key(before));
    before.kind == Kind::Dir || links.map_or(before.nlink <= 1, |(_, links)| links == 0)
}

fn rename_mode(flags: RenameFlags) -> Result<RenameMode> {
    match flags {
        f if f.is_empty() => Ok(RenameMode::Replace),
        f if f == RenameFlags::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        f if f == RenameFlags::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        _ => Err(Error::Invalid("rename flags")),
    }
}
