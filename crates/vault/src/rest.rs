//! A vault at rest: it is open, but a copy of its store is a clean vault.

use super::{AwayError, Vault};
use content::{Error, breakable};

/// Rules for bringing a vault to rest. A test breaks each one and has to detect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestRule {
    /// A vault that could not be brought to rest resumes work.
    ResumeAfterFailure,
}

breakable!(RestRule if test);

impl Vault {
    /// Stops the threads that write to the store, stores everything, and cleans every file. Call while
    /// no request is being served.
    ///
    /// # Errors
    /// What could not be stored. [`Vault::resume`] then resumes work.
    pub(super) fn come_to_rest(&self) -> Result<(), AwayError> {
        self.rotation.stop();
        if !self.read_only() {
            self.make_names_durable().or_else(|_| self.make_names_durable()).map_err(AwayError::Names)?;
        }
        // Must precede the cleaning of files, because some get an identity here.
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

    /// Brings the vault to rest, and makes everything durable. Until [`Vault::resume`] nothing writes to
    /// the store, and a copy of it opens as after an unmount. Call while no request is being served, and
    /// serve none until [`Vault::resume`].
    ///
    /// # Errors
    /// What could not be stored. The vault then continues as before.
    pub fn rest(&self) -> Result<(), AwayError> {
        let rested = self.come_to_rest().and_then(|()| self.release().map_err(AwayError::Names));
        if rested.is_err() && holds(RestRule::ResumeAfterFailure) {
            self.resume();
        }
        rested
    }

    /// Records in the lock file that all work is done, so that a copy contains this too.
    fn release(&self) -> Result<(), Error> {
        let Some(lock) = &self.lock else { return Ok(()) };
        lock.rest()?;
        self.sync_store().map(drop)
    }

    /// Allows writes to a vault at rest again. Does not restart a rotation.
    pub fn resume(&self) {
        if let Some(lock) = &self.lock {
            lock.resume();
        }
        self.files.resume();
        *self.anchoring.halted.lock() = false;
    }
}
