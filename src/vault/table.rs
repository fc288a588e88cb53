//! The open files: one `OpenFile` an inode, and the keeper that brings idle ones to rest.
//!
//! A file stays here after its last handle is closed, until the store holds all of it under a clean
//! record. So closing costs no sync, and reopening a file that was just written no recovery.

use super::{
    Error, Result, Time,
    ctime::ChangeTimes,
    file::{Context, File, Rest},
    process,
};
use crate::store::DirFile;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Device and inode number in the store.
pub type Key = (u64, u64);

/// How often the keeper looks around.
const TICK: Duration = Duration::from_secs(1);
/// A file that did not change for so long is brought to rest.
const IDLE: Duration = Duration::from_secs(3);
/// Between two rounds of bringing idle files to rest: each costs the store two syncs.
const ROUND: Duration = Duration::from_secs(8);
/// A file that changes all the time is committed when its oldest uncommitted change is this old.
const COMMIT_AFTER: Duration = Duration::from_secs(10);
/// Files kept beside those in use before the keeper brings all that nobody uses to rest at once.
const CROWD: usize = 2048;
/// So many times as many, and whoever opens another one has to wait for that.
const PATIENCE: usize = 4;
/// The part of the process's descriptors that `PATIENCE` crowds may take.
const SHARE: usize = 2;
/// Up to so many files are synced one by one, more by one syncfs.
const SYNC_EACH: usize = 8;
const SHARDS: usize = 64;

/// An open regular file, shared by all its handles.
pub struct OpenFile {
    /// Its content.
    pub file: Arc<File>,
    /// Its descriptor in the store.
    pub store: Arc<DirFile>,
    /// Device and inode number in the store.
    pub key: Key,
    unlinked: AtomicBool,
    complained: AtomicBool,
}

impl OpenFile {
    /// Whether nothing is lost when the table lets go of it.
    fn may_go(&self, context: &Context) -> bool {
        context.read_only
            || self.unlinked.load(Ordering::Relaxed)
            || self.file.at_rest()
            || self.file.failed()
    }

    fn complain(&self, e: &Error) {
        if !self.complained.swap(true, Ordering::Relaxed) {
            log::error!("inode {}: what was written cannot be stored: {e}", self.key.1);
        }
    }
}

type Shard = Mutex<HashMap<Key, Arc<OpenFile>>>;

/// Makes everything that was written to the store durable (syncfs).
pub type SyncStore = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// The open files of a vault.
pub struct Files {
    context: Arc<Context>,
    shards: Vec<Shard>,
    count: AtomicUsize,
    departures: AtomicU64,
    crowd: usize,
    /// Files that stayed when room was last made: they are in use.
    in_use: AtomicUsize,
    /// Whether one left of which something may be gone.
    lost: AtomicBool,
    device: u64,
    sync_store: SyncStore,
    ctimes: ChangeTimes,
    /// One at a time brings files to rest; when that was last done.
    resting: Mutex<Instant>,
    stop: Mutex<bool>,
    wake: Condvar,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl Files {
    /// How many files are open, those included that are kept for a moment after their last close.
    pub fn open_count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// An empty table and its keeper. `device` is the store's, `sync_store` its syncfs.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(context: Arc<Context>, device: u64, sync_store: SyncStore) -> io::Result<Arc<Files>> {
        let files = Arc::new(Files {
            context,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            count: AtomicUsize::new(0),
            departures: AtomicU64::new(0),
            crowd: crowd(),
            in_use: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            ctimes: ChangeTimes::default(),
            device,
            sync_store,
            resting: Mutex::new(Instant::now()),
            stop: Mutex::new(false),
            wake: Condvar::new(),
            keeper: Mutex::new(None),
        });
        let weak = Arc::downgrade(&files);
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(move || keep(&weak))?;
        *files.keeper.lock() = Some(thread);
        Ok(files)
    }

