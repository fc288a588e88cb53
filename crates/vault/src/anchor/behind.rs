//! The thread that writes changes to the anchor while a vault is in use.

use crate::Vault;
use crypto::traces;
use parking_lot::Mutex;
use std::{
    sync::{Arc, Weak, mpsc},
    thread::JoinHandle,
    time::Duration,
};

/// Interval between rounds. Each round costs the store a sync if there are changes.
const ROUND: Duration = Duration::from_secs(8);

/// The thread, if there is an anchor to update.
#[derive(Default)]
pub(crate) struct AnchorThread {
    /// Dropping the sender ends the thread.
    thread: Mutex<Option<(mpsc::Sender<()>, JoinHandle<()>)>>,
    /// Held during a round. True while no rounds may run, because the vault is locked or at rest.
    pub(crate) halted: Mutex<bool>,
}

impl AnchorThread {
    /// Ends the thread after its current round.
    pub(crate) fn stop(&self) {
        if let Some((stop, thread)) = self.thread.lock().take() {
            drop(stop);
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                log::error!("the anchor thread ended because of an internal error");
            }
        }
    }
}

impl Vault {
    /// Starts the thread that writes changes to the anchor, until the vault is shut down. Does nothing
    /// without an anchor or for a vault opened read-only.
    pub fn anchor_behind(self: &Arc<Self>) {
        if self.anchor.is_none() || self.read_only() {
            return;
        }
        let (stop, stopped) = mpsc::channel();
        let vault = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("anchor".into()).spawn(move || run(&vault, &stopped));
        match thread {
            Ok(thread) => *self.anchoring.thread.lock() = Some((stop, thread)),
            Err(e) => log::error!(
                "cannot start the anchor thread; changes will be written to the anchor only at unmount: {e}"
            ),
        }
    }

    fn anchor_round(&self) {
        let halted = self.anchoring.halted.lock();
        if *halted {
            return;
        }
        if let Err(e) = self.anchor_names(None) {
            log::warn!("cannot write changes to the anchor: {e}");
        }
        traces::wipe(); // Before `halted` is released, which locking the vault waits for.
    }
}

fn run(vault: &Weak<Vault>, stopped: &mpsc::Receiver<()>) {
    while stopped.recv_timeout(ROUND) == Err(mpsc::RecvTimeoutError::Timeout) {
        let Some(vault) = vault.upgrade() else { return };
        vault.anchor_round();
    }
}
