//! Lookups of nodes by number alone. The kernel has the number from a file handle, and does not know the
//! node, or has forgotten it.

use super::{
    dir_resolve::TRIES,
    errno,
    forgotten::Place,
    inodes::{self, Id, ROOT},
    names::Entry,
    server::Server,
};
use content::Result;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, sync::Arc};
use vault::{Dir, Kind, StoredName, Target};

/// A lookup by node number. The kernel encodes it as a name that no entry can have.
#[derive(Debug, Clone, Copy)]
pub enum ByNumber {
    /// ".": the node itself, which need not be a directory.
    Itself,
    /// "..": the directory that contains the node.
    Above,
}

impl ByNumber {
    /// The lookup that a name represents; `None` for the name of an entry.
    pub fn of(name: &OsStr) -> Option<Self> {
        match name.as_bytes() {
            b"." => Some(ByNumber::Itself),
            b".." => Some(ByNumber::Above),
            _ => None,
        }
    }
}

/// Maximum number of nested directories that a search holds open. Anything deeper is not found.
const DEEPEST: usize = 256;

/// A directory in a search: its number, the open directory, and its subdirectories not yet visited.
struct LookupLevel {
    number: u64,
    dir: Arc<Dir>,
    inner: Vec<(StoredName, u64)>,
}

impl Server {
    /// Finds a node by number.
    ///
    /// # Errors
    /// ESTALE or ENOENT if it does not exist.
    pub fn by_number(&self, number: u64, what: ByNumber) -> Result<Entry> {
        match what {
            ByNumber::Itself => self.node(number),
            ByNumber::Above => self.node(self.parent(number)?),
        }
    }

    fn node(&self, number: u64) -> Result<Entry> {
        if number == ROOT {
            let stat = self.vault.stat(Target::Dir(&self.vault.root()))?;
            return Ok(Entry { id: Id { number, generation: 0 }, stat });
        }
        for _ in 0..TRIES {
            if let Some((parent, dir, stored)) = self.place(number)?
                && let Some(entry) = self.at_place(number, parent, &dir, stored)?
            {
                return Ok(entry);
            }
        }
        Err(errno::stale())
    }

    /// Counts a lookup of the node expected at this place; `None` if it is not there.
    fn at_place(&self, number: u64, parent: u64, dir: &Dir, stored: StoredName) -> Result<Option<Entry>> {
        let there = |stored: &StoredName| match self.vault.stat(Target::Entry(dir, stored)) {
            Ok(stat) => Ok((self.inodes.number_of(inodes::key(&stat)) == number).then_some(stat)),
            Err(e) if errno::is_no_entry(&e) => Ok(None),
            Err(e) => Err(e),
        };
        let Some(stat) = there(&stored)? else { return Ok(None) };
        let Some(id) = self.found(parent, dir, stored.clone(), &stat) else { return Ok(None) };
        // The kernel holds no lock on the directory. From here on the name changes only together with the
        // node's.
        match there(&stored) {
            Ok(Some(stat)) => Ok(Some(Entry { id, stat })),
            moved => {
                self.inodes.forget(number, 1);
                moved.map(|_| None)
            }
        }
    }

    /// The directory that contains a node, and its name there; `None` if it is being moved.
    fn place(&self, number: u64) -> Result<Option<(u64, Arc<Dir>, StoredName)>> {
        if let Ok(node) = self.inodes.get(number) {
            let name = node.names.read().any().cloned().ok_or_else(errno::stale)?;
            return Ok(Some((name.parent, self.dir(name.parent)?, name.stored)));
        }
        let parent = self.parent_of_forgotten(number)?;
        let dir = self.dir(parent)?;
        Ok(self.forgotten_child(&dir, number)?.map(|stored| (parent, dir, stored)))
    }

    fn parent(&self, number: u64) -> Result<u64> {
        match self.inodes.get(number) {
            Ok(_) if number == ROOT => Ok(ROOT),
            Ok(node) => Ok(node.names.read().any().ok_or_else(errno::stale)?.parent),
            Err(_) => self.parent_of_forgotten(number),
        }
    }

    /// The number of the directory that contains a node unknown to the kernel.
    ///
    /// # Errors
    /// ESTALE if there is no such node.
    pub fn parent_of_forgotten(&self, number: u64) -> Result<u64> {
        if !self.inodes.is_of_store(number) {
            return Err(errno::stale());
        }
        let forgotten = &self.inodes.forgotten;
        let place = match forgotten.place(number) {
            Place::Unknown => forgotten.search(number, !self.changes_alone(), || self.search(number))?,
            known => known,
        };
        match place {
            Place::In(parent) => Ok(parent),
            Place::Nowhere | Place::Unknown => Err(errno::stale()),
        }
    }

    /// The name of such a node in the directory expected to contain it; `None` if it is not there.
    pub fn forgotten_child(&self, dir: &Dir, number: u64) -> Result<Option<StoredName>> {
        let child = self.vault.child(dir, number)?;
        if child.is_none() {
            self.inodes.forgotten.is_not_there(number);
        }
        Ok(child)
    }

    /// Walks the store and records the parent of every node; the path to `wanted` is always recorded.
    fn search(&self, wanted: u64) -> Result<()> {
        let mut way = vec![self.level(ROOT, self.vault.root(), wanted, &[])?];
        while let Some(level) = way.last_mut() {
            let Some((stored, number)) = level.inner.pop() else {
                way.pop();
                continue;
            };
            let dir = level.dir.clone();
            let inner = match way.len() < DEEPEST {
                true => {
                    self.vault.open_dir(&dir, &stored).and_then(|dir| self.level(number, dir, wanted, &way))
                }
                false => Err(errno::stale()),
            };
            match inner {
                Ok(level) => way.push(level),
                // The contents of this directory remain unknown.
                Err(_) => self.inodes.forgotten.note_lost(),
            }
        }
        Ok(())
    }

    /// Records the contents of a directory; `way` is the path to it.
    fn level(&self, number: u64, dir: Arc<Dir>, wanted: u64, way: &[LookupLevel]) -> Result<LookupLevel> {
        let mut inner = Vec::new();
        let device = self.vault.stat(Target::Dir(&dir))?.dev;
        let forgotten = &self.inodes.forgotten;
        self.vault.each_child(&dir, &mut |stored, kind, inode| {
            if !self.inodes.keeps_number((device, inode)) {
                return;
            }
            forgotten.note_seen(inode, number);
            if inode == wanted {
                let numbers: Vec<u64> = way.iter().map(|level| level.number).chain([number, inode]).collect();
                forgotten.keep_path(&numbers);
            }
            if kind == Kind::Dir {
                inner.push((stored, inode));
            }
        })?;
        Ok(LookupLevel { number, dir, inner })
    }
}
