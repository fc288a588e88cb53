//! Directories: opening them, and finding what is in them.

use super::{
    Error, Pin, Result, Stat, Target, Vault,
    anchor::{Found, Identity},
    error::is_gone,
};
use crate::{format::dir_id::DirId, store::StoreDir};
use rustix::io::Errno;
use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
    sync::Arc,
};

/// A name as it stands in the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoredName(pub OsString);

/// An open directory: a descriptor, and the id that its names are encrypted under.
pub struct Dir {
    pub(super) store: Arc<StoreDir>,
    pub(super) id: Option<DirId>,
}

impl Dir {
    pub(super) fn new(store: StoreDir, id: Option<DirId>) -> Self {
        Dir { store: Arc::new(store), id }
    }

    /// The id. A directory whose id never reached the store, and cannot be given one now, has no
    /// entries: ENOENT.
    pub(super) fn id(&self) -> Result<&DirId> {
        self.id.as_ref().ok_or(Error::os(Errno::NOENT.raw_os_error()))
    }

    /// Whether it has one.
    pub fn has_id(&self) -> bool {
        self.id.is_some()
    }

    /// Whether it was removed, so far as the store says that of what is open.
    pub fn is_gone(&self) -> bool {
        self.store.itself().stat().map_or_else(|e| is_gone(&e), |stat| stat.st_nlink == 0)
    }

    /// Where `name` is in the store.
    pub fn path_in_store(&self, name: &OsStr) -> PathBuf {
        path_in_store(&self.store, name)
    }

    /// Where `name` is in the store, for a log line.
    pub(super) fn stored_path(&self, name: &OsStr) -> String {
        stored_path(&self.store, name)
    }
}

/// Where `name` in a directory is in the store, for a log line.
pub(super) fn stored_path(dir: &StoreDir, name: &OsStr) -> String {
    // Debug formatting escapes what would break the line.
    format!("{:?}", path_in_store(dir, name))
}

/// Where `name` in a directory is in the store.
fn path_in_store(dir: &StoreDir, name: &OsStr) -> PathBuf {
    let link = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
    std::fs::read_link(link).unwrap_or_default().join(name)
}

impl Vault {
    /// Finds a name. ENOENT if there is none.
    pub fn lookup(&self, parent: &Dir, name: &OsStr) -> Result<(StoredName, Stat)> {
        let look = || {
            let stored = self.place(parent, name)?.stored;
            let stat = self.stat(Target::Entry(parent, &stored))?;
            Ok((stored, stat))
        };
        self.compared(parent, name, look, |found: &Result<(_, Stat)>| match found {
            Ok((_, stat)) => Some(Found::Kind(stat.kind)),
            Err(Error::Store(e)) if e.kind() == io::ErrorKind::NotFound => Some(Found::Nothing),
            Err(_) => None,
        })
    }

    /// A number of 31 bits that tells a node from those that had its inode number before; 0 if the store does not help. By an open
    /// file it costs no look at a name, which takes a distributed store as long as making one.
    pub fn generation(&self, target: Target) -> u32 {
        match target {
            _ if !self.has_generations => 0,
            Target::Entry(parent, name) => parent.store.generation(&name.0),
            Target::File(file) => file.generation(),
            Target::Dir(_) => target.node().map_or(0, |node| node.generation()),
        }
    }

    /// Whether the store tells inodes with the same number apart. FUSE does not, and is not to be asked in vain whether a directory
    /// that is open was removed.
    pub fn has_generations(&self) -> bool {
        self.has_generations
    }

    /// Opens a directory entry.
    ///
    /// # Errors
    /// ENOTDIR for anything else; `Damaged` if its id file is missing or does not authenticate.
    pub fn open_dir(&self, parent: &Dir, name: &StoredName) -> Result<Arc<Dir>> {
        self.note_met_sidecar(parent, &name.0);
        let look = || self.with_id(parent.store.open_dir(&name.0)?);
        // One that lost its id is not the directory that an anchor knows.
        let identity = |dir: &Dir| Ok(Some(dir.id.map_or(Identity::Any, Identity::Dir)));
        let dir = self.compared_entry(parent, name, look, identity)?;
        self.met(&dir)?;
        Ok(Arc::new(dir))
    }

    /// A directory whose name is gone: it has attributes, and no entries.
    ///
    /// # Errors
    /// ENOTDIR for anything else; else the store's.
    pub fn gone_dir(&self, pin: &Pin) -> Result<Arc<Dir>> {
        Ok(Arc::new(Dir::new(StoreDir::of(pin.node())?, None)))
    }

    /// Makes a directory's entries durable.
    pub fn sync_dir(&self, dir: &Dir) -> Result<()> {
        self.note_met_in(dir)?;
        self.make_names_durable()?;
        self.with_access(&dir.store.itself(), 0o500, || dir.store.sync())?;
        self.anchor_names(Some(dir))
    }
}
