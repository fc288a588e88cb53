//! The open files: one `OpenFile` for each inode. The `flusher` cleans idle ones.
//!
//! A file stays in the table after its last handle is closed, until the store holds all of it under a
//! clean record. Closing therefore costs no sync, and reopening a file that was just written needs no
//! recovery.

mod away;
mod flusher;
#[cfg(test)]
pub(super) mod mortal;

use super::{
    ctime::ChangeTimes,
    open_file::{Key, OpenFile},
    process,
    sharing::{SharingRule, holds},
};
use content::{
    Context, Error, File, Result, Time, is_passing,
    sync::{Condvar, Mutex},
};
use flusher::Hurry;
use format::change_times::ChangeTime;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};
use store::{BackingFile, DirFile};

/// Number of unused files to keep before the flusher cleans all of them at once.
const CROWD: usize = 2048;
/// At this many crowds, `find_room` makes room itself before another file is opened.
const PATIENCE: usize = 4;
/// `PATIENCE` crowds may use one part in `SHARE` of the process's descriptors.
const SHARE: usize = 2;
const SHARDS: usize = 64;

#[derive(Default)]
struct TableShard {
    files: Mutex<HashMap<Key, TableEntry>>,
    opened: Condvar,
}

/// State of an inode in the table.
enum TableEntry {
    Open(Arc<OpenFile>),
    /// Another thread is reading its records. It may have to recover the file, which can take time
    /// proportional to the file's size. The inode's last link may be removed meanwhile.
    Opening {
        unlinked: bool,
    },
}

impl TableEntry {
    fn open(&self) -> Option<&Arc<OpenFile>> {
        match self {
            TableEntry::Open(open) => Some(open),
            TableEntry::Opening { .. } => None,
        }
    }
}

/// An inode that is being opened. Dropping it removes the `Opening` entry, if it is still there, and
/// wakes waiters.
struct Opening<'a> {
    shard: &'a TableShard,
    key: Key,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut files = self.shard.files.lock();
        if matches!(files.get(&self.key), Some(TableEntry::Opening { .. })) {
            files.remove(&self.key);
        }
        self.shard.opened.notify_all();
    }
}

/// Makes everything written to the store durable (syncfs). Returns `Unsupported` if the store can only
/// sync single files.
pub type SyncStore = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// The open files of a vault.
pub struct Files {
    context: Arc<Context>,
    shards: Vec<TableShard>,
    count: AtomicUsize,
    departures: AtomicU64,
    crowd: usize,
    pace: flusher::FlushPace,
    /// Files that remained when room was last made, not counting those opened since. They are considered
    /// in use.
    in_use: AtomicUsize,
    /// Held while unused files are cleaned. Cleaning holds references, so a second pass at the same time
    /// would consider those files used.
    room: Mutex<()>,
    /// Whether a file left the table whose data may be lost.
    lost: AtomicBool,
    device: u64,
    sync_store: SyncStore,
    ctimes: ChangeTimes,
    /// Files that a program closed and that still have to be flushed.
    hurry: Mutex<Hurry>,
    /// Held while files are cleaned. The value is when that last ended.
    cleaned: Mutex<Instant>,
    stop: Mutex<bool>,
    /// Held by the flusher while it works. True while the flusher must not touch the files, because the
    /// vault is locked or at rest.
    halted: Mutex<bool>,
    wake: Condvar,
    flusher: Mutex<Option<JoinHandle<()>>>,
    /// How long the simulated process lives.
    #[cfg(test)]
    pub(super) life: Arc<mortal::Life>,
}

