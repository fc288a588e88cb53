//! The content of one file over a `BackingFile`: reading, writing, commit and recovery.
//!
//! | module | purpose |
//! |---|---|
//! | `state` | in-memory state of the file: stored version, pending writes, times |
//! | `record`, `tree` | stored version: commit records; slots and digests (limited by `slot_memory`) |
//! | `buffer`, `in_flight`, `gaps` | pending writes: buffered, in flight, still in the kernel |
//! | `read` | reads, including read-ahead |
//! | `write`, `flush`, `commit` | writes: into the buffer, out of it, and to the store |
//! | `recover` | recovery after a crash |
//! | `rebuild` | repair of a damaged file |
//! | `rekey` | rewriting a file under another key |
//! | `lease` | files that other machines may write, too |
//! | `lost` | files whose lease the store revoked |
//! | `bound` | newest record known to be durable, for a keeper outside the store |
//! | `space` | free space in the store |
//! | `segments` | ranges of a damaged file that still verify |
//! | `background` | threads for read-ahead, sealing and storing |
//! | `away` | open files while the vault is locked |
//! | `rules` | the rules of the commit protocol, by name |

// In tests, the store fails on command.
#[cfg(test)]
extern crate store_testing as store;

mod away;
mod background;
mod bound;
mod breakable;
mod budget;
mod buffer;
mod check;
mod chunk_range;
mod commit;
mod damage;
mod error;
mod flush;
mod gaps;
mod in_flight;
mod keys;
mod lease;
pub mod lease_rules;
mod lock;
mod lost;
mod read;
mod rebuild;
mod record;
mod recover;
mod rekey;
mod rules;
mod segments;
mod slot_memory;
mod space;
mod state;
pub mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod time;
mod tree;
mod write;

use commit::SyncKind;
use engine::Router;
use lease::Lease;
use lock::StateLock;
use read::Ahead;
use record::OnDisk;
use recover::Header;
use rules::{Rule, holds};
use state::{Fault, State};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use store::BackingFile;
use sync::Mutex;

pub use background::Background;
pub use bound::{Bound, Bounds};
pub use budget::Budget;
pub use buffer::Buffered;
pub use commit::CleanStep;
pub use error::{Damage, Error, Mismatch, RecordOrder, Refused, Result};
pub use keys::{Accept, ContentKeys, Generation, Generations};
pub use lease::Stamp;
pub use lease::wait_for;
pub use lease_rules::LeaseRule;
pub use lost::is_passing;
pub use read::{ReadAheadMemory, SmallRead};
pub use rebuild::Rebuilt;
pub use rekey::{Rewrite, Rewrites, Sectors};
pub use segments::{Segment, each_piece, next_range};
pub use slot_memory::SlotMemory;
pub use space::Space;
pub use time::Time;

/// Crashes that an overwrite survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Any crash, including a power cut.
    #[default]
    Strict,
    /// A kill. A power cut may damage chunks that were being overwritten.
    Relaxed,
}

/// Clears a stored file that has no record.
pub type Vacate = Box<dyn Fn(&dyn BackingFile) -> std::io::Result<()> + Send + Sync>;

/// Fails if this process may no longer write.
pub type Guard = Box<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// Shared by all files of a vault.
pub struct Context {
    /// Derives the keys of files.
    pub keys: ContentKeys,
    /// Seals and opens chunks.
    pub router: Router,
    /// Crashes that an overwrite survives.
    pub durability: Durability,
    /// Nothing may be written; recovery stays in memory.
    pub read_only: bool,
    /// Set if other machines may write the files, too: how long to wait for a lease that one of them
    /// holds.
    pub sharing: Option<Duration>,
    /// Called before anything is written. Fails if another process holds the vault, or has held it
    /// meanwhile.
    pub guard: Guard,
    /// Whether the store overwrites data in place, so that an overwrite needs no new space.
    pub overwrites_in_place: bool,
    /// Tracks the store's free space.
    pub space: Space,
    /// Called before the first record is written to a stored file that was found without one. Copies the
    /// bytes behind the blank header elsewhere, and drops attributes, which are bound to the lost salt.
    pub vacate: Vacate,
    /// Rewrites files under another key; `None` if that never happens.
    pub rewrites: Option<Box<dyn Rewrites>>,
    /// Keeps track of durable records outside the store; `None` without such a keeper.
    pub bounds: Option<Arc<dyn Bounds>>,
    /// Counts the chunks of all files that are written but not yet stored.
    pub buffered: Arc<Buffered>,
    /// Memory for the read-ahead of all files.
    pub ahead: Arc<ReadAheadMemory>,
    /// Memory for leaves of slots.
    pub slots: SlotMemory,
    /// Memory limits for these.
    pub budget: Budget,
    /// Threads for read-ahead, sealing and storing.
    pub background: Background,
}

