//! The id file of a directory that is about to be removed. It stays in the parent under a temporary name
//! until the directory is gone, or turns out to stay. In the latter case a rename puts it back, which
//! works even in a full store.
//!
//! A locked id file is open. Over NFS, removing an open file leaves it in its directory under another
//! name, so that the directory cannot be removed. This is another reason to move it elsewhere first.

use super::{
    Dir, Vault,
    attr::key,
    dir::stored_path,
    names::random_name,
    sharing::{SharingRule, holds, is_gone},
};
use format::name::{DIR_ID_NAME, TEMPORARY};
use std::{
    ffi::{OsStr, OsString},
    io,
    sync::Arc,
};
use store::StoreDir;

/// An id file that may be out of its directory.
pub(super) struct TakenId {
    dir: Arc<StoreDir>,
    parent: Arc<StoreDir>,
    aside: OsString,
}

impl TakenId {
    /// The id file of `dir`, still in its place.
    pub(super) fn new(dir: &Dir, parent: &Dir) -> io::Result<Self> {
        let aside = random_name(TEMPORARY)?;
        Ok(TakenId { dir: dir.store.clone(), parent: parent.store.clone(), aside })
    }

    /// Moves it out of its directory.
    pub(super) fn take(&self) -> io::Result<()> {
        let name = OsStr::new(DIR_ID_NAME);
        if !holds(SharingRule::MoveIdAside) {
            return self.dir.unlink(name);
        }
        match self.dir.rename(name, &self.parent, &self.aside) {
            // For example between two projects with quotas.
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => self.dir.unlink(name),
            taken => taken,
        }
    }

    /// Puts it back.
    pub(super) fn put_back(&self) -> io::Result<()> {
        self.parent.rename(&self.aside, &self.dir, OsStr::new(DIR_ID_NAME))
    }

    /// Removes it, because its directory is gone.
    pub(super) fn forget(self) {
        // If the removal fails, the file remains as a leftover.
        let _ = self.parent.unlink(&self.aside);
    }
}

/// An id file that could not be put back although its directory stays.
pub(super) struct StrandedId(TakenId, Vec<u8>);

impl Vault {
    /// Puts an id file with this content back. If that fails, the directory accepts no new names until
    /// the file is back.
    pub(super) fn return_id(&self, taken: TakenId, id: &[u8]) {
        if let Err(e) = self.put_taken_back(&taken, id) {
            log::error!("{}: cannot be put back: {e}", stored_path(&taken.dir, OsStr::new(DIR_ID_NAME)));
            // In a shared vault the next machine that adds a name restores it: see `lock_dir`.
            if !self.is_shared() {
                self.stranded_ids.lock().push(StrandedId(taken, id.to_vec()));
            }
        }
    }

    /// Retries to put back id files before `dir` gets a name or another id.
    ///
    /// # Errors
    /// Why the id file of `dir` is not in its place.
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
            // A thread that made names durable meanwhile did not find the file.
            Ok(()) => self.note_small(&dir.store, name, id),
            // The parent may have the sticky bit, and the file may belong to another user.
            Err(_) => self.write_small(&dir, name, id),
        })
    }
}
