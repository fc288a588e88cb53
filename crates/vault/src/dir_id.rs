//! The id file of a directory: reading it, creating it, and removing it together with the directory.

use super::{
    Dir, Vault,
    keys::{Former, KeyRing},
    names::{NamesIn, StoredPlace, is_set_aside, names_in, random_name, read_small},
    ownerless::drop_ownerless,
    sharing::{SharingRule, holds},
    taken_id::TakenId,
};
use content::{Damage, Error, Result};
use format::{
    dir_id::DirId,
    layout,
    name::{Class, DIR_ID_NAME, LONG, LOST, is_litter},
};
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};
use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt, sync::Arc};
use store::{BackingFile, DirFile, Flock, Listed, StoreDir};

/// Maximum depth to which directories without ids are searched: each level holds a descriptor.
const DEEPEST: usize = 64;

/// State of a directory's id file.
enum FoundId {
    Id(DirId),
    /// Authenticates under the former key.
    Former(DirId, Arc<Former>),
    /// A file without content. Its creation was cut short before anything in the directory was durable.
    Blank,
    Missing,
    Damaged(&'static str),
}

impl Vault {
    /// Opens a directory and reads its id.
    ///
    /// A crash can leave a new directory with a blank id file, or empty and without one. It then gets
    /// another id: nothing durable depended on the lost one. If nothing may be written, it reads as
    /// empty. A directory with entries but no id is damaged and left alone, because the file may yet be
    /// restored. There are two exceptions, which a crash can cause. If the id file is blank and no entry
    /// has content, the entries are set aside. If the file is missing and there are only directories
    /// below, as some stores leave new ones behind, the directory reads as empty and may be removed.
    ///
    /// # Errors
    /// `Damaged`, or the store's error.
    pub(super) fn with_id(&self, store: StoreDir) -> Result<Dir> {
        let mut dir = Dir::new(store, None);
        let standing = self.dir_ids.read();
        let mut found = self.find_id(&dir)?;
        drop(standing);
        if self.is_shared() && matches!(found, FoundId::Blank | FoundId::Missing) {
            self.await_id(&dir)?;
            found = self.find_id(&dir)?;
        }
        dir.id = match found {
            FoundId::Id(id) => {
                let content = self.keys().dir_ids.encode(&id);
                self.note_met(&dir.store, OsStr::new(DIR_ID_NAME), &content);
                Some(id)
            }
            FoundId::Former(id, former) => {
                dir.id = Some(id);
                if !self.read_only() {
                    self.renew_dir(&dir, &id, &former);
                }
                Some(id)
            }
            FoundId::Damaged(reason) => return Err(damaged(&dir, reason)),
            FoundId::Blank | FoundId::Missing => self.replace_id(&dir)?,
        };
        Ok(dir)
    }

    /// Opens the vault's root and reads its id. The id was durable before the vault existed, so a crash
    /// can leave the root without one only if the root is empty.
    ///
    /// # Errors
    /// Those of `with_id`.
    pub(super) fn root_with_id(&self, store: StoreDir) -> Result<Dir> {
        let root = Dir::new(store, None);
        let lost = matches!(self.find_id(&root)?, FoundId::Blank | FoundId::Missing);
        let node = root.store.itself();
        let entries = |listed: Vec<Listed>| listed.iter().any(|entry| self.is_entry(&entry.name));
        if lost && entries(self.with_access(&node, 0o500, || root.store.list())?) {
            return Err(damaged(&root, "the root's id file is blank or missing"));
        }
        self.with_id(root.store.try_clone()?)
    }

    /// Refuses a root that contains encrypted names of which none authenticates: its id is not the
    /// original one. Only `check` opens such a root, to repair it.
    ///
    /// # Errors
    /// `Damaged`, or the store's error.
    pub fn require_a_name(&self) -> Result<()> {
        self.require_a_name_under(&self.keys)
    }

