//! Directories of the vault's own in its root, whose files belong to nodes elsewhere: long targets of links, lists of attributes.

use super::{Dir, Result, Vault, attr::permissions};
use crate::store::{DirStream, Listed, StoreDir, is_dots};
use rustix::fs::FileType;
use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io,
};

/// Names of the files that belong to an entry of a directory of the store.
pub(super) type FilesOf<'a> = dyn FnMut(&StoreDir, &Listed) -> io::Result<Vec<OsString>> + 'a;

/// A directory that is being read.
struct Level {
    dir: StoreDir,
    names: DirStream,
    /// Directories in it that were listed, and are still to be read.
    inner: Vec<OsString>,
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
        self.strike(&mut left, files_of)?;
        Ok(Some((Dir::new(dir, None), left.into_iter().collect())))
    }

    /// Takes out of `left` what belongs to an entry of the store. Not by recursion: the store may be deeper than the stack.
    fn strike(&self, left: &mut HashSet<OsString>, files_of: &mut FilesOf) -> io::Result<()> {
        let mut open = vec![self.level(self.root.store.try_clone()?)?];
        while let Some(Level { dir, names, inner }) = open.last_mut()
            && !left.is_empty()
        {
            if let Some(name) = inner.pop() {
                let below = self.with_access(&dir.itself(), 0o100, || dir.open_dir(&name))?;
                open.push(self.level(below)?);
                continue;
            }
            let listed = names.next(dir)?;
            if listed.is_empty() {
                open.pop();
                continue;
            }
            for (_, entry) in listed.into_iter().filter(|(_, entry)| !is_dots(&entry.name)) {
                for file in files_of(dir, &entry)? {
                    left.remove(&file);
                }
                if entry.kind == FileType::Directory {
                    inner.push(entry.name);
                }
            }
        }
        Ok(())
    }

    fn level(&self, dir: StoreDir) -> io::Result<Level> {
        let names = self.with_access(&dir.itself(), 0o500, || dir.stream())?;
        Ok(Level { dir, names, inner: Vec::new() })
    }
}
