//! An open vault at rest: a copy of its store is a clean vault.

use super::{AwayError, Error, Vault, breakable::breakable};

/// A rule of coming to rest, by name. A test breaks it, and has to notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A vault that could not be brought to rest goes on.
    ResumeAfterFailure,
}

breakable!();

impl Vault {
    /// Ends what writes the store by itself, stores everything, and has every file clean. To be called while no request
    /// is served.
    ///
    /// # Errors
    /// What could not be stored. [`Vault::resume`] then has the vault go on.
    pub(super) fn come_to_rest(&self) -> Result<(), AwayError> {
        self.rotation.stop();
        if !self.read_only() {
            self.make_names_durable().or_else(|_| self.make_names_durable()).map_err(AwayError::Names)?;
        }
        // Before files are cleaned: some get an identity.
        let mut halted = self.anchoring.halted.lock();
        self.anchor_names(None).map_err(AwayError::Names)?;
        self.files.store_all().map_err(|(key, e)| AwayError::File(key, e))?;
        self.anchor_files().map_err(AwayError::Names)?;
        *halted = true;
        drop(halted);
        self.files.halt();
        self.files.context().background.finish_jobs();
        self.store_ctimes();
        Ok(())
    }

    /// Brings the vault to rest, and makes everything durable: until [`Vault::resume`] nothing writes to the store, and a
    /// copy of it opens as after an unmount. To be called while no request is served, and none may be until then.
    ///
    /// # Errors
    /// What could not be stored; the vault is as before.
    pub fn rest(&self) -> Result<(), AwayError> {
        let rested = self.come_to_rest().and_then(|()| self.release().map_err(AwayError::Names));
        if rested.is_err() && holds(Rule::ResumeAfterFailure) {
            self.resume();
        }
        rested
    }

    /// Has the lock file say that all work is done, as a copy has it too.
    fn release(&self) -> Result<(), Error> {
        let Some(lock) = &self.lock else { return Ok(()) };
        lock.rest()?;
        self.sync_store().map(drop)
    }

    /// Lets a vault at rest be written to again, but for a rotation.
    pub fn resume(&self) {
        if let Some(lock) = &self.lock {
            lock.resume();
        }
        self.files.resume();
        *self.anchoring.halted.lock() = false;
    }
}