    /// Like `require_a_name`, with keys that are not in use yet.
    ///
    /// # Errors
    /// Those of `require_a_name`.
    pub(super) fn require_a_name_under(&self, keys: &KeyRing) -> Result<()> {
        let Some(id) = self.root.id else { return Ok(()) };
        match self.with_access(&self.root.store.itself(), 0o500, || names_in(keys, &self.root, &id))? {
            NamesIn::None | NamesIn::Authentic => Ok(()),
            NamesIn::Foreign => Err(damaged(&self.root, "none of the names in it authenticates")),
        }
    }

    /// Gives a directory a new id if it may have one; `None` if it gets none now and reads as empty.
    fn replace_id(&self, dir: &Dir) -> Result<Option<DirId>> {
        let _alone = self.dir_ids.write();
        self.put_ids_back(&dir.store)?;
        // Another thread may have done this already.
        let found = self.find_id(dir)?;
        if let FoundId::Id(id) | FoundId::Former(id, _) = found {
            return Ok(Some(id));
        }
        let node = dir.store.itself();
        let listed = self.with_access(&node, 0o500, || dir.store.list())?;
        let lost = listed.iter().filter(|entry| self.is_entry(&entry.name)).count();
        let id = dir.stored_path(OsStr::new(DIR_ID_NAME));
        match found {
            _ if lost == 0 => {}
            FoundId::Blank if !self.is_hollow(&dir.store, DEEPEST, true) => {
                return Err(damaged(dir, "the directory's id file is blank"));
            }
            FoundId::Blank => {
                log::error!("{id}: blank; its {lost} entries have no content and are set aside")
            }
            _ if !self.is_hollow(&dir.store, DEEPEST, false) => {
                return Err(damaged(dir, "the directory's id file is missing"));
            }
            _ => {
                self.complain(format!("{id}: missing; the directories in it are empty and are not listed"));
                return Ok(None);
            }
        }
        // Another machine may still know the directory's id.
        if self.read_only() || self.is_shared() && holds(SharingRule::KeepIds) {
            return Ok(None);
        }
        if lost > 0 && self.keys().names.depend_on_directory() {
            self.with_access(&node, 0o700, || self.set_aside(dir, &listed))?;
        }
        let opened = DirFile::new(self.with_access(&node, 0o400, || node.reopen(OFlags::RDONLY))?);
        self.with_access(&node, 0o700, || drop_ownerless(&opened))?;
        let id = DirId::random()?;
        let content = self.keys().dir_ids.encode(&id);
        self.with_access(&node, 0o700, || self.write_small(dir, OsStr::new(DIR_ID_NAME), &content))?;
        Ok(Some(id))
    }

    /// Moves entries whose id is lost, and their sidecars, into a separate directory: under another id
    /// they are meaningless.
    fn set_aside(&self, dir: &Dir, listed: &[Listed]) -> io::Result<()> {
        let name = random_name(LOST)?;
        dir.store.mkdir(&name, 0o700)?;
        let aside = dir.store.open_dir(&name)?;
        for entry in listed.iter().filter(|e| self.is_entry(&e.name) || self.is_sidecar(&e.name)) {
            dir.store.rename(&entry.name, &aside, &entry.name)?;
        }
        Ok(())
    }

    /// Gives an id to a directory that is not in place yet.
    pub(super) fn make_id(&self, dir: &Dir) -> io::Result<()> {
        let content = self.keys().dir_ids.encode(&DirId::random()?);
        self.make_small(dir, OsStr::new(DIR_ID_NAME), &content)?;
        self.note_small(&dir.store, OsStr::new(DIR_ID_NAME), &content)
    }

