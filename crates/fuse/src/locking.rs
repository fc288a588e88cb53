//! Locking and unlocking a mounted vault.

use super::{
    gate::Ending,
    inodes::{Node, ROOT},
    scratch,
    server::Server,
    suspend_state::SuspendState,
};
use content::Error;
use crossbeam_channel::{RecvTimeoutError, bounded};
use fuser::INodeNo;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak, atomic::Ordering},
    thread,
    time::Duration,
};
use vault::{AwayError, Kind, OpenError, StoredName};

/// Maximum time that a lock waits for the kernel to drop pages.
const DROP_PATIENCE: Duration = Duration::from_secs(2);

/// How often to check whether waiting programs were killed.
const LOOK_FOR_KILLED: Duration = Duration::from_millis(250);

/// Why a vault cannot be unlocked.
#[derive(Debug, thiserror::Error)]
pub enum UnlockError {
    /// The vault is not locked.
    #[error("the vault is not locked")]
    NotLocked,
    /// The key does not belong to the vault, or the vault cannot be read.
    #[error("{0}")]
    Vault(#[from] OpenError),
}

impl Server {
    /// Stores everything, wipes all keys and contents, and holds requests until the vault is unlocked.
    /// Does nothing if it is locked already; thaws it first if it is frozen.
    ///
    /// The kernel drops the pages that it has cached, except those of a file that a program is reading at
    /// the moment: waiting for these would mean waiting for this process's own answer.
    ///
    /// With its write-back cache, the kernel may hold unwritten data for a file that is open for writing.
    /// While the vault is locked, a program with such data could not close the file, start another
    /// program, or be killed. So a mount with such files is locked only if it `ends` at once.
    ///
    /// # Errors
    /// If something could not be stored, or is open for writing, or the mount is ending. The vault is
    /// then unchanged.
    pub fn lock(self: &Arc<Self>, ends: bool) -> Result<(), String> {
        let mut held = self.held.lock();
        match *held {
            SuspendState::Locked => return Ok(()),
            SuspendState::Frozen { .. } => self.resume(&mut held),
            SuspendState::Not => {}
        }
        if self.ends_if_detached() {
            return Err(Ending.to_string());
        }
        let may_lock = || self.no_writers_gather(ends).map_err(|e| e + ", or lock with --end");
        may_lock()?;
        // Drop most pages while reads are still answered, so that no drop waits for a held read.
        self.cached().iter().for_each(|node| self.drop_cached(node));
        self.close_gate().map_err(|e| e.to_string())?;
        if let Err(e) = may_lock() {
            self.open_gate();
            return Err(e);
        }
        self.drop_quiet();
        scratch::wipe();
        if let Some(wipe) = self.wipe_rings.get() {
            wipe();
        }
        if let Err(e) = self.vault.put_away() {
            self.vault.rotate_behind();
            self.open_gate();
            return Err(self.explain(&e));
        }
        *held = SuspendState::Locked;
        self.gate.shut();
        let server = Arc::downgrade(self);
        if let Err(e) = thread::Builder::new().name("held".into()).spawn(move || watch_held(&server)) {
            log::warn!("killed programs cannot exit until the vault is unlocked: {e}");
        }
        log::info!("locked");
        Ok(())
    }

    /// Loads the master key again and resumes requests.
    ///
    /// # Errors
    /// If the key does not belong to the vault, or the vault is not locked.
    pub fn unlock(&self, master: &[u8; 32]) -> Result<(), UnlockError> {
        let mut held = self.held.lock();
        if *held != SuspendState::Locked {
            return Err(UnlockError::NotLocked);
        }
        self.vault.bring_back(master)?;
        if self.vault.is_rotating() {
            self.renew_names();
        }
        *held = SuspendState::Not;
        self.vault.rotate_behind();
        self.open_gate();
        log::info!("unlocked");
        Ok(())
    }

    /// Updates the nodes' stored names, which are different under another master key. Starts at the root,
    /// because the path to a directory consists of its names.
    fn renew_names(&self) {
        let mut below: HashMap<u64, Vec<Arc<Node>>> = HashMap::new();
        for node in self.inodes.all() {
            let parents: HashSet<u64> = node.names.read().parents().collect();
            parents.into_iter().for_each(|parent| below.entry(parent).or_default().push(node.clone()));
        }
        let mut next = vec![ROOT];
        while let Some(parent) = next.pop() {
            let nodes = below.remove(&parent).unwrap_or_default();
            if let Err(e) = self.renew_names_in(parent, &nodes) {
                log::warn!("{}: {e}", self.inodes.stored_path(parent));
            }
            next.extend(nodes.iter().filter(|node| node.kind == Kind::Dir).map(|node| node.number));
        }
    }

