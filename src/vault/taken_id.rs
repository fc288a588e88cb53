//! The id file of a directory that is about to go. It waits in the parent, under a temporary name, until the directory is gone or
//! turns out to stay: then it goes back by a rename, for which even a full store has room.
//!
//! An id file that is locked is open. Over NFS such a file stays in its directory under another name when it is removed, and the
//! directory cannot be removed: one more reason to have it elsewhere first.

use super::{
    Dir, Vault,
    attr::key,
    dir::stored_path,
    error::is_gone,
    names::random_name,
    sharing::{Rule, holds},
};
use crate::{
    format::name::{DIR_ID_NAME, TEMPORARY},
    store::StoreDir,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    sync::Arc,
};

/// An id file that may be out of its directory.
pub(super) struct TakenId {
    dir: Arc<StoreDir>,
    parent: Arc<StoreDir>,
    aside: OsString,
}

impl TakenId {
    /// That of `dir`, still in its place.
    pub(super) fn new(dir: &Dir, parent: &Dir) -> io::Result<Self> {
        let aside = random_name(TEMPORARY)?;
        Ok(TakenId { dir: dir.store.clone(), parent: parent.store.clone(), aside })
    }

    /// Takes it out of its directory.
    pub(super) fn take(&self) -> io::Result<()> {
        let name = OsStr::new(DIR_ID_NAME);
        if !holds(Rule::MoveIdAside) {
            return self.dir.unlink(name);
        }
        match self.dir.rename(name, &self.parent, &self.aside) {
            // As between two projects with quotas.
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => self.dir.unlink(name),
            taken => taken,
        }
    }

    /// Puts it back.
    pub(super) fn put_back(&self) -> io::Result<()> {
        self.parent.rename(&self.aside, &self.dir, OsStr::new(DIR_ID_NAME))
    }

    /// Removes it: its directory is gone.
    pub(super) fn forget(self) {
        // What stays is a left-over.
        let _ = self.parent.unlink(&self.aside);
    }
}

/// An id file whose directory stays, and that could not go back.
pub(super) struct StrandedId(TakenId, Vec<u8>);

impl Vault {
    /// Puts an id file with this content back. If that fails, the directory takes no names until it has it again.
    pub(super) fn return_id(&self, taken: TakenId, id: &[u8]) {
        if let Err(e) = self.put_taken_back(&taken, id) {
            log::error!("{}: cannot be put back: {e}", stored_path(&taken.dir, OsStr::new(DIR_ID_NAME)));
            // In a shared vault whoever adds a name sees to it: see `lock_dir`.
            if !self.is_shared() {
                self.stranded_ids.lock().push(StrandedId(taken, id.to_vec()));
            }
        }
    }

    /// Tries again to put back what could not be, before `dir` gets a name, or another id.
    ///
    /// # Errors
    /// Why the id of `dir` is not in its place.
    pub(super) fn put_ids_back(&self, dir: &StoreDir) -> io::Result<()> {
        let mut stranded = self.stranded_ids.lock();
        if stranded.is_empty() {
            return Ok(());
        }
        let wanted = key(&dir.itself().stat()?);
        let mut missing = Ok(());
        for StrandedId(taken, id) in std::mem::take(&mut *stranded) {
            let is_wanted = taken.dir.itself().stat().is_ok_and(|raw| key(&raw) == wanted);
            match self.put_taken_back(&taken, &id) {
                Ok(()) => {}
                // The directory was removed after all.
                Err(e) if is_gone(&e) => taken.forget(),
                Err(e) => {
                    stranded.push(StrandedId(taken, id));
                    if is_wanted {
                        missing = Err(e);
                    }
                }
            }
        }
        missing
    }

    fn put_taken_back(&self, taken: &TakenId, id: &[u8]) -> io::Result<()> {
        let (dir, name) = (Dir { store: taken.dir.clone(), id: None }, OsStr::new(DIR_ID_NAME));
        self.with_access(&taken.dir.itself(), 0o700, || match taken.put_back() {
            // Who made names durable meanwhile did not find it.
            Ok(()) => self.note_small(&dir.store, name, id),
            // The parent may have the sticky bit, and the file may be another user's.
            Err(_) => self.write_small(&dir, name, id),
        })
    }
}