    fn find_id(&self, dir: &Dir) -> Result<FoundId> {
        let node = dir.store.itself();
        match self.with_access(&node, 0o100, || read_small(dir, OsStr::new(DIR_ID_NAME))) {
            Ok(content) if is_blank(&content) => Ok(FoundId::Blank),
            Ok(content) => Ok(match self.keys().dir_ids.decode(&content) {
                Ok(id) => FoundId::Id(id),
                Err(_) => self.find_former_id(&content),
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(FoundId::Missing),
            Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                Ok(FoundId::Damaged("the directory's id file is a link"))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn find_former_id(&self, content: &[u8]) -> FoundId {
        let id = self.keys.former().and_then(|former| Some((former.keys.open_dir_id(content).ok()?, former)));
        match id {
            Some((id, former)) => FoundId::Former(id, former),
            None => FoundId::Damaged("the directory's id does not authenticate"),
        }
    }

    /// Removes the directory `dir`, which `place` names, if it contains only internal files of the
    /// vault. `remove` removes the directory itself, or replaces it; if that fails, the directory keeps
    /// its id.
    ///
    /// The caller holds the lock for long names, because a sidecar may be about to get its name. In a
    /// shared vault it also holds `dir`'s lock.
    ///
    /// # Errors
    /// The error of `remove`, or ENOTEMPTY if the directory contains anything else.
    pub(super) fn take_away(
        &self,
        (parent, place): (&Dir, &StoredPlace),
        (dir, locked): (&Dir, Option<Flock>),
        remove: impl FnOnce() -> io::Result<()>,
    ) -> Result<()> {
        let _alone = self.dir_ids.write();
        let node = dir.store.itself();
        let taken = TakenId::new(dir, parent)?;
        let id = match self.with_access(&node, 0o700, || self.strip(dir, || taken.take())) {
            // The directory stays; but call `remove` anyway, because an error that precedes this one
            // takes priority.
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => return Ok(remove()?),
            stripped => stripped?,
        };
        let removed = remove();
        // In a shared vault, another machine may have renamed it just now.
        let stays = removed.is_err() || self.is_shared() && !dir.is_gone();
        match id {
            Some(id) if stays => self.return_id(taken, &id),
            Some(id) => {
                if self.anchor.is_some()
                    && let Ok(gone) = self.keys.open(|keys| keys.open_dir_id(&id))
                {
                    self.directory_went(&gone, parent, &place.name);
                }
                self.list_of_dir_went(&id, &node, &parent.store);
                drop(locked);
                taken.forget();
            }
            // An id file, if there was one, could not be read.
            None if stays => drop(taken.put_back()),
            None => taken.forget(),
        }
        Ok(removed?)
    }

    /// Removes the vault's internal files, the id file last with `take_id`, and returns the id file's
    /// content.
    fn strip(&self, dir: &Dir, take_id: impl FnOnce() -> io::Result<()>) -> io::Result<Option<Vec<u8>>> {
        let mut listed = dir.store.list()?;
        let mut id = read_small(dir, OsStr::new(DIR_ID_NAME)).ok();
        let (strays, rest): (Vec<_>, Vec<_>) = listed.iter().partition(|entry| self.is_stray(&entry.name));
        let is_in_way = |entry: &&&Listed| !is_litter(entry.name.as_bytes());
        if rest.iter().all(|entry| self.is_own(&entry.name)) {
            let in_way: Vec<_> = strays.iter().filter(is_in_way).map(|entry| &entry.name).collect();
            if !in_way.is_empty() {
                let path = dir.stored_path(OsStr::new(""));
                // Debug formatting escapes characters that would break the line.
                self.complain(format!("{path}: cannot be removed, because of another program's {in_way:?}"));
                return Err(Errno::NOTEMPTY.into());
            }
            strays.iter().try_for_each(|entry| match entry.kind {
                FileType::Directory => drop_dir(&dir.store, entry, DEEPEST),
                _ => dir.store.unlink(&entry.name),
            })?;
            listed.retain(|entry| self.is_own(&entry.name));
        }
        if !listed.iter().all(|entry| self.is_own(&entry.name)) {
            let has_id = listed.iter().any(|entry| entry.name == DIR_ID_NAME);
            let blank = id.as_ref().is_some_and(|content| is_blank(content));
            if has_id && !blank || !self.is_hollow(&dir.store, DEEPEST, blank) {
                return Err(Errno::NOTEMPTY.into());
            }
            clear(&dir.store, DEEPEST)?;
            listed.clear();
            id = None;
        }
        for entry in listed.iter().filter(|entry| entry.name != DIR_ID_NAME) {
            if is_set_aside(entry) {
                self.drop_set_aside(&dir.store, entry)?;
            } else {
                remove_left_over(&dir.store, entry)?;
            }
        }
        match take_id() {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(id),
        }
    }

    /// Removes a directory with entries that were set aside.
    fn drop_set_aside(&self, store: &StoreDir, entry: &Listed) -> io::Result<()> {
        let aside = store.open_dir(&entry.name)?;
        if !self.is_hollow(&aside, DEEPEST, true) {
            return Err(Errno::NOTEMPTY.into());
        }
        clear(&aside, DEEPEST)?;
        store.rmdir(&entry.name)
    }

    /// Whether there are only directories here and below, down to `depth`; with `files`, also files that
    /// were never committed. Nothing of this can be missed.
    fn is_hollow(&self, store: &StoreDir, depth: usize, files: bool) -> bool {
        let hollow = |entry: &Listed| match entry.kind {
            FileType::Directory => {
                let inner = || store.open_dir(&entry.name);
                depth > 0 && inner().is_ok_and(|inner| self.is_hollow(&inner, depth - 1, files))
            }
            FileType::RegularFile if files && self.is_entry(&entry.name) => {
                is_never_committed(store, &entry.name).unwrap_or(false)
            }
            _ => self.is_own(&entry.name),
        };
        store.list().is_ok_and(|listed| listed.iter().all(hollow))
    }

    /// Whether a name cannot be the vault's: another program created it.
    fn is_stray(&self, stored: &OsStr) -> bool {
        !self.is_own(stored) && !self.keys().names.has_form(stored.as_bytes())
    }

    fn is_own(&self, stored: &OsStr) -> bool {
        self.is_left_over(stored) || stored == DIR_ID_NAME
    }

    /// Whether a name is a sidecar, or something unfinished or set aside: it may be removed from a
    /// directory without entries.
    fn is_left_over(&self, stored: &OsStr) -> bool {
        match self.keys().names.classify(stored.as_bytes()) {
            Class::Temporary => true,
            Class::Own => self.is_sidecar(stored) || stored.as_bytes().starts_with(LOST.as_bytes()),
            Class::Entry | Class::Long => false,
        }
    }

    /// Whether a name is a long name's sidecar, and not another program's copy of one.
    pub(super) fn is_sidecar(&self, stored: &OsStr) -> bool {
        let (names, bytes) = (&self.keys().names, stored.as_bytes());
        bytes.starts_with(LONG.as_bytes()) && names.classify(bytes) == Class::Own && names.has_form(bytes)
    }
}

/// Removes everything in a directory, down to `depth`.
///
/// # Errors
/// ENOTEMPTY if the tree is deeper; otherwise the store's error.
fn clear(store: &StoreDir, depth: usize) -> io::Result<()> {
    for entry in store.list()? {
        match entry.kind {
            FileType::Directory => drop_dir(store, &entry, depth.checked_sub(1).ok_or(Errno::NOTEMPTY)?)?,
            _ => store.unlink(&entry.name)?,
        }
    }
    Ok(())
}

/// Removes a directory and its content, as `clear` does.
fn drop_dir(store: &StoreDir, entry: &Listed, depth: usize) -> io::Result<()> {
    clear(&store.open_dir(&entry.name)?, depth)?;
    store.rmdir(&entry.name)
}

/// Removes a sidecar, an unfinished file, or an unfinished directory that contains only its id file.
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

fn is_blank(id: &[u8]) -> bool {
    id.iter().all(|&byte| byte == 0)
}

/// Whether a stored file reads as empty because no version was ever begun: it is shorter than a page, or
/// its commit records are zeros.
fn is_never_committed(store: &StoreDir, name: &OsStr) -> io::Result<bool> {
    let file = DirFile::new(store.open_file(name, OFlags::RDONLY)?);
    let mut records = [0; layout::GROUP0_ENTRIES as usize];
    file.read_at(&mut records, 0)?;
    Ok(file.len()? < layout::PAGE || records == [0; layout::GROUP0_ENTRIES as usize])
}

fn damaged(dir: &Dir, reason: &'static str) -> Error {
    Damage { what: dir.stored_path(OsStr::new(DIR_ID_NAME)), reason }.into()
}
