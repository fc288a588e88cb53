//! One file's content over a `BackingFile`: reading, writing, commit, recovery.
//!
//! | module | what |
//! |---|---|
//! | `state` | what is known of the file: what the store has, what waits to be written, times |
//! | `record`, `tree` | the parts of what the store has: commit records; slots and digests, of which `slot_memory` bounds how many stay in memory |
//! | `buffer`, `in_flight`, `gaps` | the parts of what waits: chunks that were written, those on their way to the store, and bytes that the kernel still has |
//! | `read` | the way of a byte to the application |
//! | `write`, `flush`, `commit` | its way into the buffer, out of it, and to the store |
//! | `recover` | what a crash on that way leaves to do |
//! | `rebuild` | what can be made of a damaged file |
//! | `rekey` | another key for a file |
//! | `lease` | a file that other machines may write, too |
//! | `lost` | one whose lease the store took away |
//! | `bound` | which record is durable, for whoever keeps that elsewhere |
//! | `space` | how much room the store has |
//! | `segments` | all that verifies, around what does not |
//! | `background` | threads for read-ahead, and for sealing and storing |
//! | `away` | an open file while the vault is locked |
//! | `rules` | the rules of the commit protocol, by name |

mod away;
mod background;
mod bound;
mod buffer;
mod check;
mod chunk_range;
mod commit;
mod damage;
mod flush;
mod gaps;
mod in_flight;
mod lease;
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
#[cfg(test)]
pub(super) mod tests;
mod tree;
mod write;

use super::{Error, Result, Time, keys::ContentKeys, resources::Budget, sync::Mutex};
use crate::{engine::Router, store::BackingFile};
use commit::SyncKind;
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

pub use background::Background;
pub use bound::{Bound, Bounds};
pub use buffer::Buffered;
pub use commit::CleanStep;
pub use lease::Stamp;
pub(super) use lease::wait_for;
pub use lost::is_passing;
pub use read::{ReadAheadMemory, SmallRead};
pub use rebuild::Rebuilt;
pub use rekey::{Rewrite, Rewrites, Sectors};
pub use segments::Segment;
pub(super) use segments::{each_piece, next_range};
pub use slot_memory::SlotMemory;
pub use space::Space;

/// What an overwrite survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Everything, a power cut too.
    #[default]
    Strict,
    /// A kill; a power cut may damage chunks that were being overwritten.
    Relaxed,
}

/// Clears a stored file that has no record.
pub type Vacate = Box<dyn Fn(&dyn BackingFile) -> std::io::Result<()> + Send + Sync>;

/// Whether this process may still write.
pub type Guard = Box<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// What all files of a vault share.
pub struct Context {
    /// Where the keys of files come from.
    pub keys: ContentKeys,
    /// Where chunks are sealed and opened.
    pub router: Router,
    /// What an overwrite survives.
    pub durability: Durability,
    /// Nothing may be written: recovery stays in memory.
    pub read_only: bool,
    /// Other machines may write the files, too; then, how long is waited for one that has a file's lease.
    pub sharing: Option<Duration>,
    /// Asked before something is written: fails if another process has the vault by now, or had it.
    pub guard: Guard,
    /// Whether the store overwrites data in place: then there is room for it.
    pub overwrites_in_place: bool,
    /// How much room the store has for more.
    pub space: Space,
    /// Called before a stored file that was found without a record gets its first one: keeps what stands behind the blank header
    /// elsewhere, and drops attributes, which are bound to a salt that is lost.
    pub vacate: Vacate,
    /// Where files are rewritten under another key; `None` where that never happens.
    pub rewrites: Option<Box<dyn Rewrites>>,
    /// Where it is kept which records are durable; `None` where nobody asks.
    pub bounds: Option<Arc<dyn Bounds>>,
    /// What was written to all files and is not in the store.
    pub buffered: Arc<Buffered>,
    /// What is opened ahead of the readers of all files.
    pub ahead: Arc<ReadAheadMemory>,
    /// Leaves of slots in memory.
    pub slots: SlotMemory,
    /// How much memory each of these may take.
    pub budget: Budget,
    /// Threads that open ahead.
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
    /// Opens what `store` holds, recovering it if a crash left it dirty.
    ///
    /// # Errors
    /// `Damaged` if the commit records do not authenticate, or contradict what is stored; else the store's.
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

    /// A file that was just made: `store` holds nothing, and need not be asked.
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