/// The content of one open file. All methods may be called from several threads.
pub struct File {
    context: Arc<Context>,
    store: Arc<dyn BackingFile>,
    lease: Lease,
    state: StateLock,
    ahead: Mutex<Ahead>,
}

impl File {
    /// Opens the stored file, and recovers it if a crash left it dirty.
    ///
    /// # Errors
    /// `Damaged` if the commit records do not authenticate or contradict the stored data; otherwise the
    /// store's.
    pub fn open(store: Arc<dyn BackingFile>, context: Arc<Context>) -> Result<Arc<File>> {
        if context.sharing.is_some() {
            let file = File::over(store, context);
            file.refresh()?;
            return Ok(Arc::new(file));
        }
        let mut header = Header::read(&*store)?;
        let store = match rekey::finish(&store, &header, &context)? {
            Some(finished) => {
                header = Header::read(&*finished)?;
                finished
            }
            None => store,
        };
        let file = File::over(store, context);
        file.require_accepted(&header)?;
        file.load(&mut file.state.write(), file.store.len()?, &header)?;
        Ok(Arc::new(file))
    }

    /// A newly created file. `store` is known to be empty, so it is not read.
    pub fn fresh(store: Arc<dyn BackingFile>, context: Arc<Context>) -> Arc<File> {
        let file = File::over(store, context);
        file.state.write().stored.is_new = true;
        Arc::new(file)
    }

    fn over(store: Arc<dyn BackingFile>, context: Arc<Context>) -> File {
        let state = StateLock::new(State::never_committed(&context));
        let router = &context.router;
        // A GPU is fastest with the longest windows.
        let threads = if router.opens_in_place() { router.threads() } else { usize::MAX };
        let ahead = Mutex::new(Ahead::new(context.ahead.clone(), context.budget.ahead, threads));
        File { context, store, lease: Lease::default(), state, ahead }
    }

    /// Whether the file was never committed although the stored file is not empty.
    pub fn is_blank(&self) -> bool {
        self.state.read().stored.records.on_disk == OnDisk::Nothing
            && self.store.is_empty().is_ok_and(|empty| !empty)
    }

    /// Size of the plaintext in bytes.
    pub fn size(&self) -> u64 {
        self.state.read().dirty.size
    }

    /// The application's modification time, if the store's may differ.
    pub fn mtime(&self) -> Option<Time> {
        self.state.read().times.mtime
    }

    /// When the application last changed the content since the file was opened.
    pub fn written_at(&self) -> Option<Time> {
        self.state.read().times.written_at
    }

    /// Writes buffered data to the store. The data then survives a kill, but not yet a power cut.
    ///
    /// # Errors
    /// The store's. Data that could not be written stays buffered.
    pub fn flush(&self) -> Result<()> {
        let mut st = self.state.write();
        if self.lease.is_held() {
            self.refuse_lost()?; // The lease was given back, so nothing is left that could fail.
        }
        let flushed = self.flush_all(&mut st);
        self.recheck_lease_on_error(&mut st, flushed)
    }

    /// Flushes, and makes the result durable.
    ///
    /// # Errors
    /// The store's. After a failed fdatasync, the file accepts no writes until it is closed and opened
    /// again, because a later success would prove nothing.
    pub fn sync(&self) -> Result<()> {
        self.sync_as(SyncKind::Content)
    }

