//! Locking an open vault: everything is stored, and neither keys nor content stay in memory.

use super::{
    OpenError, Vault,
    anchor::Owner,
    config_file::{Configs, mend_for, read_text, require_settled},
    former_list::FormerList,
    keys::{KeyRing, content_generations},
    open_file::Key,
    process,
};
use content::Error;
use crypto::secret::Secret;
use format::name::DIR_ID_NAME;
use rustix::fs::OFlags;
use std::{ffi::OsStr, io, path::Path, sync::Arc};
use store::DirFile;

/// The reason why a vault cannot be locked or brought to rest.
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
    /// Stores everything, then erases all keys and content from memory. No request may be in progress,
    /// and none may be served before [`Vault::bring_back`].
    ///
    /// # Errors
    /// The item that could not be stored; the vault stays open.
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

    /// Takes back the vault's master key, and rereads the records of open files. The key differs from
    /// the previous one if a rotation has begun in the meantime.
    ///
    /// # Errors
    /// `OtherVault` if the key is not this vault's; the errors of an unreadable configuration;
    /// `Changing` while another process changes the configuration; `Anchor` if it is older than what was
    /// confirmed; `DamagedRoot` if the root contains names and the key opens none of them. The vault
    /// then stays locked, and no key material stays in memory.
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
        // Check this first: an old configuration may have a key from before a rotation, which does not
        // open the root.
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
                // The anchor must not record a configuration that a power cut can undo.
                self.root.store.sync().map_err(failed)?;
            }
            anchor.bring_back(&owner)?;
        }
        // Nothing can fail from here on: either all keys are set or none.
        let context = self.files.context();
        context.keys.replace(content_generations(&config, master, list.as_ref()));
        self.keys.replace(&config, master, list.as_ref());
        context.router.bring_back();
        self.files.bring_back();
        *self.anchoring.halted.lock() = false;
        // All names are read again, so anything that a rotation could not renew may be retried.
        self.left.lock().clear();
        self.renew(&self.root);
        Ok(())
    }
}
