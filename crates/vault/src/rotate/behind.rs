//! Continuing a rotation in the background while programs use the vault.

use super::{Rotated, Step};
use crate::Vault;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// The thread that does so, if a rotation is in progress.
#[derive(Default)]
pub(crate) struct RotationThread {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl RotationThread {
    /// Whether the thread has been told to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the thread. If it is putting a file's new form in place, it finishes that first.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            log::error!("key rotation stopped because of an internal error");
        }
    }
}

impl Vault {
    /// Continues a rotation in the background until it is done or the vault is shut down.
    pub fn rotate_behind(self: &Arc<Self>) {
        if !self.is_rotating() || self.read_only() {
            return;
        }
        let mut running = self.rotation.thread.lock();
        // The thread may still be running if an attempt to bring the vault to rest failed before
        // stopping it.
        if running.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (vault, stop) = (self.clone(), self.rotation.stop.clone());
        stop.store(false, Ordering::Relaxed);
        let thread =
            std::thread::Builder::new().name("rotation".into()).spawn(move || vault.rotate_until(&stop));
        match thread {
            Ok(thread) => *running = Some(thread),
            Err(e) => log::error!("key rotation cannot continue: {e}"),
        }
    }

    fn rotate_until(&self, stop: &AtomicBool) {
        log::info!("key rotation: rewriting everything that is still under the old key");
        let rotated = self.rotate(&mut |step| {
            match step {
                Step::Left(path, reason) => {
                    log::warn!("{}: remains under the old key: {reason}", path.display());
                }
                Step::Stray(path, reason) => {
                    log::warn!(
                        "{}: was not encrypted with any key of the vault and cannot be rewritten: {reason}",
                        path.display()
                    );
                }
                Step::Directory | Step::Rewritten(_) => {}
            }
            !stop.load(Ordering::Relaxed)
        });
        match rotated {
            Ok(Rotated::Whole { .. }) => log::info!("everything in the vault is under the new key"),
            Ok(Rotated::Stopped) => log::info!("key rotation will continue at the next mount"),
            Ok(Rotated::Left) => log::warn!("some items remain under the old key of the vault"),
            Err(e) => log::error!("the rotation of the vault's key stopped: {e}"),
        }
    }
}
