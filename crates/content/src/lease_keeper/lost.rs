//! A lease that the store revoked because it had not heard from this machine for a long time. Another
//! machine may have written the file since, so unstored data is lost, and the rest may be stale. From
//! then on the file only fails. Opening it again takes a new lease over a new descriptor.

use super::LeaseKeeper;
use crate::{
    error::{Error, Result},
    lease_rules::{LeaseRule, holds},
    record::{OnDisk, Records},
    recover::Header,
    state::{Fault, State},
};
use format::layout;
use rustix::io::Errno;
use std::io;

/// Whether an error of the store is transient: a resource is scarce or busy, but the file and its lock
/// are unchanged.
pub fn is_passing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::AGAIN | Errno::NOLCK | Errno::NOMEM | Errno::INTR | Errno::MFILE | Errno::NFILE)
    )
}

impl LeaseKeeper<'_> {
    /// Fails, now and from then on, if the lease is no longer held.
    ///
    /// # Errors
    /// EIO if it is lost; the store's if that cannot be determined now.
    pub(super) fn check_lease(&self, st: &mut State) -> Result<()> {
        if self.core.backing.lease.is_held()
            && holds(LeaseRule::FailWithoutLease)
            && !self.core.backing.lease.is_lost()
        {
            // Another thread that is storing a write would change the records meanwhile.
            self.committer().complete_all(st);
            if !self.keeps_lease(st)? {
                log::error!("the store revoked a file's lease: unsaved changes are lost");
                self.lose(st);
            }
        }
        self.core.backing.lease.refuse_lost()
    }

    /// Checks the lease if something could not be stored.
    pub(crate) fn recheck_lease_on_error<T>(&self, st: &mut State, stored: Result<T>) -> Result<T> {
        if let Err(Error::Store(_)) = &stored {
            let _ = self.check_lease(st); // The original error is the better one to report.
        }
        stored
    }

    /// Whether the lease was lost.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_lost(&self) -> bool {
        self.core.backing.lease.is_lost()
    }

    /// Whether the lock is still held and nobody else held it meanwhile, that is, the store still has
    /// this process's records.
    ///
    /// # Errors
    /// Transient errors, which say nothing about the lock.
    fn keeps_lease(&self, st: &State) -> Result<bool> {
        match self.core.backing.store.try_lock() {
            Ok(true) => {}
            Err(e) if is_passing(&e) => return Err(e.into()),
            Ok(false) | Err(_) => return Ok(false),
        }
        if !holds(LeaseRule::KnowOwnRecords) {
            return Ok(true);
        }
        self.core.backing.store.drop_cached(layout::PAGE);
        let is_certain = st.stored.leftover.is_none() && st.stored.records.on_disk != OnDisk::DirtyOrClean;
        Ok(Header::read(&*self.core.backing.store)
            .is_ok_and(|header| !is_certain || header.records() == st.stored.records.sectors))
    }

    /// Makes the file fail permanently. Nothing may be in flight: on some stores, writes succeed again once
    /// the lost lock is released.
    pub(super) fn lose(&self, st: &mut State) {
        let (base, context) = (st.stored.base, &self.core.backing.context);
        *st = State { fault: Some(Fault::Lost), ..State::clean(None, Records::none(), base, context) };
        self.core.backing.lease.lose();
        self.core.backing.lease.unlock(&*self.core.backing.store);
    }
}
