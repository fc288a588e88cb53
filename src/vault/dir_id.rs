//! The id file of a directory: reading it, making it, and taking it away with the directory.

use super::{
    Damage, Dir, Error, Result, Vault,
    keys::{Former, KeyRing},
    names::{NamesIn, Place, is_set_aside, names_in, random_name, read_small},
    ownerless::drop_ownerless,
    sharing::{Rule, holds},
    taken_id::TakenId,
};
use crate::{
    format::{
        dir_id::DirId,
        layout,
        name::{Class, DIR_ID_NAME, LONG, LOST, is_litter},
    },
    store::{BackingFile, DirFile, Flock, Listed, StoreDir},
};
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};
use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt, sync::Arc};

/// How deep directories without ids are looked through: each level holds a descriptor.
const DEEPEST: usize = 64;

/// What stands where an id file should.
enum Found {
    Id(DirId),
    /// Under the former key.
    Former(DirId, Arc<Former>),
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
    /// written it reads as empty. A directory with entries and no id is damaged, and left alone: the file may
    /// yet be brought back. Only what a crash leaves is not in the way: entries under a blank file, none of
    /// which has content, are set aside; and where there is nothing but directories below one without the
    /// file, as some stores leave new ones behind, it reads as empty and may be removed.
    ///
    /// # Errors
    /// `Damaged`, or the store's.
    pub(super) fn with_id(&self, store: StoreDir) -> Result<Dir> {
        let mut dir = Dir::new(store, None);
        let standing = self.dir_ids.read();
        let mut found = self.find_id(&dir)?;
        drop(standing);
        if self.is_shared() && matches!(found, Found::Blank | Found::Missing) {
            self.await_id(&dir)?;
            found = self.find_id(&dir)?;
        }
        dir.id = match found {
            Found::Id(id) => {
                let content = self.keys().dir_ids.encode(&id);
                self.note_met(&dir.store, OsStr::new(DIR_ID_NAME), &content);
                Some(id)
            }
            Found::Former(id, former) => {
                dir.id = Some(id);
                if !self.read_only() {
                    self.renew_dir(&dir, &id, &former);
                }
                Some(id)
            }
            Found::Damaged(reason) => return Err(damaged(&dir, reason)),
            Found::Blank | Found::Missing => self.replace_id(&dir)?,
        };
        Ok(dir)
    }

    /// The vault's root with its id. It was durable before there was a vault: without it nothing but an empty
    /// root is as a crash can leave it.
    ///
    /// # Errors
    /// As `with_id`.
    pub(super) fn root_with_id(&self, store: StoreDir) -> Result<Dir> {
        let root = Dir::new(store, None);
        let lost = matches!(self.find_id(&root)?, Found::Blank | Found::Missing);
        let node = root.store.itself();
        let entries = |listed: Vec<Listed>| listed.iter().any(|entry| self.is_entry(&entry.name));
        if lost && entries(self.with_access(&node, 0o500, || root.store.list())?) {
            return Err(damaged(&root, "the root's id file is blank or missing"));
        }
        self.with_id(root.store.try_clone()?)
    }

    /// Refuses a root in which there are encrypted names and none authenticates: its id is not the one that it had. Only `check` opens
    /// it all the same, to repair it.
    ///
    /// # Errors
    /// `Damaged`, or the store's.
    pub fn require_a_name(&self) -> Result<()> {
        self.require_a_name_under(&self.keys)
    }

    /// The same with keys that are not in use yet.
    ///
    /// # Errors
    /// As there.
    pub(super) fn require_a_name_under(&self, keys: &KeyRing) -> Result<()> {
        let Some(id) = self.root.id else { return Ok(()) };
        match self.with_access(&self.root.store.itself(), 0o500, || names_in(keys, &self.root, &id))? {
            NamesIn::None | NamesIn::Authentic => Ok(()),
            NamesIn::Foreign => Err(damaged(&self.root, "none of the names in it authenticates")),
        }
    }

