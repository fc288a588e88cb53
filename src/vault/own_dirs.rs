//! Directories of the vault's own in its root, whose files belong to nodes elsewhere: long targets of links, lists of attributes.

use super::{
    Dir, Result, Vault,
    attr::permissions,
    descent::{Visitor, descend},
};
use crate::store::{Listed, StoreDir, is_dots};
use rustix::fs::FileType;
use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io,
    sync::Arc,
};

/// Names of the files that belong to an entry of a directory of the store.
pub(super) type FilesOf<'a> = dyn FnMut(&StoreDir, &Listed) -> io::Result<Vec<OsString>> + 'a;

/// A search for files that belong to nothing.
struct Strike<'a, 'f> {
    vault: &'a Vault,
    /// Files that belong to nothing seen so far.
    left: &'a mut HashSet<OsString>,
    files_of: &'a mut FilesOf<'f>,
}

impl Vault {
    /// The directory `name`, if there is one.
    pub(super) fn own_dir(&self, name: &str) -> io::Result<Option<StoreDir>> {
        match self.root.store.open_dir(OsStr::new(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// The directory `name`, which is made if it is not there: whoever may use the root may use it.
    pub(super) fn make_own_dir(&self, name: &str) -> io::Result<StoreDir> {
        if let Some(dir) = self.own_dir(name)? {
            return Ok(dir);
        }
        let (root, name) = (&self.root.store, OsStr::new(name));
        match root.mkdir(name, 0o700) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let dir = root.open_dir(name)?;
        let above = root.itself().stat()?;
        // Without root's rights it belongs to this process's user.
        let _ = dir.itself().chown(Some(above.st_uid), Some(above.st_gid));
        dir.itself().chmod(permissions(above.st_mode))?;
        root.sync()?;
        Ok(dir)
    }

    /// The directory `name`, and the files in it that belong to nothing in the store: a crash left them. `None` if there is no
    /// such directory.
    ///
    /// # Errors
    /// The store's, also if not everything can be seen.
    pub(super) fn left_in(&self, name: &str, files_of: &mut FilesOf) -> Result<Option<(Dir, Vec<OsString>)>> {
        let Some(dir) = self.own_dir(name)? else { return Ok(None) };
        let listed = self.with_access(&dir.itself(), 0o500, || dir.list())?;
        let mut left: HashSet<_> = listed.into_iter().map(|entry| entry.name).collect();
        let top = Arc::new(Dir::new(self.root.store.try_clone()?, None));
        descend(&mut Strike { vault: self, left: &mut left, files_of }, &top)?;
        Ok(Some((Dir::new(dir, None), left.into_iter().collect())))
    }
}

impl Visitor for Strike<'_, '_> {
    type Stop = io::Error;

    fn visit(&mut self, dir: &Arc<Dir>) -> io::Result<Vec<OsString>> {
        let mut inner = Vec::new();
        let mut names = self.vault.with_access(&dir.store.itself(), 0o500, || dir.store.stream())?;
        while !self.left.is_empty() {
            let listed = names.next(&dir.store)?;
            if listed.is_empty() {
                return Ok(inner);
            }
            for (_, entry) in listed.into_iter().filter(|(_, entry)| !is_dots(&entry.name)) {
                for file in (self.files_of)(&dir.store, &entry)? {
                    self.left.remove(&file);
                }
                if entry.kind == FileType::Directory {
                    inner.push(entry.name);
                }
            }
        }
        Ok(Vec::new())
    }

    fn open(&mut self, dir: &Arc<Dir>, name: OsString) -> io::Result<Option<Arc<Dir>>> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let store = self.vault.with_access(&dir.store.itself(), 0o100, || dir.store.open_dir(&name))?;
        Ok(Some(Arc::new(Dir::new(store, None))))
    }

    fn lost(&mut self, _: &Arc<Dir>, error: io::Error) -> io::Result<()> {
        Err(error)
    }
}
