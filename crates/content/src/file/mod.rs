//! One open file: its public methods lock the state, wait for the lease where other machines may write, and
//! leave the work to the parts.
//!
//! A part is a type with the methods of one task. It is no more than a reference to the stored file, through
//! which it reaches the parts below. It gets the state from its caller, who has locked it:
//!
//! | part | task | uses |
//! |---|---|---|
//! | `RecordWriter` | records, epochs and syncs | – |
//! | `CrashRecovery` | reading the state from the store, recovery | `RecordWriter` |
//! | `Committer` | from the buffer to the store, commit | `CrashRecovery` |
//! | `Flusher` | what leaves the buffer, and when | `Committer` |
//! | `Cleaner` | the clean record | `Flusher` |
//! | `ChunkReader`, `RangeReader`, `ContentReader` | chunks; ranges; read-ahead | `Committer` |
//! | `ContentWriter` | changes in the buffer | `Flusher`, `ChunkReader` |
//! | `LeaseKeeper` | the lease of a shared file | `Cleaner`, `CrashRecovery` |
//! | `Rekeyer` | rewriting under another key | `Flusher`, other `File`s |

mod away;
mod rekey;
mod segments;

use super::{
    backing::Backing,
    bound::Bound,
    clean::Cleaner,
    context::Context,
    error::{Error, Result},
    file_core::FileCore,
    file_times::FileTimes,
    flush::Flusher,
    lease_keeper::{LeaseKeeper, LeaseTurns},
    lock::WriteGuard,
    read::{Ahead, ContentReader, RangeReader, SmallRead},
    record::OnDisk,
    record_writer::SyncKind,
    recover::{self, CrashRecovery, Header},
    rules::{Rule, holds},
    state::{Fault, Times},
    sync::Mutex,
    write::ContentWriter,
};
use crypto::chunk::CHUNK;
use format::layout;
use rekey::Rekeyer;
use std::sync::Arc;
use store::BackingFile;

pub use segments::{Segment, each_piece, each_segment, next_range};

/// The newest record of a stored file, if it is authentic; `None` if nothing was committed.
///
/// # Errors
/// `Damaged`, or the store's.
pub fn newest_record(store: Arc<dyn BackingFile>, context: Arc<Context>) -> Result<Option<Bound>> {
    recover::newest_record(&Backing::new(store, context))
}

