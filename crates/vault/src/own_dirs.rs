//! The vault's own directories in its root, whose files belong to nodes elsewhere: long link targets and
//! lists of attributes.

use super::{
    Dir, Vault,
    attr::permissions,
    descent::{Visitor, descend},
};
use content::Result;
use rustix::fs::FileType;
use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io,
    sync::Arc,
};
use store::{Listed, StoreDir, is_dots};

/// Returns the names of the files that belong to an entry of a directory of the store.
pub(super) type FilesOf<'a> = dyn FnMut(&StoreDir, &Listed) -> io::Result<Vec<OsString>> + 'a;

/// A walk that finds files that belong to no entry.
struct Strike<'a, 'f> {
    vault: &'a Vault,
    /// Files for which no owner has been seen so far.
    left: &'a mut HashSet<OsString>,
    files_of: &'a mut FilesOf<'f>,
}

impl Vault {
    /// Opens the vault's own directory `name`, if there is one.
    pub(super) fn own_dir(&self, name: &str) -> io::Result<Option<StoreDir>> {
        match self.root.store.open_dir(OsStr::new(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Opens the vault's own directory `name`, and creates it if it is missing. It gets the owner and
    /// mode of the vault's root, so that every user of the root can use it.
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
        // Without root privileges the directory belongs to this process's user.
        let _ = dir.itself().chown(Some(above.st_uid), Some(above.st_gid));
        dir.itself().chmod(permissions(above.st_mode))?;
        root.sync()?;
        Ok(dir)
    }

    /// Opens the directory `name` and lists the files in it that belong to nothing in the store, which a
    /// crash left behind. `None` if there is no such directory.
    ///
    /// # Errors
    /// The store's, including the case that some part of the store cannot be read.
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