    /// Gives a directory a new id if it may have one; `None` if nothing may be written.
    fn replace_id(&self, dir: &Dir) -> Result<Option<DirId>> {
        let _alone = self.dir_ids.write();
        self.put_ids_back(&dir.store)?;
        // Another thread may have been faster.
        let found = self.find_id(dir)?;
        if let Found::Id(id) | Found::Former(id, _) = found {
            return Ok(Some(id));
        }
        let node = dir.store.itself();
        let listed = self.with_access(&node, 0o500, || dir.store.list())?;
        let lost = listed.iter().filter(|entry| self.is_entry(&entry.name)).count();
        let id = dir.stored_path(OsStr::new(DIR_ID_NAME));
        match found {
            _ if lost == 0 => {}
            Found::Blank if !self.is_hollow(&dir.store, DEEPEST, true) => {
                return Err(damaged(dir, "the directory's id file is blank"));
            }
            Found::Blank => log::error!("{id}: blank; its {lost} entries have no content and are set aside"),
            _ if !self.is_hollow(&dir.store, DEEPEST, false) => {
                return Err(damaged(dir, "the directory's id file is missing"));
            }
            _ => {
                self.complain(format!("{id}: missing; the directories in it are empty, and not shown"));
                return Ok(None);
            }
        }
        // Another machine may know its id still.
        if self.read_only() || self.is_shared() && holds(Rule::KeepIds) {
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

    /// Moves entries whose id is lost, and their sidecars, into a directory of their own: under another id they
    /// mean nothing.
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

    fn find_id(&self, dir: &Dir) -> Result<Found> {
        let node = dir.store.itself();
        match self.with_access(&node, 0o100, || read_small(dir, OsStr::new(DIR_ID_NAME))) {
            Ok(content) if is_blank(&content) => Ok(Found::Blank),
            Ok(content) => Ok(match self.keys().dir_ids.decode(&content) {
                Ok(id) => Found::Id(id),
                Err(_) => self.find_former_id(&content),
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Found::Missing),
            Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                Ok(Found::Damaged("the directory's id file is a link"))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn find_former_id(&self, content: &[u8]) -> Found {
        let id = self.keys.former().and_then(|former| Some((former.keys.open_dir_id(content).ok()?, former)));
        match id {
            Some((id, former)) => Found::Former(id, former),
            None => Found::Damaged("the directory's id does not authenticate"),
        }
    }

    /// Removes the directory `dir` that stands at `place`, empty but for files of the vault's own. `remove` is what takes the
    /// directory itself away (or replaces it); if it fails, the directory keeps its id.
    ///
    /// The caller holds the lock of long names: a sidecar may be about to get its name. In a shared vault it has `dir` locked, too.
    ///
    /// # Errors
    /// What `remove` says: ENOTEMPTY, or what comes before it, if anything else is in it.
    pub(super) fn take_away(
        &self,
        (parent, place): (&Dir, &Place),
        (dir, locked): (&Dir, Option<Flock>),
        remove: impl FnOnce() -> io::Result<()>,
    ) -> Result<()> {
        let _alone = self.dir_ids.write();
        let node = dir.store.itself();
        let taken = TakenId::new(dir, parent)?;
        let id = match self.with_access(&node, 0o700, || self.strip(dir, || taken.take())) {
            // It stays; but the store may have an error that comes before that.
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => return Ok(remove()?),
            stripped => stripped?,
        };
        let removed = remove();
        // In a shared vault another machine may have given it another name just now.
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
            // If there was one, it could not be read.
            None if stays => drop(taken.put_back()),
            None => taken.forget(),
        }
        Ok(removed?)
    }

    /// Takes out the vault's own files, the id file last by `take_id`, and returns what that held.
    fn strip(&self, dir: &Dir, take_id: impl FnOnce() -> io::Result<()>) -> io::Result<Option<Vec<u8>>> {
        let mut listed = dir.store.list()?;
        let mut id = read_small(dir, OsStr::new(DIR_ID_NAME)).ok();
        let (strays, rest): (Vec<_>, Vec<_>) = listed.iter().partition(|entry| self.is_stray(&entry.name));
        let is_in_way = |entry: &&&Listed| !is_litter(entry.name.as_bytes());
        if rest.iter().all(|entry| self.is_own(&entry.name)) {
            let in_way: Vec<_> = strays.iter().filter(is_in_way).map(|entry| &entry.name).collect();
            if !in_way.is_empty() {
                let path = dir.stored_path(OsStr::new(""));
                // Debug formatting escapes what would break the line.
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

    /// Removes what was set aside, with the directory that it was in.
    fn drop_set_aside(&self, store: &StoreDir, entry: &Listed) -> io::Result<()> {
        let aside = store.open_dir(&entry.name)?;
        if !self.is_hollow(&aside, DEEPEST, true) {
            return Err(Errno::NOTEMPTY.into());
        }
        clear(&aside, DEEPEST)?;
        store.rmdir(&entry.name)
    }

    /// Whether nothing but directories is in this one and below, as deep as `depth`, and with `files` also files
    /// that were never committed: none of it can be missed.
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

    /// Whether no vault could have written a name: another program's file has it.
    fn is_stray(&self, stored: &OsStr) -> bool {
        !self.is_own(stored) && !self.keys().names.has_form(stored.as_bytes())
    }

    fn is_own(&self, stored: &OsStr) -> bool {
        self.is_left_over(stored) || stored == DIR_ID_NAME
    }

    /// Whether a name is a sidecar, something unfinished or set aside: in a directory without entries it can go.
    fn is_left_over(&self, stored: &OsStr) -> bool {
        match self.keys().names.classify(stored.as_bytes()) {
            Class::Temporary => true,
            Class::Own => self.is_sidecar(stored) || stored.as_bytes().starts_with(LOST.as_bytes()),
            Class::Entry | Class::Long => false,
        }
    }

    /// Whether a name is that of a long name's sidecar, and not that of another program's copy.
    pub(super) fn is_sidecar(&self, stored: &OsStr) -> bool {
        let (names, bytes) = (&self.keys().names, stored.as_bytes());
        bytes.starts_with(LONG.as_bytes()) && names.classify(bytes) == Class::Own && names.has_form(bytes)
    }
}

/// Removes all that is in a directory, as deep as `depth`.
///
/// # Errors
/// ENOTEMPTY for what lies deeper; else the store's.
fn clear(store: &StoreDir, depth: usize) -> io::Result<()> {
    for entry in store.list()? {
        match entry.kind {
            FileType::Directory => drop_dir(store, &entry, depth.checked_sub(1).ok_or(Errno::NOTEMPTY)?)?,
            _ => store.unlink(&entry.name)?,
        }
    }
    Ok(())
}

/// Removes a directory and all that is in it, as `clear` does.
fn drop_dir(store: &StoreDir, entry: &Listed, depth: usize) -> io::Result<()> {
    clear(&store.open_dir(&entry.name)?, depth)?;
    store.rmdir(&entry.name)
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

fn is_blank(id: &[u8]) -> bool {
    id.iter().all(|&byte| byte == 0)
}

/// Whether a stored file reads as empty because no version of it was ever begun: it is shorter than a page, or
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