    fn renew_names_in(&self, parent: u64, nodes: &[Arc<Node>]) -> Result<(), Error> {
        let dir = self.dir(parent)?;
        self.vault.renew(&dir);
        let mut stored: HashMap<u64, Vec<StoredName>> = HashMap::new();
        for entry in self.vault.list(&dir)? {
            stored.entry(entry.ino).or_default().push(entry.stored);
        }
        for node in nodes {
            let names = stored.get(&node.key.1).map_or(&[][..], Vec::as_slice);
            node.names.write().renew(parent, names);
        }
        Ok(())
    }

    /// The nodes whose content may be in the kernel's page cache.
    fn cached(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.inodes.all();
        nodes.retain(|node| match node.kind {
            Kind::File => node.pages.any(),
            Kind::Symlink => true,
            _ => false,
        });
        nodes
    }

    /// Drops the pages of files that no program is reading. A program may start reading at any moment,
    /// and then a drop waits for a page whose request the gate holds. So this runs on its own thread, and
    /// the lock waits only briefly for it.
    fn drop_quiet(self: &Arc<Self>) {
        let server = self.clone();
        let (done, finished) = bounded::<()>(0);
        let thread = thread::Builder::new().name("drop-pages".into()).spawn(move || {
            let nodes = server.cached();
            nodes
                .iter()
                .filter(|node| server.dropper.waits_for_nothing(node) && !server.may_be_dirty(node))
                .for_each(|node| server.drop_cached(node));
            drop(done);
        });
        match thread {
            // The channel is disconnected when the thread is done.
            Ok(_) if finished.recv_timeout(DROP_PATIENCE) == Err(RecvTimeoutError::Timeout) => {
                log::info!("the kernel still caches pages of files that programs are reading");
            }
            Ok(_) => {}
            Err(e) => log::warn!("the kernel still caches pages of files: {e}"),
        }
    }

    pub(super) fn drop_cached(&self, node: &Node) {
        if let Some(kernel) = self.kernel() {
            // From the first byte to the end. A node that the kernel does not know has no pages.
            let _ = kernel.inval_inode(INodeNo(node.number), 0, 0);
        }
    }

    /// Fails if the kernel's write-back cache may hold unwritten data, unless the mount `ends`.
    pub(super) fn no_writers_gather(&self, ends: bool) -> Result<(), String> {
        let writers = || self.inodes.all().into_iter().find(|node| self.may_be_dirty(node));
        match if ends { None } else { writers() } {
            None => Ok(()),
            Some(node) => Err(format!(
                "{}: open for writing, with --cache write-back; close it",
                self.inodes.stored_path(node.number)
            )),
        }
    }

    /// Whether the kernel's write-back cache may hold unwritten data of this file. Dropping such pages
    /// would first write them, and the gate holds writes.
    fn may_be_dirty(&self, node: &Node) -> bool {
        self.caching.gathers() && node.in_use.lock().has_writers()
    }

    pub(super) fn explain(&self, error: &AwayError) -> String {
        match error {
            AwayError::Names(_) => error.to_string(),
            AwayError::File(key, e) => match self.inodes.find(*key) {
                Some(node) => format!("{}: {e}", self.inodes.stored_path(node.number)),
                None => error.to_string(),
            },
        }
    }
}

/// Releases programs that are killed while the vault is locked or frozen, and thaws it when its time is
/// up.
pub(super) fn watch_held(server: &Weak<Server>) {
    while let Some(server) = server.upgrade().filter(|server| server.gate.is_closed()) {
        server.thaw_in_time();
        // A frozen vault thaws automatically, and the control socket still reaches it.
        if !server.frozen.load(Ordering::Relaxed) && server.gate.held() > 0 {
            server.ends_if_detached();
        }
        server.gate.let_killed_go();
        drop(server);
        thread::sleep(LOOK_FOR_KILLED);
    }
}
