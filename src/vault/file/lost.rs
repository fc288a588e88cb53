//! A lease that the store took away: it had not heard of this machine for long. Another may have written the file since, so
//! what was not stored here is gone, and the rest may be old. From then on the file only fails. Who opens it anew gets another
//! one, over another descriptor.

use super::{
    File,
    record::{OnDisk, Records},
    recover::Header,
    state::{Fault, State},
};
use crate::{
    format::layout,
    vault::{
        Error, Result,
        sharing::{Rule, holds},
    },
};
use rustix::io::Errno;
use std::io;

/// Whether an error of the store says only that something is scarce or in use just now: the file and its lock are as they were.
pub fn is_passing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::AGAIN | Errno::NOLCK | Errno::NOMEM | Errno::INTR | Errno::MFILE | Errno::NFILE)
    )
}

impl File {
    /// Fails, now and from then on, if the lease is not held any more.
    ///
    /// # Errors
    /// EIO; if that cannot be known just now, why.
    pub(super) fn check_lease(&self, st: &mut State) -> Result<()> {
        if self.lease.is_held() && holds(Rule::FailWithoutLease) && !self.lease.is_lost() {
            // What another thread is storing would change the records meanwhile.
            self.complete_all(st);
            if !self.keeps_lease(st)? {
                log::error!("the store took a file's lease away: what was not stored is lost");
                self.lose(st);
            }
        }
        self.refuse_lost()
    }

    /// Looks at the lease if something could not be stored.
    pub(super) fn suspecting<T>(&self, st: &mut State, stored: Result<T>) -> Result<T> {
        if let Err(Error::Store(_)) = &stored {
            let _ = self.check_lease(st); // That is no better an error.
        }
        stored
    }

    /// Whether it fails.
    #[cfg(test)]
    pub(in crate::vault) fn has_lost_lease(&self) -> bool {
        self.lease.is_lost()
    }

    /// Whether the lock is still there, and nobody else had it meanwhile: the store has the records that were written here.
    ///
    /// # Errors
    /// What passes: it says nothing of the lock.
    fn keeps_lease(&self, st: &State) -> Result<bool> {
        match self.store.try_lock() {
            Ok(true) => {}
            Err(e) if is_passing(&e) => return Err(e.into()),
            Ok(false) | Err(_) => return Ok(false),
        }
        if !holds(Rule::KnowOwnRecords) {
            return Ok(true);
        }
        self.store.drop_cached(layout::PAGE);
        let is_certain = st.stored.leftover.is_none() && st.stored.records.on_disk != OnDisk::DirtyOrClean;
        Ok(Header::read(&*self.store)
            .is_ok_and(|header| !is_certain || header.records() == st.stored.records.sectors))
    }

    /// Has the file fail. Nothing may be in flight: what is unlocked can be written again, on some stores.
    pub(super) fn lose(&self, st: &mut State) {
        let (base, context) = (st.stored.base, &self.context);
        *st = State { fault: Some(Fault::Lost), ..State::clean(None, Records::none(), base, context) };
        self.lease.lose();
        self.unlock_store();
    }
}
