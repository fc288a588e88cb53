//! Locking a mounted vault, and unlocking it.

use super::{inodes::Node, scratch, server::Server};
use crate::vault::{AwayError, Kind, OpenError};
use fuser::INodeNo;
use std::{
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

/// How often it is looked whether programs still use the mount.
const LOOK: Duration = Duration::from_secs(1);

/// How often it is looked whether programs that wait were killed.
const LOOK_FOR_KILLED: Duration = Duration::from_millis(250);

/// Why a vault cannot be unlocked.
#[derive(Debug, thiserror::Error)]
pub enum UnlockError {
    /// There is nothing to unlock.
    #[error("the vault is not locked")]
    NotLocked,
    /// The key is not the vault's, or the vault cannot be read.
    #[error("{0}")]
    Vault(#[from] OpenError),
}

impl Server {
    /// Stores everything, then forgets every key and all content, and has requests wait until the vault is unlocked.
    /// Does nothing if it is locked.
    ///
    /// The kernel drops the pages that it has cached, but not those of a file that a program is just reading: whoever
    /// waited for these would wait for this process's answer.
    ///
    /// # Errors
    /// What could not be stored. The vault then is as before.
    pub fn lock(self: &Arc<Self>) -> Result<(), String> {
        let mut locked = self.locked.lock();
        if *locked {
            return Ok(());
        }
        // Most of them while reads are answered, so that no page is waited for in vain.
        self.cached().iter().for_each(|node| self.drop_cached(node));
        self.gate.close(|| self.read_queued());
        self.cached().iter().filter(|node| self.is_quiet(node)).for_each(|node| self.drop_cached(node));
        scratch::wipe();
        if let Err(e) = self.vault.put_away() {
            self.open_gate();
            return Err(self.explain(&e));
        }
        *locked = true;
        self.gate.shut();
        let server = Arc::downgrade(self);
        if let Err(e) = thread::Builder::new().name("held".into()).spawn(move || watch_killed(&server)) {
            log::warn!("programs that are killed wait until the vault is unlocked: {e}");
        }
        log::info!("locked");
        Ok(())
    }

    /// Takes the master key back, and lets requests go on.
    ///
    /// # Errors
    /// If the key is not the vault's, or the vault is not locked.
    pub fn unlock(&self, master: &[u8; 32]) -> Result<(), UnlockError> {
        let mut locked = self.locked.lock();
        if !*locked {
            return Err(UnlockError::NotLocked);
        }
        self.vault.bring_back(master)?;
        *locked = false;
        self.open_gate();
        log::info!("unlocked");
        Ok(())
    }

    /// Whether the vault is locked.
    pub fn is_locked(&self) -> bool {
        *self.locked.lock()
    }

    /// The nodes of which the kernel may have pages.
    fn cached(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.inodes.all();
        nodes.retain(|node| match node.kind {
            Kind::File => node.pages.any(),
            Kind::Symlink => true,
            _ => false,
        });
        nodes
    }

    fn drop_cached(&self, node: &Node) {
        if let Some(kernel) = self.kernel() {
            // From the first byte to the end. A node that the kernel does not know has no pages.
            let _ = kernel.inval_inode(INodeNo(node.number), 0, 0);
        }
    }

    /// Whether nobody waits for a page, as far as this process can see.
    fn is_quiet(&self, node: &Node) -> bool {
        node.pages.idle() && self.gate.held() == 0 && !self.request_waits()
    }

    fn explain(&self, error: &AwayError) -> String {
        match error {
            AwayError::Names(_) => error.to_string(),
            AwayError::File(key, e) => match self.inodes.find(*key) {
                Some(node) => format!("{}: {e}", self.inodes.stored_path(node.number)),
                None => error.to_string(),
            },
        }
    }
}

/// Lets go of programs that are killed while the vault is locked.
fn watch_killed(server: &Weak<Server>) {
    while let Some(server) = server.upgrade().filter(|server| server.gate.is_closed()) {
        server.gate.let_killed_go();
        drop(server);
        thread::sleep(LOOK_FOR_KILLED);
    }
}

/// Locks the vault when no program has made a request for so long, until the mount has ended. What the kernel answers
/// by itself is no request, nor is that a file is closed or forgotten.
pub fn lock_when_idle(server: &Weak<Server>, idle: Duration) {
    let (mut seen, mut since) = (0, Instant::now());
    while let Some(server) = server.upgrade() {
        let came = server.gate.came();
        if came != std::mem::replace(&mut seen, came) || server.gate.is_closed() {
            since = Instant::now();
        }
        if since.elapsed() >= idle {
            since = Instant::now();
            if let Err(e) = server.lock() {
                log::error!("not locked: {e}");
            }
        }
        drop(server);
        thread::sleep(LOOK.min(idle));
    }
}
