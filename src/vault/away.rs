//! An open vault while it is locked: everything is stored, and neither keys nor content are in memory.

use super::{
    Error, OpenError, Vault,
    anchor::Owner,
    config_file::{Configs, mend_for, read_text, require_settled},
    former_list::FormerList,
    keys::KeyRing,
    open_file::Key,
    process,
};
use crate::{crypto::secret::Secret, format::name::DIR_ID_NAME, store::DirFile};
use rustix::fs::OFlags;
use std::{ffi::OsStr, io, path::Path, sync::Arc};

/// What keeps a vault from being locked, or brought to rest.
#[derive(Debug, thiserror::Error)]
pub enum AwayError {
    /// Names could not be made durable.
    #[error("names cannot be made durable: {0}")]
    Names(Error),
    /// A file could not be stored.
    #[error("inode {}: {}", .0.1, .1)]
    File(Key, Error),
}

impl Vault {
    /// Stores everything, then forgets every key and all content. To be called while no request is served; none may be
    /// before [`Vault::bring_back`].
    ///
    /// # Errors
    /// What could not be stored; the vault is open as before.
    pub fn put_away(&self) -> Result<(), AwayError> {
        self.come_to_rest()?;
        self.files.put_away();
        self.told.lock().clear();
        self.told_of_strays.lock().clear();
        let context = self.files.context();
        context.background.finish_jobs();
        context.keys.wipe();
        self.keys.wipe();
        if let Some(anchor) = &self.anchor {
            anchor.wipe();
        }
        context.buffered.forget_spare();
        context.router.put_away();
        process::wipe_stacks();
        process::give_back_memory();
        Ok(())
    }

    /// Takes the master key back, if it is this vault's, and reads the records of open files again. It may be another than
    /// before: then a rotation was begun meanwhile.
    ///
    /// # Errors
    /// `OtherVault` if it is not; those of a configuration that cannot be read; `Changing` while another process changes that;
    /// `Anchor` if it is older than was confirmed; `DamagedRoot` if the root has names, and the key opens none.
    /// The vault stays locked, and nothing of the key in memory.
    pub fn bring_back(&self, master: &[u8; 32]) -> Result<(), OpenError> {
        self.take_back(master).inspect_err(|_| {
            process::wipe_stacks();
            process::give_back_memory();
        })
    }

    fn take_back(&self, master: &[u8; 32]) -> Result<(), OpenError> {
        let master = &Secret::new_with(|key| *key = *master);
        let path = Path::new("the mounted vault");
        let other = || OpenError::OtherVault(path.into());
        let failed = |source| OpenError::Store { action: "cannot read", path: path.into(), source };
        if !self.read_only() {
            require_settled(&self.root.store)?;
        }
        let configs = Configs::read(&self.root.store, path)?;
        let config = configs.authentic(master).map_err(|_| other())?;
        let id = self.root.store.open_file(OsStr::new(DIR_ID_NAME), OFlags::RDONLY).map_err(failed)?;
        let id = read_text(DirFile::new(id)).map_err(failed)?;
        if *config.id() != self.id {
            return Err(other());
        }
        let owner = Owner { config: &config, master };
        // First: an old configuration may have a key from before a rotation, which does not open the root.
        if let Some(anchor) = &self.anchor {
            anchor.refuse_old(&owner)?;
        }
        let list = FormerList::open(&self.root.store, &config, master).map(Arc::new);
        let keys = KeyRing::of(&config, master, list.as_ref());
        if keys.open(|keys| keys.open_dir_id(&id)).is_err() {
            return Err(other());
        }
        self.require_a_name_under(&keys).map_err(|e| match e {
            Error::Damaged(damage) => OpenError::DamagedRoot(damage),
            Error::Store(e) => failed(e),
            e => failed(io::Error::other(e.to_string())),
        })?;
        if !self.read_only() && self.sharing.is_none() && !configs.agree_on(&config) {
            mend_for(&config, &self.root.store, path, master)?;
        }
        if let Some(anchor) = &self.anchor {
            if !self.read_only() {
                // It must not know of a configuration that a power cut takes back.
                self.root.store.sync().map_err(failed)?;
            }
            anchor.bring_back(&owner)?;
        }
        // Nothing fails from here on: there are all keys or none.
        let context = self.files.context();
        context.keys.replace(&config, master, list.as_ref());
        self.keys.replace(&config, master, list.as_ref());
        context.router.bring_back();
        self.files.bring_back();
        *self.anchoring.halted.lock() = false;
        // All names are read anew, so what a rotation could not renew may be tried again.
        self.left.lock().clear();
        self.renew(&self.root);
        Ok(())
    }
}