    /// What the files share.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    fn shard(&self, key: Key) -> &Shard {
        let hash = (key.0 ^ key.1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(hash >> 58) as usize % SHARDS]
    }

    /// The open file of an inode, if it is open (or kept to be brought to rest).
    pub fn get(&self, key: Key) -> Option<Arc<OpenFile>> {
        self.shard(key).lock().get(&key).cloned()
    }

    /// The open file of an inode: the one in the table, or a new one over `store`. If the one in the
    /// table has a read-only descriptor and `store` is writable, it takes over `store`'s.
    ///
    /// # Errors
    /// As `File::open`.
    pub fn open(&self, key: Key, store: DirFile) -> Result<Arc<OpenFile>> {
        self.find_room();
        let mut shard = self.shard(key).lock();
        if let Some(open) = shard.get(&key) {
            if store.writable() && !open.store.writable() {
                open.store.take_over(store);
            }
            return Ok(open.clone());
        }
        let store = Arc::new(store);
        let file = File::open(store.clone(), self.context.clone())?;
        Ok(self.enter(&mut shard, file, store, key))
    }

    /// The open file of an inode that was just made.
    pub fn create(&self, key: Key, store: DirFile) -> Arc<OpenFile> {
        self.find_room();
        let store = Arc::new(store);
        let file = File::fresh(store.clone(), self.context.clone());
        self.enter(&mut self.shard(key).lock(), file, store, key)
    }

    fn enter(
        &self,
        shard: &mut HashMap<Key, Arc<OpenFile>>,
        file: Arc<File>,
        store: Arc<DirFile>,
        key: Key,
    ) -> Arc<OpenFile> {
        let (unlinked, complained) = (AtomicBool::new(false), AtomicBool::new(false));
        let open = Arc::new(OpenFile { file, store, key, unlinked, complained });
        shard.insert(key, open.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        open
    }

    /// Ends a handle's use of a file; one at rest that nobody uses leaves the table.
    pub fn release(&self, open: Arc<OpenFile>) {
        let key = open.key;
        drop(open);
        self.let_go(key);
    }

    /// Says that the inode's last link is gone: what was not flushed need not be.
    pub fn forget(&self, key: Key) {
        self.ctimes.forget(key);
        if let Some(open) = self.get(key) {
            open.unlinked.store(true, Ordering::Relaxed);
        }
        self.let_go(key);
    }

    /// Says that an inode has a link again (linkat of an open file).
    pub fn remember(&self, key: Key) {
        if let Some(open) = self.get(key) {
            open.unlinked.store(false, Ordering::Relaxed);
        }
    }

    fn let_go(&self, key: Key) {
        let mut shard = self.shard(key).lock();
        let unused = shard.get(&key).is_some_and(|o| Arc::strong_count(o) == 1 && o.may_go(&self.context));
        if unused && let Some(open) = shard.remove(&key) {
            self.departed(&open);
        }
    }

    /// The change time to show for a file that has `stored` in the store.
    pub fn ctime(&self, key: Key, stored: Time) -> Time {
        self.ctimes.shown(key, stored)
    }

    /// Says that an application changed a file's attributes or links: its change time is the store's again.
    pub fn changed(&self, key: Key) {
        self.ctimes.changed(key);
    }

    /// What a close of a file does: see [`File::flush_at_close`].
    ///
    /// # Errors
    /// As there.
    pub fn flush_at_close(&self, open: &OpenFile) -> Result<()> {
        self.ctimes.keep(open, || open.file.flush_at_close())
    }

    /// Flushes a file and makes it durable.
    ///
    /// # Errors
    /// As [`File::sync`].
    pub fn sync(&self, open: &OpenFile) -> Result<()> {
        self.ctimes.keep(open, || open.file.sync())
    }

    /// How many files have left the table so far. The count changes before a file can be missed.
    pub fn departures(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }

    /// Counts a file that leaves; to be called under its shard's lock.
    fn departed(&self, open: &OpenFile) {
        if open.file.sync_failed() && !open.unlinked.load(Ordering::Relaxed) {
            self.lost.store(true, Ordering::Relaxed);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.departures.fetch_add(1, Ordering::Release);
    }

    pub(super) fn all(&self) -> Vec<Arc<OpenFile>> {
        self.shards.iter().flat_map(|s| s.lock().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Lets go of every file that nobody uses and that is at rest.
    fn reap(&self) {
        for shard in &self.shards {
            shard.lock().retain(|_, open| {
                let stay = Arc::strong_count(open) > 1 || !open.may_go(&self.context);
                if !stay {
                    self.departed(open);
                }
                stay
            });
        }
    }

    /// Before another file is opened: has the keeper make room, and does it itself where that is late.
    fn find_room(&self) {
        match self.crowds() {
            0 => {}
            crowds if crowds < PATIENCE => {
                self.wake.notify_all();
            }
            _ => self.make_room(),
        }
    }

    /// How many times too many files there are.
    fn crowds(&self) -> usize {
        let count = self.count.load(Ordering::Relaxed);
        count.saturating_sub(self.in_use.load(Ordering::Relaxed)) / self.crowd
    }

    /// Brings the files to rest that nobody uses.
    fn make_room(&self) {
        self.reap();
        if self.crowds() > 0 {
            // One reference is the table's, one this snapshot's.
            let unused = self.all().into_iter().filter(|open| Arc::strong_count(open) == 2).collect();
            self.bring_to_rest(unused);
            self.reap();
            self.in_use.store(self.count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn tick(&self) {
        if self.context.router.buffers.rest() {
            process::give_back_memory();
        }
        if self.crowds() > 0 {
            self.make_room();
        }
        let (mut idle, mut busy) = (Vec::new(), Vec::new());
        for open in self.all() {
            open.file.rest_readers();
            if open.unlinked.load(Ordering::Relaxed) || open.file.at_rest() || open.file.failed() {
                continue;
            }
            if open.file.changed_at().elapsed() >= IDLE {
                idle.push(open);
            } else if open.file.uncommitted_for() >= COMMIT_AFTER {
                busy.push(open);
            }
        }
        for open in busy {
            if let Err(e) = self.sync(&open) {
                open.complain(&e);
            }
        }
        if self.resting.lock().elapsed() >= ROUND {
            self.bring_to_rest(idle);
        }
        self.reap();
        self.in_use.fetch_min(self.count.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Flush, sync, settle, sync, clean records: one pair of syncs for all of them.
    pub(super) fn bring_to_rest(&self, files: Vec<Arc<OpenFile>>) {
        if self.context.read_only || files.is_empty() {
            return;
        }
        let mut rested = self.resting.lock();
        let flush = |open: Arc<OpenFile>| {
            let flushed = match open.file.is_flushed() {
                true => open.file.rest_flush(),
                false => self.ctimes.keep(&open, || open.file.rest_flush()),
            };
            match flushed {
                Ok(rest) => Some((open, rest)),
                Err(e) => {
                    open.complain(&e);
                    None
                }
            }
        };
        let flushed: Vec<_> = files.into_iter().filter_map(flush).collect();
        let flushed = self.sync_rested(flushed);
        let settle = |(open, rest): &(Arc<OpenFile>, Rest)| match self
            .ctimes
            .keep(open, || open.file.rest_settle(*rest))
        {
            Ok(more) => more,
            Err(e) => {
                open.complain(&e);
                false
            }
        };
        let settled: Vec<_> = flushed.into_iter().filter(settle).collect();
        for (open, rest) in self.sync_rested(settled) {
            match self.ctimes.keep(&open, || open.file.rest_finish(rest)) {
                Ok(()) => open.complained.store(false, Ordering::Relaxed),
                Err(e) => open.complain(&e),
            }
        }
        *rested = Instant::now();
    }

    /// Makes what these files wrote durable and returns those for which that is known.
    fn sync_rested(&self, files: Vec<(Arc<OpenFile>, Rest)>) -> Vec<(Arc<OpenFile>, Rest)> {
        let mut each = files.len() <= SYNC_EACH;
        if !each && let Err(e) = (self.sync_store)() {
            log::error!("the store cannot be synced: {e}");
            each = true; // tells which files it concerns
        }
        let synced = |(open, _): &(Arc<OpenFile>, Rest)| {
            let done = !each && open.key.0 == self.device;
            done || open.file.rest_sync().inspect_err(|e| open.complain(e)).is_ok()
        };
        files.into_iter().filter(synced).collect()
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The first file's that could not be stored.
    pub fn sync_all(&self) -> Result<()> {
        let files = self.all();
        files.iter().filter(|o| !o.file.at_rest() && !self.context.read_only).try_for_each(|o| o.file.sync())
    }

    /// Flushes everything, makes it durable, writes the clean records and ends the keeper.
    ///
    /// # Errors
    /// The first file's that could not be stored; EIO if one could not before, whoever heard of it.
    pub fn shut_down(&self) -> Result<()> {
        *self.stop.lock() = true;
        self.wake.notify_all();
        if let Some(keeper) = self.keeper.lock().take()
            && keeper.thread().id() != std::thread::current().id()
        {
            let _ = keeper.join();
        }
        if self.context.read_only {
            return Ok(());
        }
        let left: Vec<_> = self
            .all()
            .into_iter()
            .filter(|o| !o.unlinked.load(Ordering::Relaxed) && !o.file.at_rest())
            .collect();
        let flushed: Result<()> = left.iter().try_for_each(|open| open.file.flush());
        self.bring_to_rest(left.clone());
        // What could not be brought to rest may be durable all the same.
        let durable = left.iter().filter(|o| !o.file.at_rest()).try_for_each(|o| o.file.sync());
        drop(left);
        self.reap();
        flushed.and(durable)?;
        if self.lost.load(Ordering::Relaxed) { Err(Error::os(libc::EIO)) } else { Ok(()) }
    }
}

/// How many files are a crowd, with what the process may open in all.
fn crowd() -> usize {
    (process::descriptors() / SHARE / PATIENCE).clamp(1, CROWD)
}

fn keep(files: &Weak<Files>) {
    loop {
        let Some(files) = files.upgrade() else { return };
        let mut stop = files.stop.lock();
        if !*stop {
            files.wake.wait_for(&mut stop, TICK);
        }
        if *stop {
            return;
        }
        drop(stop);
        files.tick();
    }
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
