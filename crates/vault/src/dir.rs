//! Directories: opening them and looking up names in them.

use super::{
    Pin, Stat, Target, Vault,
    anchor::{AnchoredIdentity, Found},
    sharing::is_gone,
};
use content::{Error, Result};
use format::dir_id::DirId;
use rustix::io::Errno;
use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
    sync::Arc,
};
use store::StoreDir;

/// A name as stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoredName(pub OsString);

/// An open directory: a descriptor, and the id under which its names are encrypted.
pub struct Dir {
    pub(super) store: Arc<StoreDir>,
    pub(super) id: Option<DirId>,
}

impl Dir {
    pub(super) fn new(store: StoreDir, id: Option<DirId>) -> Self {
        Dir { store: Arc::new(store), id }
    }

    /// The directory's id. A directory whose id never reached the store, and that cannot be given one
    /// now, has no entries: ENOENT.
    pub(super) fn id(&self) -> Result<&DirId> {
        self.id.as_ref().ok_or(Error::os(Errno::NOENT.raw_os_error()))
    }

    /// Whether the directory has an id.
    pub fn has_id(&self) -> bool {
        self.id.is_some()
    }

    /// Whether the directory was removed, as far as the store reports that for an open one.
    pub fn is_gone(&self) -> bool {
        self.store.itself().stat().map_or_else(|e| is_gone(&e), |stat| stat.st_nlink == 0)
    }

    /// The path of `name` in the store.
    pub fn path_in_store(&self, name: &OsStr) -> PathBuf {
        path_in_store(&self.store, name)
    }

    /// The path of `name` in the store, for a log line.
    pub(super) fn stored_path(&self, name: &OsStr) -> String {
        stored_path(&self.store, name)
    }
}

/// The path of `name` in the store, for a log line.
pub(super) fn stored_path(dir: &StoreDir, name: &OsStr) -> String {
    // Debug formatting escapes characters that would break the line.
    format!("{:?}", path_in_store(dir, name))
}

fn path_in_store(dir: &StoreDir, name: &OsStr) -> PathBuf {
    let link = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
    std::fs::read_link(link).unwrap_or_default().join(name)
}

impl Vault {
    /// Looks up a name. ENOENT if there is none.
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

    /// A 31-bit number that distinguishes a node from earlier ones with the same inode number; 0 if the
    /// store has none. For an open file this needs no lookup by name, which on a distributed store takes
    /// as long as creating one.
    pub fn generation(&self, target: Target) -> u32 {
        match target {
            _ if !self.has_generations => 0,
            Target::Entry(parent, name) => parent.store.generation(&name.0),
            Target::File(file) => file.generation(),
            Target::Dir(_) => target.node().map_or(0, |node| node.generation()),
        }
    }

    /// Whether the store distinguishes inodes with the same number. FUSE does not, and asking it whether
    /// an open directory was removed is useless.
    pub fn has_generations(&self) -> bool {
        self.has_generations
    }

    /// Opens a subdirectory.
    ///
    /// # Errors
    /// ENOTDIR for anything else; `Damaged` if the id file is missing or does not authenticate.
    pub fn open_dir(&self, parent: &Dir, name: &StoredName) -> Result<Arc<Dir>> {
        self.note_met_sidecar(parent, &name.0);
        let look = || self.with_id(parent.store.open_dir(&name.0)?);
        // A directory that lost its id is not the one that an anchor knows.
        let identity = |dir: &Dir| Ok(Some(dir.id.map_or(AnchoredIdentity::Any, AnchoredIdentity::Dir)));
        let dir = self.compared_entry(parent, name, look, identity)?;
        self.met(&dir)?;
        Ok(Arc::new(dir))
    }

    /// A directory that no longer has a name: it has attributes but no entries.
    ///
    /// # Errors
    /// ENOTDIR for anything else; otherwise the store's error.
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
