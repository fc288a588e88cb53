//! Directories: names in and out, and every operation that takes a name.

use super::{Kind, OpenFile, Result, Stat, Target, Vault};
use std::{
    ffi::{OsStr, OsString},
    sync::Arc,
};

/// A name as it stands in the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoredName(pub OsString);

/// An open directory: a descriptor, and the id that its names are encrypted under.
pub struct Dir {
    _todo: (),
}

/// One entry of a listing. "." and ".." are not listed.
#[derive(Debug, Clone)]
pub struct DirEntry {
    /// Plaintext name.
    pub name: OsString,
    /// Its name in the store.
    pub stored: StoredName,
    /// Type.
    pub kind: Kind,
    /// Inode number in the store.
    pub ino: u64,
}

/// What a new node starts with. `uid` and `gid` are the caller's; they are set where the process may,
/// a set-group-id parent hands down its group.
#[derive(Debug, Clone, Copy)]
pub struct NewNode {
    /// Permission bits after the umask.
    pub mode: u32,
    /// The caller.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
}

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
    /// Finds a name. ENOENT if there is none.
    pub fn lookup(&self, _parent: &Dir, _name: &OsStr) -> Result<(StoredName, Stat)> {
        todo!()
    }

    /// Opens a directory entry.
    pub fn open_dir(&self, _parent: &Dir, _name: &StoredName) -> Result<Arc<Dir>> {
        todo!()
    }

    /// All entries; a name that does not authenticate is logged and left out.
    pub fn list(&self, _dir: &Dir) -> Result<Vec<DirEntry>> {
        todo!()
    }

    /// Makes a regular file and opens it. EEXIST if the name is taken.
    pub fn create(
        &self,
        _parent: &Dir,
        _name: &OsStr,
        _node: NewNode,
    ) -> Result<(StoredName, Stat, Arc<OpenFile>)> {
        todo!()
    }

    /// Opens a regular file. One `OpenFile` serves all handles of an inode.
    pub fn open_file(&self, _parent: &Dir, _name: &StoredName, _write: bool) -> Result<Arc<OpenFile>> {
        todo!()
    }

    /// Makes a directory.
    pub fn mkdir(&self, _parent: &Dir, _name: &OsStr, _node: NewNode) -> Result<(StoredName, Stat)> {
        todo!()
    }

    /// Makes a regular file, FIFO, socket or device; `rdev` as the kernel encodes it.
    pub fn mknod(
        &self,
        _parent: &Dir,
        _name: &OsStr,
        _node: NewNode,
        _kind: Kind,
        _rdev: u64,
    ) -> Result<(StoredName, Stat)> {
        todo!()
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        _parent: &Dir,
        _name: &OsStr,
        _target: &OsStr,
        _node: NewNode,
    ) -> Result<(StoredName, Stat)> {
        todo!()
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, _parent: &Dir, _name: &StoredName) -> Result<OsString> {
        todo!()
    }

    /// Another name for a node.
    pub fn link(&self, _node: Target, _parent: &Dir, _name: &OsStr) -> Result<(StoredName, Stat)> {
        todo!()
    }

    /// Removes a name; returns the node's attributes from before (its nlink tells whether it was the last).
    pub fn unlink(&self, _parent: &Dir, _name: &OsStr) -> Result<Stat> {
        todo!()
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, _parent: &Dir, _name: &OsStr) -> Result<Stat> {
        todo!()
    }

    /// Renames; returns the new stored name, and what was replaced if anything was.
    pub fn rename(
        &self,
        _from: (&Dir, &OsStr),
        _to: (&Dir, &OsStr),
        _mode: RenameMode,
    ) -> Result<(StoredName, Option<Stat>)> {
        todo!()
    }

    /// Makes a directory's entries durable.
    pub fn sync_dir(&self, _dir: &Dir) -> Result<()> {
        todo!()
    }
}
