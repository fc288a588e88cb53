//! Opening a vault: unlocking, the write lock, and the operations on targets.

use super::{Dir, Durability, Files, OpenError, OpenFile, Result, SetAttr, Stat, StatFs, StoredName};
use crate::engine::EngineChoice;
use std::{ffi::OsStr, path::Path, sync::Arc};

/// What opens a key slot.
pub enum Unlock {
    /// A password (no trailing newline).
    Password(zeroize::Zeroizing<Vec<u8>>),
    /// Content of a key file.
    KeyFile(zeroize::Zeroizing<Vec<u8>>),
    /// A printed recovery key, as typed.
    Recovery(zeroize::Zeroizing<String>),
}

/// How to open.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// Take no write lock and write nothing.
    pub read_only: bool,
    /// Which engine.
    pub engine: EngineChoice,
    /// What an overwrite survives.
    pub durability: Durability,
}

/// A node to work on.
pub enum Target<'a> {
    /// An open directory.
    Dir(&'a Dir),
    /// A name in an open directory (never followed if it is a link).
    Entry(&'a Dir, &'a StoredName),
    /// An open file (it may have no name any more).
    File(&'a OpenFile),
}

/// An open vault.
pub struct Vault {
    _todo: (),
}

impl Vault {
    /// Unlocks and opens the vault at `path`.
    ///
    /// # Errors
    /// `OpenError` with a variant for each thing that a user can mend.
    pub fn open(
        _path: &Path,
        _unlock: &Unlock,
        _options: OpenOptions,
    ) -> std::result::Result<Arc<Vault>, OpenError> {
        todo!()
    }

    /// Makes a file durable, and the names that lead to it: what fsync promises.
    pub fn sync_file(&self, _file: &OpenFile) -> Result<()> {
        todo!()
    }

    /// The open files.
    pub fn files(&self) -> &Arc<Files> {
        todo!()
    }

    /// Whether nothing may be written.
    pub fn read_only(&self) -> bool {
        todo!()
    }

    /// The vault's root directory.
    pub fn root(&self) -> Arc<Dir> {
        todo!()
    }

    /// Space of the store.
    pub fn statfs(&self) -> Result<StatFs> {
        todo!()
    }

    /// Attributes of a node.
    pub fn stat(&self, _target: Target) -> Result<Stat> {
        todo!()
    }

    /// Changes attributes (a size too, also of a closed file) and returns the new ones.
    pub fn set_attr(&self, _target: Target, _changes: &SetAttr) -> Result<Stat> {
        todo!()
    }

    /// Value of an attribute, `name` with its namespace ("user.x").
    pub fn get_xattr(&self, _target: Target, _name: &OsStr) -> Result<Vec<u8>> {
        todo!()
    }

    /// Sets an attribute; `create`/`replace` as XATTR_CREATE and XATTR_REPLACE.
    pub fn set_xattr(
        &self,
        _target: Target,
        _name: &OsStr,
        _value: &[u8],
        _create: bool,
        _replace: bool,
    ) -> Result<()> {
        todo!()
    }

    /// Names of the attributes.
    pub fn list_xattr(&self, _target: Target) -> Result<Vec<std::ffi::OsString>> {
        todo!()
    }

    /// Removes an attribute.
    pub fn remove_xattr(&self, _target: Target, _name: &OsStr) -> Result<()> {
        todo!()
    }

    /// Flushes everything, makes it durable and writes the clean records. Called at unmount.
    pub fn shut_down(&self) -> Result<()> {
        todo!()
    }
}