    /// Whether nothing was ever committed to it, although the store has more than nothing.
    pub fn is_blank(&self) -> bool {
        self.state.read().stored.records.on_disk == OnDisk::Nothing
            && self.store.is_empty().is_ok_and(|empty| !empty)
    }

    /// Plaintext bytes.
    pub fn size(&self) -> u64 {
        self.state.read().dirty.size
    }

    /// The application's modification time, if the store's may differ.
    pub fn mtime(&self) -> Option<Time> {
        self.state.read().times.mtime
    }

    /// When the application last changed the content, since the file was opened.
    pub fn written_at(&self) -> Option<Time> {
        self.state.read().times.written_at
    }

    /// Writes what is buffered to the store: survives a kill, not yet a power cut.
    ///
    /// # Errors
    /// The store's; what could not be written stays buffered.
    pub fn flush(&self) -> Result<()> {
        let mut st = self.state.write();
        if self.lease.is_held() {
            self.refuse_lost()?; // Nothing is left that could fail.
        }
        let flushed = self.flush_all(&mut st);
        self.suspecting(&mut st, flushed)
    }

    /// Flushes and makes durable.
    ///
    /// # Errors
    /// The store's. After a failed fdatasync the file takes no more writes until it was closed and opened
    /// again: a later success would prove nothing.
    pub fn sync(&self) -> Result<()> {
        self.sync_as(SyncKind::Content)
    }

    /// `sync`, and what the store has besides the content: owner, permissions, times, attributes.
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
            // Giving it back made the content durable. The rest changes without a lease.
            return match what {
                SyncKind::Content => Ok(()),
                SyncKind::Whole => Ok(self.store.sync_whole()?),
            };
        }
        let synced = self.sync_all(&mut st, what);
        self.suspecting(&mut st, synced)
    }

    fn sync_all(&self, st: &mut State, what: SyncKind) -> Result<()> {
        self.begin_change(st)?;
        self.flush_all(st)?;
        self.commit_with(st, what)
    }

    /// The file's salt. Without one (nothing was ever committed) `create` writes an empty version first: a kill
    /// must not leave what is bound to the salt without it.
    ///
    /// # Errors
    /// As `sync`; EIO where it is not known just now whether there is one.
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

    /// Whether the store holds all that was written; a power cut may still take it.
    pub fn is_stored(&self) -> bool {
        self.state.read().is_stored()
    }

    /// Whether the store holds all there is, under a clean record, and this process has no lease of the file.
    pub fn is_clean(&self) -> bool {
        match self.context.sharing {
            Some(_) => !self.lease.is_held(),
            None => self.state.read().is_clean(),
        }
    }

    /// When the content last changed, in the application's or the store's view.
    pub fn changed_at(&self) -> Instant {
        self.state.read().times.changed_at
    }

    /// Lets go of what was opened ahead of readers: the last one has closed the file.
    pub fn end_readers(&self) {
        self.ahead.lock().end();
    }

    /// Lets go of what was opened ahead of readers that stopped reading, and of the slots of a clean file.
    pub fn drop_idle_readers(&self) {
        let idle = self.ahead.lock().end_if_idle();
        if idle
            && let Some(mut st) = self.state.try_write()
            && st.is_clean()
        {
            st.stored.tree.drop_leaves();
        }
    }

    /// How long the oldest change has been waiting to become durable.
    pub fn uncommitted_for(&self) -> Duration {
        self.state.read().times.uncommitted_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether an fdatasync failed, or a panic left the state unusable, or the lease was taken away: what was written before may
    /// be gone, although nothing of it is left here.
    pub fn sync_failed(&self) -> bool {
        match self.state.read().fault {
            Some(Fault::SyncFailed | Fault::Broken) => true,
            Some(Fault::Lost) => self.lease.is_held(),
            Some(Fault::WrongLength(_) | Fault::NotRecovered | Fault::Away) | None => false,
        }
    }

    /// Whether nothing is to be brought to the store: an fdatasync failed, so that only opening the file
    /// again can tell what is stored; or a recovery could not be written, and nothing was since; or the vault is locked.
    pub fn failed(&self) -> bool {
        match self.state.read().fault {
            Some(Fault::SyncFailed | Fault::NotRecovered | Fault::Broken | Fault::Away | Fault::Lost) => true,
            Some(Fault::WrongLength(_)) | None => false,
        }
    }
}
