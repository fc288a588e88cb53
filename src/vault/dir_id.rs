//! The id file of a directory: reading it, making it, and taking it away with the directory.

use super::{Damage, Dir, Error, Result, Vault, names::read_small};
use crate::{
    format::{
        dir_id::DirId,
        name::{Class, DIR_ID_NAME, LONG, SIDECAR},
    },
    store::{Listed, StoreDir},
};
use rustix::{fs::FileType, io::Errno};
use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt};

/// How deep directories without ids are looked through: each level holds a descriptor.
const DEEPEST: usize = 64;

/// What stands where an id file should.
enum Found {
    Id(DirId),
    /// A file without content. Its making was cut short before anything in the directory was durable.
    Blank,
    Missing,
    Damaged(&'static str),
}

impl Vault {
    /// The directory with its id.
    ///
    /// A crash can leave a new directory's id file blank, or the directory without one and empty. It then
    /// gets another id: nothing that was promised to be durable needed the lost one. Where nothing may be
    /// written it reads as empty. A directory with entries and no id file is damaged, and left alone: the
    /// file may yet be brought back. Only where there is nothing but directories below it, as some stores
    /// leave new ones behind, it reads as empty and may be removed.
    ///
    /// # Errors
    /// `Damaged`, or the store's.
    pub(super) fn with_id(&self, store: StoreDir) -> Result<Dir> {
        let mut dir = Dir::new(store, None);
        let standing = self.dir_ids.read();
        let found = self.find_id(&dir)?;
        drop(standing);
        dir.id = match found {
            Found::Id(id) => Some(id),
            Found::Damaged(reason) => return Err(damaged(&dir, reason)),
            Found::Blank | Found::Missing => self.replace_id(&dir)?,
        };
        Ok(dir)
    }

    /// Gives a directory a new id if it may have one; `None` if nothing may be written.
    fn replace_id(&self, dir: &Dir) -> Result<Option<DirId>> {
        let _alone = self.dir_ids.write();
        // Another thread may have been faster.
        let found = self.find_id(dir)?;
        if let Found::Id(id) = found {
            return Ok(Some(id));
        }
        let node = dir.store.itself();
        let listed = self.with_access(&node, 0o500, || dir.store.list())?;
        let lost = listed.iter().filter(|entry| self.is_entry(&entry.name)).count();
        if lost > 0 {
            if !matches!(found, Found::Blank) {
                if !self.is_hollow(&dir.store, DEEPEST) {
                    return Err(damaged(dir, "the directory's id file is missing"));
                }
                let id = dir.stored_path(OsStr::new(DIR_ID_NAME));
                self.complain(format!("{id}: missing; the directories in it are empty, and not shown"));
                return Ok(None);
            }
            log::error!("{}: blank, {lost} names of it are lost", dir.stored_path(OsStr::new(DIR_ID_NAME)));
        }
        if self.read_only() {
            return Ok(None);
        }
        let id = DirId::random()?;
        let content = self.keys.dir_ids.encode(&id);
        self.with_access(&node, 0o700, || self.write_small(dir, OsStr::new(DIR_ID_NAME), &content))?;
        Ok(Some(id))
    }

    /// Gives an id to a directory that is not in place yet.
    pub(super) fn make_id(&self, dir: &Dir) -> io::Result<()> {
        let content = self.keys.dir_ids.encode(&DirId::random()?);
        self.make_small(dir, OsStr::new(DIR_ID_NAME), &content)?;
        self.pending.add(&dir.store, DIR_ID_NAME.into());
        Ok(())
    }