impl Files {
    /// Number of open files, including those kept for a moment after their last close.
    pub fn open_count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Creates an empty table and starts its flusher. `device` is the store's device number, and
    /// `sync_store` calls the store's syncfs.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(context: Arc<Context>, device: u64, sync_store: SyncStore) -> io::Result<Arc<Files>> {
        let files = Arc::new(Files::without_flusher(context, device, sync_store));
        files.flush_when_scarce();
        let weak = Arc::downgrade(&files);
        let thread = std::thread::Builder::new().name("flusher".into()).spawn(move || flusher::run(&weak))?;
        *files.flusher.lock() = Some(thread);
        Ok(files)
    }

    /// Registers a callback that flushes all files when the store runs low on space.
    fn flush_when_scarce(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.context.space.flush_with(Box::new(move || {
            if let Some(files) = weak.upgrade() {
                files.flush_all();
            }
        }));
    }

    fn without_flusher(context: Arc<Context>, device: u64, sync_store: SyncStore) -> Files {
        Files {
            context,
            shards: (0..SHARDS).map(|_| TableShard::default()).collect(),
            count: AtomicUsize::new(0),
            departures: AtomicU64::new(0),
            crowd: crowd(),
            pace: flusher::FlushPace::USUAL,
            in_use: AtomicUsize::new(0),
            room: Mutex::new(()),
            lost: AtomicBool::new(false),
            ctimes: ChangeTimes::default(),
            device,
            sync_store,
            hurry: Mutex::default(),
            cleaned: Mutex::new(Instant::now()),
            stop: Mutex::new(false),
            halted: Mutex::new(false),
            wake: Condvar::new(),
            flusher: Mutex::new(None),
            #[cfg(test)]
            life: Arc::new(mortal::Life::endless()),
        }
    }

    /// The backing file that a file is stored through.
    #[cfg(not(test))]
    #[allow(clippy::unused_self)]
    fn backing(&self, store: &Arc<DirFile>) -> Arc<dyn BackingFile> {
        store.clone()
    }

    #[cfg(test)]
    fn backing(&self, store: &Arc<DirFile>) -> Arc<dyn BackingFile> {
        Arc::new(mortal::Mortal { store: store.clone(), life: self.life.clone() })
    }

    /// State shared by all files.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    fn shard(&self, key: Key) -> &TableShard {
        let hash = (key.0 ^ key.1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(hash >> 58) as usize % SHARDS]
    }

    /// The open file of an inode, if it is open (or kept to be cleaned).
    pub fn get(&self, key: Key) -> Option<Arc<OpenFile>> {
        self.shard(key).files.lock().get(&key)?.open().cloned()
    }

    /// Returns the open file of an inode: the one in the table, or a new one over `store`. If the one in
    /// the table has a read-only descriptor and `store` is writable, it takes over the descriptor of
    /// `store`.
    ///
    /// # Errors
    /// As `File::open`.
    pub fn open(&self, key: Key, store: DirFile) -> Result<Arc<OpenFile>> {
        self.open_by(key, store, |store| File::open(self.backing(store), self.context.clone()))
    }

    /// Implements `open`. `load` opens the content behind the descriptor.
    fn open_by(
        &self,
        key: Key,
        store: DirFile,
        load: impl FnOnce(&Arc<DirFile>) -> Result<Arc<File>>,
    ) -> Result<Arc<OpenFile>> {
        self.find_room();
        let shard = self.shard(key);
        let mut files = shard.files.lock();
        let unlinked = loop {
            match files.get(&key) {
                Some(TableEntry::Open(open)) => {
                    let open = open.clone();
                    if store.writable() && !open.store.writable() {
                        drop(files);
                        open.file.lease().between_locks(|| open.store.take_over(store))?;
                        open.file.lease().refresh()?;
                        return Ok(open);
                    }
                    drop(files);
                    match open.file.lease().refresh() {
                        Err(e) if self.is_cut_off(&open, &store, &e) => {
                            files = shard.files.lock();
                            if matches!(files.get(&key), Some(TableEntry::Open(there)) if Arc::ptr_eq(there, &open))
                            {
                                self.departed(&open);
                                break open.unlinked.load(Ordering::Relaxed);
                            }
                        }
                        known => return known.map(|()| open),
                    }
                }
                Some(TableEntry::Opening { .. }) => shard.opened.wait(&mut files),
                None => break false,
            }
        };
        files.insert(key, TableEntry::Opening { unlinked });
        drop(files);
        let opening = Opening { shard, key };
        let store = Arc::new(store);
        let file = load(&store)?;
        if file.is_blank() {
            log::warn!(
                "inode {}: begins with a blank header, so it reads as empty; what follows is kept",
                key.1
            );
        }
        let open = self.enter(&mut shard.files.lock(), file, store, key);
        drop(opening);
        self.note_durable(&open); // a recovery may have made its record durable
        Ok(open)
    }

    /// Whether a shared file can no longer be read through its descriptor, but can through `new`, and
    /// giving it up loses nothing. If so, the old file fails from then on.
    fn is_cut_off(&self, open: &OpenFile, new: &DirFile, why: &Error) -> bool {
        matches!(why, Error::Store(e) if !is_passing(e))
            && self.context.sharing.is_some()
            && holds(SharingRule::OpenAnew)
            && new.read_at(&mut [0], 0).is_ok()
            && open.file.lease().give_up()
    }

    /// The open file of an inode that was just created.
    pub fn create(&self, key: Key, store: DirFile) -> Arc<OpenFile> {
        self.find_room();
        let shard = self.shard(key);
        let mut files = shard.files.lock();
        loop {
            match files.get(&key) {
                // The search for an anchor's names may have opened it already.
                Some(TableEntry::Open(open)) if !open.unlinked.load(Ordering::Relaxed) => {
                    return open.clone();
                }
                Some(TableEntry::Open(_)) | None => break,
                Some(TableEntry::Opening { .. }) => shard.opened.wait(&mut files),
            }
        }
        let store = Arc::new(store);
        let file = File::fresh(self.backing(&store), self.context.clone());
        self.enter(&mut files, file, store, key)
    }

    fn enter(
        &self,
        files: &mut HashMap<Key, TableEntry>,
        file: Arc<File>,
        store: Arc<DirFile>,
        key: Key,
    ) -> Arc<OpenFile> {
        let open = Arc::new(OpenFile::new(file, store, key));
        if let Some(TableEntry::Opening { unlinked }) = files.insert(key, TableEntry::Open(open.clone())) {
            open.unlinked.store(unlinked, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        open
    }

    /// Ends a handle's use of a file. A clean file that nobody uses leaves the table.
    pub fn release(&self, open: Arc<OpenFile>) {
        let key = open.key;
        // One reference is the table's. A file that still has to be cleaned stays there.
        if Arc::strong_count(&open) == 2 {
            open.file.end_readers();
            // Stores what the kernel wrote for a mapping after the close. The flusher retries if this
            // fails.
            self.give_back(&open).unwrap_or_else(|e| open.complain(&e));
        }
        drop(open);
        self.let_go(key);
    }

    /// Whether a file is in use or still has to be cleaned. Waits for the flusher's current round, in
    /// which the flusher may hold a reference to any file.
    pub fn is_in_use(&self, key: Key) -> bool {
        let _between_rounds = self.halted.lock();
        self.let_go(key);
        self.get(key).is_some()
    }

    /// Records that the inode's last link is gone, so unflushed data need not be stored.
    pub fn forget(&self, key: Key) {
        self.ctimes.forget(key);
        self.note_unlinked(key, true);
        self.let_go(key);
    }

    /// Records that an inode has a link again (linkat of an open file).
    pub fn remember(&self, key: Key) {
        self.note_unlinked(key, false);
    }

    /// Also works while the file is being opened.
    fn note_unlinked(&self, key: Key, is: bool) {
        match self.shard(key).files.lock().get_mut(&key) {
            Some(TableEntry::Open(open)) => open.unlinked.store(is, Ordering::Relaxed),
            Some(TableEntry::Opening { unlinked }) => *unlinked = is,
            None => {}
        }
    }

    fn let_go(&self, key: Key) {
        let mut files = self.shard(key).files.lock();
        let open = files.get(&key).and_then(TableEntry::open);
        let unused = open.filter(|open| Arc::strong_count(open) == 1 && open.may_go(&self.context));
        if let Some(open) = unused {
            self.departed(open);
            files.remove(&key);
        }
    }

    /// Runs `work` on a file so that the change time shown for the file stays the same. `work` must not
    /// change anything that an application sees.
    pub(super) fn keep_ctime<T>(&self, open: &OpenFile, work: impl FnOnce() -> T) -> T {
        self.ctimes.keep(open, work)
    }

    /// The change time to show for a file whose change time in the store is `stored`.
    pub fn ctime(&self, key: Key, stored: Time) -> Time {
        self.ctimes.shown(key, stored)
    }

    /// Records that an application changed a file's attributes or links. The store's change time is
    /// shown again.
    pub fn changed(&self, key: Key) {
        self.ctimes.changed(key);
    }

    /// The change times to show the next time the vault is opened.
    pub(super) fn remembered_ctimes(&self) -> Vec<ChangeTime> {
        self.ctimes.remembered(self.device)
    }

    /// Loads the change times remembered when the vault was last open. Call before any file is used.
    pub(super) fn recall_ctimes(&self, times: &[ChangeTime]) {
        self.ctimes.recall(self.device, times);
    }

    /// The work done when a file is closed. See [`File::flush_at_close`].
    ///
    /// # Errors
    /// As there.
    pub fn flush_at_close(&self, open: &OpenFile) -> Result<()> {
        if self.context.sharing.is_some() {
            return self.give_back(open);
        }
        self.ctimes.keep(open, || open.file.flush_at_close())?;
        if !open.file.is_stored() {
            self.hurry(open.key);
        }
        Ok(())
    }

    /// Stores all of a shared file and releases its lease, so that other machines see the file.
    ///
    /// # Errors
    /// As [`File::give_back`].
    pub(super) fn give_back(&self, open: &OpenFile) -> Result<()> {
        if self.context.sharing.is_none() || open.file.is_clean() {
            return Ok(());
        }
        self.ctimes.keep(open, || open.file.lease().give_back())
    }

    /// Flushes a file and makes it durable.
    ///
    /// # Errors
    /// As [`File::sync`].
    pub fn sync(&self, open: &OpenFile) -> Result<()> {
        self.ctimes.keep(open, || open.file.sync())?;
        self.note_durable(open);
        Ok(())
    }

    /// Flushes a file and makes it durable, including its owner, permissions, times and attributes.
    ///
    /// # Errors
    /// As [`File::sync`].
    pub fn sync_whole(&self, open: &OpenFile) -> Result<()> {
        self.ctimes.keep(open, || open.file.sync_whole())?;
        self.note_durable(open);
        Ok(())
    }

    /// Tells the keeper of bounds, such as an anchor, which record of a file is durable, unless the
    /// file's last link is gone.
    pub(super) fn note_durable(&self, open: &OpenFile) {
        if let Some(bounds) = &self.context.bounds
            && !open.unlinked.load(Ordering::Relaxed)
            && let Some(durable) = open.file.durable()
        {
            bounds.note(durable);
        }
    }

    /// Number of files that have left the table so far. The count changes before a lookup can miss the
    /// file.
    pub fn departures(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }

    /// Counts a file that leaves the table. The caller holds its shard's lock.
    fn departed(&self, open: &OpenFile) {
        if open.file.sync_failed() && !open.unlinked.load(Ordering::Relaxed) {
            self.lost.store(true, Ordering::Relaxed);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.departures.fetch_add(1, Ordering::Release);
    }

    pub(super) fn all(&self) -> Vec<Arc<OpenFile>> {
        let open = |shard: &TableShard| {
            Vec::from_iter(shard.files.lock().values().filter_map(TableEntry::open).cloned())
        };
        self.shards.iter().flat_map(open).collect()
    }

    /// Drops every file that is clean and not in use.
    fn reap(&self) {
        for shard in &self.shards {
            shard.files.lock().retain(|_, entry| {
                let Some(open) = entry.open() else { return true };
                let stay = Arc::strong_count(open) > 1 || !open.may_go(&self.context);
                if !stay {
                    self.departed(open);
                }
                stay
            });
        }
    }

    /// Called before another file is opened. Wakes the flusher to make room, or makes room itself if the
    /// flusher is too far behind.
    fn find_room(&self) {
        match self.crowds() {
            0 => {}
            crowds if crowds < PATIENCE => {
                self.wake.notify_all();
            }
            _ => self.make_room(),
        }
    }

    /// By how many crowds the table exceeds the files in use.
    fn crowds(&self) -> usize {
        let count = self.count.load(Ordering::Relaxed);
        count.saturating_sub(self.in_use.load(Ordering::Relaxed)) / self.crowd
    }

    /// Cleans and drops the files that nobody uses.
    fn make_room(&self) {
        let _room = self.room.lock();
        self.reap();
        if self.crowds() > 0 {
            let (before, departures) = (self.count.load(Ordering::Relaxed), self.departures());
            // One reference is the table's, the other this snapshot's.
            let unused = self.all().into_iter().filter(|open| Arc::strong_count(open) == 2).collect();
            self.clean(unused);
            self.reap();
            // Files opened meanwhile do not count as in use, so they are cleaned next.
            let left = (self.departures() - departures) as usize;
            self.in_use.store(before.saturating_sub(left), Ordering::Relaxed);
        }
    }
}

/// Number of files that make a crowd, limited by the process's descriptors.
fn crowd() -> usize {
    (process::descriptors() / SHARE / PATIENCE).clamp(1, CROWD)
}

#[cfg(test)]
mod tests;
