//! Tests of the namespace on a directory of the store, without a mount.

mod anchor;
mod attributes;
mod change_times;
mod concurrent;
mod config;
mod deep;
mod descriptors;
mod files;
mod former;
mod hostile;
mod listing;
mod memory;
mod model;
mod nameless;
mod names;
mod nodes;
mod opening;
mod pending;
mod renames;
mod repair;
mod rest;
mod rotate;
mod rotate_crashes;
mod sharing;
mod users;
mod xattr_lists;
mod xattrs;

use super::{Dir, Kind, NewNode, OpenOptions, RenameMode, Stat, StoredName, Unlock, Vault};
use content::{Error, Result};
use crypto::{cipher::Cipher, integrity::Integrity};
use format::{
    config::Settings,
    key_slot::{DEFAULT_COST, NewSlot, SlotSecret},
    name::NameMode,
};
use rustix::io::Errno;
use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;

const KEY: &[u8] = b"0123456789abcdef";

/// A vault in a temporary directory, which is removed with it.
pub(crate) struct Fixture {
    pub(crate) vault: Arc<Vault>,
    dir: TempDir,
}

fn settings(names: NameMode) -> Settings {
    Settings { cipher: Cipher::Aes256, integrity: Integrity::Kmac128, names }
}

fn unlock() -> Unlock {
    Unlock::KeyFile(KEY.to_vec().into())
}

fn slot() -> NewSlot<'static> {
    NewSlot { secret: SlotSecret::KeyFile(KEY), cost: DEFAULT_COST, created: 0, label: None }
}

fn open(path: &Path, read_only: bool) -> Arc<Vault> {
    Vault::open(path, &unlock(), OpenOptions { read_only, ..OpenOptions::default() }).unwrap()
}

impl Fixture {
    /// Shuts the vault down and drops it; returns its directory.
    fn close(self) -> TempDir {
        self.vault.shut_down().unwrap();
        self.dir
    }

    pub(crate) fn new() -> Self {
        Self::with(NameMode::Encrypted)
    }

    fn with(names: NameMode) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Vault::init(dir.path(), settings(names), &slot()).unwrap();
        let vault = open(dir.path(), false);
        Fixture { vault, dir }
    }

    fn reopen(self) -> Self {
        self.vault.shut_down().unwrap();
        let Fixture { dir, vault } = self;
        drop(vault);
        Fixture { vault: open(dir.path(), false), dir }
    }

    fn root(&self) -> Arc<Dir> {
        self.vault.root()
    }

    fn mkdir(&self, parent: &Dir, name: &str) -> Arc<Dir> {
        let (stored, _) = self.vault.mkdir(parent, OsStr::new(name), node(0o755)).unwrap();
        self.vault.open_dir(parent, &stored).unwrap()
    }

    /// Creates an empty regular file.
    fn touch(&self, parent: &Dir, name: impl AsRef<OsStr>) -> Result<()> {
        self.vault.mknod(parent, name.as_ref(), node(0o644), Kind::File, 0).map(drop)
    }

    /// The inode number that a name leads to.
    fn ino(&self, parent: &Dir, name: impl AsRef<OsStr>) -> Option<u64> {
        self.vault.lookup(parent, name.as_ref()).ok().map(|(_, stat)| stat.ino)
    }

    /// The path of a name in the store.
    fn stored(&self, parent: &Dir, name: impl AsRef<OsStr>) -> PathBuf {
        let (stored, _) = self.vault.lookup(parent, name.as_ref()).unwrap();
        serde_json::from_str::<PathBuf>(&parent.stored_path(&stored.0)).unwrap()
    }

    /// The names in a directory, sorted.
    fn names(&self, dir: &Arc<Dir>) -> Vec<OsString> {
        let mut names: Vec<_> = self.vault.list(dir).unwrap().into_iter().map(|e| e.name).collect();
        names.sort();
        names
    }
}

impl Vault {
    /// Removes a name of anything but a directory; returns the node's previous attributes.
    fn unlink_name(&self, dir: &Dir, name: &OsStr) -> Result<Stat> {
        let spot = self.find(dir, name)?;
        self.unlink(dir, &spot).map(|()| spot.there.unwrap().stat)
    }

    fn rmdir_name(&self, dir: &Dir, name: &OsStr) -> Result<()> {
        self.rmdir(dir, &self.find(dir, name)?)
    }

    /// Renames; returns the new stored name, and the attributes of the node that had the new name
    /// before.
    fn rename_name(
        &self,
        from: (&Dir, &OsStr),
        to: (&Dir, &OsStr),
        mode: RenameMode,
    ) -> Result<(StoredName, Option<Stat>)> {
        let (source, target) = (self.find(from.0, from.1)?, self.find(to.0, to.1)?);
        self.rename((from.0, &source), (to.0, &target), mode)?;
        Ok((target.stored().clone(), target.there.map(|there| there.stat)))
    }
}

fn node(mode: u32) -> NewNode<'static> {
    NewNode::plain(mode, rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// The errno that an application would see for an error of the store.
fn errno<T>(result: Result<T>) -> Option<Errno> {
    match result {
        Err(Error::Store(e)) => Errno::from_io_error(&e),
        _ => None,
    }
}

/// Stored names of all entries of a directory, sorted.
fn raw_names(path: &Path) -> Vec<OsString> {
    let mut names: Vec<_> =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}