/// The content of one open file. All methods may be called from several threads.
pub struct File {
    pub(super) core: Arc<FileCore>,
    ahead: Mutex<Ahead>,
    turns: LeaseTurns,
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
            file.lease().refresh()?;
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
        let recovery = CrashRecovery::of(&file.core.backing);
        recovery.require_accepted(&header)?;
        recovery.load(&mut file.core.state.write(), file.core.backing.store.len()?, &header)?;
        Ok(Arc::new(file))
    }

    /// A newly created file. `store` is known to be empty, so it is not read.
    pub fn fresh(store: Arc<dyn BackingFile>, context: Arc<Context>) -> Arc<File> {
        let file = File::over(store, context);
        file.core.state.write().stored.is_new = true;
        Arc::new(file)
    }

    fn over(store: Arc<dyn BackingFile>, context: Arc<Context>) -> File {
        let router = &context.router;
        // A GPU is fastest with the longest windows.
        let threads = if router.opens_in_place() { router.threads() } else { usize::MAX };
        let ahead = Mutex::new(Ahead::new(context.ahead.clone(), context.budget.ahead, threads));
        File { core: FileCore::new(store, context), ahead, turns: LeaseTurns::default() }
    }

    /// The steps towards a clean record.
    pub fn cleaner(&self) -> Cleaner<'_> {
        Cleaner::of(&self.core)
    }

    /// The file's lease.
    pub fn lease(&self) -> LeaseKeeper<'_> {
        LeaseKeeper::of(&self.core, &self.turns)
    }

    /// Whether the file was never committed although the stored file is not empty.
    pub fn is_blank(&self) -> bool {
        self.core.state.read().stored.records.on_disk == OnDisk::Nothing
            && self.core.backing.store.is_empty().is_ok_and(|empty| !empty)
    }

    /// Size of the plaintext in bytes.
    pub fn size(&self) -> u64 {
        self.core.state.read().dirty.size
    }

    /// The times of changes.
    pub fn times(&self) -> FileTimes<'_> {
        FileTimes::of(&self.core)
    }

    /// Reads up to `len` bytes, fewer only at the end of the file, and passes them to `give`. They are
    /// borrowed from a read-ahead window, from the buffer in which they were opened, or, for short reads,
    /// from `small`.
    ///
    /// # Errors
    /// `Damaged` if a chunk of the range, or a page above it, does not authenticate; `give` is then not
    /// called. Otherwise the store's.
    pub fn read_to<T>(
        &self,
        offset: u64,
        len: usize,
        small: &mut Vec<u8>,
        give: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let mut give = Some(give);
        self.lease().retry_under_lease(|| {
            ContentReader::of(&self.core, &self.ahead).read_to(offset, len, small, &mut give)
        })
    }

    /// Reads up to `out.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// As `read_to`; the content of `out` is then unspecified.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.lease().retry_under_lease(|| RangeReader::of(&self.core).read(offset, out))
    }

    /// Reads whole chunks directly into `out` and opens them there on the CPU. Returns the number of
    /// bytes: fewer only at the end of the file. `None` if `offset` or `out` would split a chunk.
    ///
    /// # Errors
    /// As `read_to`, and `Damaged` if the stored length is wrong. After an error, the content of `out` is
    /// unspecified.
    pub fn read_whole_chunks(&self, offset: u64, out: &mut [u8]) -> Result<Option<usize>> {
        let cut = !offset.is_multiple_of(layout::CHUNK) || !out.len().is_multiple_of(CHUNK);
        if cut {
            return Ok(None);
        }
        self.lease().retry_under_lease(|| RangeReader::of(&self.core).read_whole(offset, out)).map(Some)
    }

    /// Performs these reads. Each result is the number of bytes read, fewer than requested only at the
    /// end of the file, or an error as from [`File::read`].
    pub fn read_together(&self, reads: &mut [SmallRead]) -> Vec<Result<usize>> {
        ContentReader::of(&self.core, &self.ahead)
            .read_together(reads, |read| self.read(read.offset, read.out))
    }

    /// Writes all of `data`. It stays buffered until `flush`.
    ///
    /// # Errors
    /// `TooLarge`; or the error that earlier buffered data met on its way to the store. In that case,
    /// nothing of `data` was accepted.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.core.backing.find_space(data.len() as u64);
        let mut st = self.state_to_write()?;
        let written = ContentWriter::of(&self.core).write(&mut st, offset, data, Times::note_write);
        self.lease().recheck_lease_on_error(&mut st, written)
    }

    /// Like `write`, for data that the kernel gathered and writes later. The kernel sends the modification
    /// time separately, before or after. A known time is kept until then.
    ///
    /// # Errors
    /// As `write`.
    pub fn write_gathered(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.core.backing.find_space(data.len() as u64);
        let mut st = self.state_to_write()?;
        let written = ContentWriter::of(&self.core).write_gathered(&mut st, offset, data);
        self.lease().recheck_lease_on_error(&mut st, written)
    }

    /// Writes all of `data` at the end of the file, and returns its offset.
    ///
    /// # Errors
    /// As `write`.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.core.backing.find_space(data.len() as u64);
        let mut st = self.state_to_write()?;
        let offset = st.dirty.size;
        let written = ContentWriter::of(&self.core).write(&mut st, offset, data, Times::note_write);
        self.lease().recheck_lease_on_error(&mut st, written).map(|()| offset)
    }

    /// Truncates the file, or extends it with a hole.
    ///
    /// # Errors
    /// `TooLarge`, or the store's.
    pub fn truncate(&self, size: u64) -> Result<()> {
        if size > layout::MAX_SIZE {
            return Err(Error::TooLarge);
        }
        self.core.backing.find_space(0);
        let mut st = self.state_to_write()?;
        let resized = ContentWriter::of(&self.core).truncate(&mut st, size);
        self.lease().recheck_lease_on_error(&mut st, resized)
    }

    /// Makes a range read as zeros, by holes for whole chunks. Never changes the size.
    ///
    /// # Errors
    /// As `write`.
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let mut st = self.state_to_write()?;
        ContentWriter::of(&self.core).punch(&mut st, offset, len)
    }

    /// fallocate(2): reserves space in the store. Grows the file unless `keep_size`.
    ///
    /// # Errors
    /// `TooLarge`, or the store's (ENOSPC, EOPNOTSUPP).
    pub fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= layout::MAX_SIZE).ok_or(Error::TooLarge)?;
        // Buffered data must get its space first, in case this allocation takes all that is left.
        self.core.backing.find_space(len);
        let mut st = self.state_to_write()?;
        ContentWriter::of(&self.core).allocate(&mut st, offset, end, keep_size)
    }

    /// The state for a change of the content, which is under the present key then.
    fn state_to_write(&self) -> Result<WriteGuard<'_>> {
        let mut st = self.lease().state_to_change()?;
        Rekeyer::of(&self.core).renew(&mut st)?;
        Ok(st)
    }

    /// SEEK_DATA (`data`) or SEEK_HOLE from `offset`, at chunk granularity; the end of the file counts as
    /// a hole. Flushes first, because only the stored version knows its holes.
    ///
    /// # Errors
    /// `NoData` past the end, or if there is no more data.
    pub fn seek(&self, offset: u64, data: bool) -> Result<u64> {
        self.lease()
            .retry_under_lease(|| Flusher::of(&self.core).seek(&mut self.core.state.write(), offset, data))
    }

    /// Like `seek`, for a file treated as data throughout.
    ///
    /// # Errors
    /// `NoData` past the end; EIO if the content is lost.
    pub fn seek_in_data(&self, offset: u64, data: bool) -> Result<u64> {
        self.core.state.read().seek_in_data(offset, data)
    }

    /// Checks that the stored file has the length that its record implies.
    ///
    /// # Errors
    /// `Damaged` if not.
    pub fn check_length(&self) -> Result<()> {
        let st = self.core.state.read();
        st.check_readable(st.dirty.size)
    }

    /// Verifies the entries of a group of chunks.
    ///
    /// # Errors
    /// `Damaged` if the entries, or the nodes above them, do not verify.
    pub fn check_group(&self, group: u64) -> Result<()> {
        let mut st = self.core.state.write();
        let Some(identity) = st.stored.identity.clone() else { return Ok(()) };
        st.stored.tree.trim_cache();
        st.stored.tree.load(self.core.backing.source(&identity), group)
    }

    /// Whether the file is under a former key of the vault.
    pub fn has_former_key(&self) -> bool {
        Rekeyer::of(&self.core).has_former(&self.core.state.read())
    }

    /// Durably rewrites the file under the present key. Its salt stays the same. Other users of the file
    /// block meanwhile. Returns false if there was nothing to do. No pending write can be under a former
    /// key, because each write first puts the file under the present one. As long as the old form is
    /// whole, `go_on` decides whether to continue.
    ///
    /// # Errors
    /// EINTR if `go_on` returned false, with nothing changed; `Damaged` if part of the file cannot be
    /// read; the store's. If the old form is no longer whole, the file fails until it is opened again.
    pub fn rekey(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        Rekeyer::of(&self.core).rekey(&mut self.core.state.write(), go_on)
    }

    /// Writes buffered data to the store. The data then survives a kill, but not yet a power cut.
    ///
    /// # Errors
    /// The store's. Data that could not be written stays buffered.
    pub fn flush(&self) -> Result<()> {
        let mut st = self.core.state.write();
        if self.core.backing.lease.is_held() {
            // If the lease was given back, nothing is left that could fail.
            self.core.backing.lease.refuse_lost()?;
        }
        let flushed = Flusher::of(&self.core).flush_all(&mut st);
        self.lease().recheck_lease_on_error(&mut st, flushed)
    }

    /// Called on close. Flushes, unless that needs a sync, which closing a file does not ask for. Data
    /// that overwrites stored chunks then stays buffered for the flusher. But the store must have
    /// reserved space for it, because close is the last chance to report a full store.
    ///
    /// # Errors
    /// As `flush`; EIO if earlier writes could not be made durable.
    pub fn flush_at_close(&self) -> Result<()> {
        Flusher::of(&self.core).flush_at_close(&mut self.core.state.write())
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
        let mut st = self.core.state.write();
        if self.core.backing.context.read_only {
            return Ok(());
        }
        if self.core.backing.lacks_lease() {
            drop(st);
            // Giving back the lease made the content durable. Metadata changes without a lease.
            return match what {
                SyncKind::Content => Ok(()),
                SyncKind::Whole => Ok(self.core.backing.store.sync_whole()?),
            };
        }
        let synced = Flusher::of(&self.core).sync(&mut st, what);
        self.lease().recheck_lease_on_error(&mut st, synced)
    }

    /// The file's salt. If nothing was ever committed, there is none; with `create`, an empty version is
    /// written first, so that a kill cannot separate the salt from data bound to it.
    ///
    /// # Errors
    /// As `sync`; EIO while it is unknown whether there is a salt.
    pub fn salt(&self, create: bool) -> Result<Option<[u8; 32]>> {
        if create {
            let mut st = self.lease().state_to_change()?;
            if st.stored.records.on_disk == OnDisk::Nothing {
                Flusher::of(&self.core).flush_record(&mut st)?;
            }
        }
        let st = self.core.state.read();
        if let Some(Fault::Broken | Fault::Away | Fault::Lost) = st.fault {
            return Err(Error::os(libc::EIO));
        }
        let on_disk = st.stored.records.on_disk != OnDisk::Nothing;
        Ok(st.stored.identity.as_ref().filter(|_| on_disk).map(|identity| identity.id.salt))
    }

    /// The newest record that is known to be durable.
    pub fn durable(&self) -> Option<Bound> {
        let st = self.core.state.read();
        if holds(Rule::BoundAfterSync) { st.stored.durable } else { st.stored.records.newest_bound() }
    }

    /// Whether the store holds everything that was written. A power cut may still lose it.
    pub fn is_stored(&self) -> bool {
        self.core.state.read().is_stored()
    }

    /// Whether the store holds everything under a clean record. For a shared file: whether this process
    /// holds no lease.
    pub fn is_clean(&self) -> bool {
        match self.core.backing.context.sharing {
            Some(_) => !self.core.backing.lease.is_held(),
            None => self.core.state.read().is_clean(),
        }
    }

    /// Drops the read-ahead windows. Called after the last reader has closed the file.
    pub fn end_readers(&self) {
        self.ahead.lock().end();
    }

    /// Drops the read-ahead windows of idle readers, and the cached slots of a clean file.
    pub fn drop_idle_readers(&self) {
        let idle = self.ahead.lock().end_if_idle();
        if idle
            && let Some(mut st) = self.core.state.try_write()
            && st.is_clean()
        {
            st.stored.tree.drop_leaves();
        }
    }

    /// Whether an fdatasync failed, a panic left the state unusable, or the store revoked the lease.
    /// Earlier writes may be lost even though nothing is buffered any more.
    pub fn sync_failed(&self) -> bool {
        match self.core.state.read().fault {
            Some(Fault::SyncFailed | Fault::Broken) => true,
            Some(Fault::Lost) => self.core.backing.lease.is_held(),
            Some(Fault::WrongLength(_) | Fault::NotRecovered | Fault::Away) | None => false,
        }
    }

    /// Whether the file must not be stored: an fdatasync failed, so only opening the file again can tell
    /// what is stored; a recovery could not be written, and nothing was written since; or the vault is
    /// locked.
    pub fn failed(&self) -> bool {
        match self.core.state.read().fault {
            Some(Fault::SyncFailed | Fault::NotRecovered | Fault::Broken | Fault::Away | Fault::Lost) => true,
            Some(Fault::WrongLength(_)) | None => false,
        }
    }
}
