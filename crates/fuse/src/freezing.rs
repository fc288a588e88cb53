//! Freezing and thawing a mounted vault. While it is frozen, nothing writes to its store.

use super::{inodes::Node, locking::watch_held, server::Server, suspend_state::SuspendState};
use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

/// `freeze`: the end of the requested time is not representable.
const TOO_LONG: &str = "such a time is too long";
/// `thaw`: there is nothing to thaw.
const NOT_FROZEN: &str = "the vault is not frozen";
/// `thaw`: a different freeze was named.
const ANOTHER: &str = "the vault thawed meanwhile, and was frozen again";

impl Server {
    /// Stores everything and holds requests until the vault is thawed, automatically after `most`.
    /// Returns the number of this freeze.
    ///
    /// Reads wait, too: opening a file may recover it, and reading one sets its access time.
    ///
    /// # Errors
    /// If something could not be stored, or is open for writing while the kernel uses its write-back cache,
    /// as for [`Server::lock`]. Also if the vault is shared, locked or already frozen, if `most` is too long,
    /// or if the mount is ending. The vault is then unchanged.
    pub fn freeze(self: &Arc<Self>, most: Duration) -> Result<u64, String> {
        let mut held = self.held.lock();
        match *held {
            SuspendState::Not if self.vault.is_shared() => {
                return Err("the vault is shared: other machines would continue to write to it".into());
            }
            SuspendState::Not => {}
            SuspendState::Locked => return Err("the vault is locked: `warpcrypt unlock` it first".into()),
            SuspendState::Frozen { .. } => return Err("the vault is frozen already".into()),
        }
        let until = || Instant::now().checked_add(most).ok_or_else(|| TOO_LONG.to_owned());
        until()?;
        self.no_writers_gather(false)?;
        self.have_pages_written();
        self.frozen.store(true, Ordering::Relaxed);
        let closed = self.close_gate().map_err(|e| e.to_string());
        let rested = closed
            .and_then(|()| self.no_writers_gather(false))
            .and_then(|()| self.vault.rest().map_err(|e| self.explain(&e)));
        // The time starts here: storing everything may take longer than the freeze itself.
        let until = match rested.and_then(|()| until()) {
            Ok(until) => until,
            Err(e) => {
                self.go_on();
                return Err(e);
            }
        };
        let number = self.freeze_number();
        *held = SuspendState::Frozen { until, number };
        self.gate.shut();
        let server = Arc::downgrade(self);
        if let Err(e) = thread::Builder::new().name("held".into()).spawn(move || watch_held(&server)) {
            self.resume(&mut held);
            return Err(format!("cannot start a thread: {e}"));
        }
        log::info!("frozen");
        Ok(number)
    }

    /// A number that no other freeze has, of this mount or of an earlier one with the same device number.
    fn freeze_number(&self) -> u64 {
        let count = self.freezes.fetch_add(1, Ordering::Relaxed);
        u64::from(std::process::id()) << 32 | u64::from(count)
    }

    /// Waits until the kernel has written back dirty pages of mapped files. A syncfs starts that, but
    /// some kernels return before it is complete. Requests must still be served while this runs.
    fn have_pages_written(&self) {
        let is_written = |node: &Node| node.pages.any() && node.in_use.lock().has_writers();
        self.inodes.all().iter().filter(|node| is_written(node)).for_each(|node| self.drop_cached(node));
    }

    /// Resumes requests. If `named` is given, only the freeze with that number ends: its caller wants to
    /// know whether it lasted until now.
    ///
    /// # Errors
    /// If the vault is not frozen, or another freeze is active.
    pub fn thaw(&self, named: Option<u64>) -> Result<(), String> {
        let mut held = self.held.lock();
        match *held {
            SuspendState::Frozen { number, .. } if named.is_none_or(|named| named == number) => {
                self.resume(&mut held);
                Ok(())
            }
            SuspendState::Frozen { .. } => Err(ANOTHER.into()),
            SuspendState::Not | SuspendState::Locked => Err(NOT_FROZEN.into()),
        }
    }

    /// Thaws a frozen vault.
    pub(super) fn resume(&self, held: &mut SuspendState) {
        self.vault.resume();
        *held = SuspendState::Not;
        self.go_on();
        log::info!("thawed");
    }

    fn go_on(&self) {
        self.vault.rotate_behind();
        self.frozen.store(false, Ordering::Relaxed);
        self.open_gate();
    }

    /// Thaws the vault when its time is up. If the lock is held, its holder is about to change the state
    /// anyway.
    pub(super) fn thaw_in_time(&self) {
        let Some(mut held) = self.held.try_lock() else { return };
        if matches!(*held, SuspendState::Frozen { until, .. } if Instant::now() >= until) {
            log::warn!("the freeze reached its time limit and was ended");
            self.resume(&mut held);
        }
    }
}