    fn find_id(&self, dir: &Dir) -> Result<Found> {
        let node = dir.store.itself();
        match self.with_access(&node, 0o100, || read_small(dir, OsStr::new(DIR_ID_NAME))) {
            Ok(content) if content.iter().all(|&byte| byte == 0) => Ok(Found::Blank),
            Ok(content) => Ok(match self.keys.dir_ids.decode(&content) {
                Ok(id) => Found::Id(id),
                Err(_) => Found::Damaged("the directory's id does not authenticate"),
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Found::Missing),
            Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                Ok(Found::Damaged("the directory's id file is a link"))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Removes the directory `name`, empty but for files of the vault's own. `remove` is what takes the
    /// directory itself away (or replaces it); if it fails, the directory keeps its id.
    ///
    /// The caller holds the lock of long names: a sidecar may be about to get its name.
    ///
    /// # Errors
    /// What `remove` says: ENOTEMPTY, or what comes before it, if anything else is in it.
    pub(super) fn take_away(
        &self,
        parent: &Dir,
        name: &OsStr,
        remove: impl FnOnce() -> io::Result<()>,
    ) -> Result<()> {
        let _alone = self.dir_ids.write();
        let dir = Dir::new(parent.store.open_dir(name)?, None);
        let node = dir.store.itself();
        let id = match self.with_access(&node, 0o700, || self.strip(&dir)) {
            // It stays; but the store may have an error that comes before that.
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => return Ok(remove()?),
            stripped => stripped?,
        };
        let removed = remove();
        if removed.is_err()
            && let Some(id) = id
            && let Err(e) =
                self.with_access(&node, 0o700, || self.write_small(&dir, OsStr::new(DIR_ID_NAME), &id))
        {
            log::error!("{}: cannot be put back: {e}", dir.stored_path(OsStr::new(DIR_ID_NAME)));
        }
        Ok(removed?)
    }

    /// Takes out the vault's own files, the id file last, and returns what that held.
    fn strip(&self, dir: &Dir) -> io::Result<Option<Vec<u8>>> {
        let mut listed = dir.store.list()?;
        if !listed.iter().all(|entry| self.is_own(&entry.name)) {
            if listed.iter().any(|entry| entry.name == DIR_ID_NAME) || !self.is_hollow(&dir.store, DEEPEST) {
                return Err(Errno::NOTEMPTY.into());
            }
            clear(&dir.store)?;
            listed.clear();
        }
        let id = read_small(dir, OsStr::new(DIR_ID_NAME)).ok();
        for entry in listed.iter().filter(|entry| entry.name != DIR_ID_NAME) {
            remove_left_over(&dir.store, entry)?;
        }
        match dir.store.unlink(OsStr::new(DIR_ID_NAME)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(id),
        }
    }

    /// Whether nothing but directories is in this one and below, as deep as `depth`: none of it can be missed.
    fn is_hollow(&self, store: &StoreDir, depth: usize) -> bool {
        let hollow = |entry: &Listed| match entry.kind {
            FileType::Directory => {
                depth > 0 && store.open_dir(&entry.name).is_ok_and(|inner| self.is_hollow(&inner, depth - 1))
            }
            _ => self.is_own(&entry.name),
        };
        store.list().is_ok_and(|listed| listed.iter().all(hollow))
    }

    fn is_own(&self, stored: &OsStr) -> bool {
        self.is_left_over(stored) || stored == DIR_ID_NAME
    }

    /// Whether a name is a sidecar or something unfinished: in a directory without entries it can go.
    fn is_left_over(&self, stored: &OsStr) -> bool {
        let bytes = stored.as_bytes();
        match self.keys.names.classify(bytes) {
            Class::Temporary => true,
            Class::Own => bytes.starts_with(LONG.as_bytes()) && bytes.ends_with(SIDECAR.as_bytes()),
            Class::Entry | Class::Long => false,
        }
    }
}

/// Removes all that is in a hollow directory.
fn clear(store: &StoreDir) -> io::Result<()> {
    for entry in store.list()? {
        if entry.kind == FileType::Directory {
            clear(&store.open_dir(&entry.name)?)?;
            store.rmdir(&entry.name)?;
        } else {
            store.unlink(&entry.name)?;
        }
    }
    Ok(())
}

/// Removes a sidecar, an unfinished file, or an unfinished directory with nothing but its id file.
pub(super) fn remove_left_over(store: &StoreDir, entry: &Listed) -> io::Result<()> {
    if entry.kind != FileType::Directory {
        return store.unlink(&entry.name);
    }
    let inner = store.open_dir(&entry.name)?;
    match inner.unlink(OsStr::new(DIR_ID_NAME)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => store.rmdir(&entry.name),
    }
}

fn damaged(dir: &Dir, reason: &'static str) -> Error {
    Damage { what: dir.stored_path(OsStr::new(DIR_ID_NAME)), reason }.into()
}