    /// Like `sync`, but also syncs owner, permissions, times and attributes.
    ///
    /// # Errors
    /// As `sync`.
    pub fn sync_whole(&self) -> Result<()> {
        self.sync_as(SyncKind::Whole)
    }

    fn sync_as(&self, what: SyncKind) -> Result<()> {
        let mut st = self.state.write();
        if self.context.read_only {
            return Ok(());
        }
        if self.lacks_lease() {
            drop(st);
            // Giving back the lease made the content durable. Metadata changes without a lease.
            return match what {
                SyncKind::Content => Ok(()),
                SyncKind::Whole => Ok(self.store.sync_whole()?),
            };
        }
        let synced = self.sync_all(&mut st, what);
        self.recheck_lease_on_error(&mut st, synced)
    }

    fn sync_all(&self, st: &mut State, what: SyncKind) -> Result<()> {
        self.begin_change(st)?;
        self.flush_all(st)?;
        self.commit_with(st, what)
    }

    /// The file's salt. If nothing was ever committed, there is none; with `create`, an empty version is
    /// written first, so that a kill cannot separate the salt from data bound to it.
    ///
    /// # Errors
    /// As `sync`; EIO while it is unknown whether there is a salt.
    pub fn salt(&self, create: bool) -> Result<Option<[u8; 32]>> {
        if create {
            let mut st = self.state_to_change()?;
            if st.stored.records.on_disk == OnDisk::Nothing {
                self.flush_record(&mut st)?;
            }
        }
        let st = self.state.read();
        if let Some(Fault::Broken | Fault::Away | Fault::Lost) = st.fault {
            return Err(Error::os(libc::EIO));
        }
        let on_disk = st.stored.records.on_disk != OnDisk::Nothing;
        Ok(st.stored.identity.as_ref().filter(|_| on_disk).map(|identity| identity.id.salt))
    }

    /// The newest record that is known to be durable.
    pub fn durable(&self) -> Option<Bound> {
        let st = self.state.read();
        if holds(Rule::BoundAfterSync) { st.stored.durable } else { st.stored.records.newest_bound() }
    }

    /// Whether the store holds everything that was written. A power cut may still lose it.
    pub fn is_stored(&self) -> bool {
        self.state.read().is_stored()
    }

    /// Whether the store holds everything under a clean record. For a shared file: whether this process
    /// holds no lease.
    pub fn is_clean(&self) -> bool {
        match self.context.sharing {
            Some(_) => !self.lease.is_held(),
            None => self.state.read().is_clean(),
        }
    }

    /// When the content last changed, either in memory or in the store.
    pub fn changed_at(&self) -> Instant {
        self.state.read().times.changed_at
    }

    /// Drops the read-ahead windows. Called after the last reader has closed the file.
    pub fn end_readers(&self) {
        self.ahead.lock().end();
    }

    /// Drops the read-ahead windows of idle readers, and the cached slots of a clean file.
    pub fn drop_idle_readers(&self) {
        let idle = self.ahead.lock().end_if_idle();
        if idle
            && let Some(mut st) = self.state.try_write()
            && st.is_clean()
        {
            st.stored.tree.drop_leaves();
        }
    }

    /// Age of the oldest change that is not durable yet.
    pub fn uncommitted_for(&self) -> Duration {
        self.state.read().times.uncommitted_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether an fdatasync failed, a panic left the state unusable, or the store revoked the lease.
    /// Earlier writes may be lost even though nothing is buffered any more.
    pub fn sync_failed(&self) -> bool {
        match self.state.read().fault {
            Some(Fault::SyncFailed | Fault::Broken) => true,
            Some(Fault::Lost) => self.lease.is_held(),
            Some(Fault::WrongLength(_) | Fault::NotRecovered | Fault::Away) | None => false,
        }
    }

    /// Whether the file must not be stored: an fdatasync failed, so only opening the file again can tell
    /// what is stored; a recovery could not be written, and nothing was written since; or the vault is
    /// locked.
    pub fn failed(&self) -> bool {
        match self.state.read().fault {
            Some(Fault::SyncFailed | Fault::NotRecovered | Fault::Broken | Fault::Away | Fault::Lost) => true,
            Some(Fault::WrongLength(_)) | None => false,
        }
    }
}
