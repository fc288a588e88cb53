//! In-memory state of one open file: the stored version, pending writes, and times of changes.

use super::{
    bound::Bound,
    buffer::WriteBuffer,
    context::Context,
    error::{Damage, Error, Result},
    gaps::Gaps,
    in_flight::InFlight,
    record::{FileIdentity, Records},
    rules::{Rule, holds},
    time::Time,
    tree::{EntryTree, LeafSource},
};
use format::{
    entry::EPOCH_LIMIT,
    layout,
    record::{Between, Claim, Version},
    tree::ALL_HOLES,
};
use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use store::BackingFile;

/// Why a file accepts no writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An fdatasync failed. Data that it should have made durable may be lost, and a later success would
    /// prove nothing.
    SyncFailed,
    /// The length of the stored file was changed after the clean record. Reads past this offset fail.
    WrongLength(u64),
    /// Recovery succeeded, but only in memory: the store accepted no writes because it is full or
    /// read-only. The file reads as recovered, and the next write tries again.
    NotRecovered,
    /// A panic left the state half-changed. Only reopening the file, from the stored data, clears this.
    Broken,
    /// The vault is locked, or the file had changed when the vault was unlocked.
    Away,
    /// The store revoked the lease. This is permanent; opening the file again gives a new `File`.
    Lost,
}

/// One open file.
pub(super) struct State {
    pub(super) stored: Stored,
    pub(super) dirty: Dirty,
    pub(super) times: Times,
    pub(super) fault: Option<Fault>,
}

/// State of the stored file.
pub(super) struct Stored {
    pub(super) identity: Option<Arc<FileIdentity>>,
    pub(super) records: Records,
    /// The stored file was created for this `File` and was empty.
    pub(super) is_new: bool,
    /// The newest record made durable by a sync of this process.
    pub(super) durable: Option<Bound>,
    /// The newest durable version.
    pub(super) base: Version,
    /// The newest record, durable or not, names the base.
    pub(super) base_is_recorded: bool,
    /// A durable record names the base.
    pub(super) base_is_named: bool,
    /// The newest version that was flushed over data of the base. Its slots are durable.
    pub(super) barrier: Option<Version>,
    /// Slots, root and size of the last flushed version.
    pub(super) tree: EntryTree,
    /// The largest epoch ever used, including those of failed flushes.
    pub(super) last_epoch: u64,
    /// Groups in which failed flushes may have left slots in the store. While this is `Some`, the store
    /// may also have the record of one. The next record overwrites it, and is written together with the
    /// correct entries of these groups.
    pub(super) leftover: Option<BTreeSet<u64>>,
    /// The stored file may be longer than the version.
    pub(super) overhangs: bool,
    /// Bytes flushed since the last commit.
    pub(super) uncommitted: u64,
}

/// Pending writes.
pub(super) struct Dirty {
    /// Size of the file, including pending writes.
    pub(super) size: u64,
    pub(super) buffer: WriteBuffer,
    /// Ranges not yet received that precede data already received.
    pub(super) gaps: Gaps,
    /// Writes in flight, in order of completion. Their chunks are not in the buffer.
    pub(super) in_flight: VecDeque<Arc<InFlight>>,
    /// A write in flight failed, and the application has not been told.
    pub(super) write_failed: bool,
    /// End of the space that may be reserved behind the end of the stored file, as an offset in it.
    pub(super) reserved: u64,
    /// A write is being flushed as a whole, so full extents are not started separately.
    pub(super) flushes_through: bool,
    /// Data that a flush failed to write after its slots were durable. It is written before anything
    /// else.
    pub(super) unfinished: Vec<Unfinished>,
}

/// Bytes that a flush failed to write. They overwrite chunks whose slots are already durable, so exactly
/// these bytes must follow.
pub(super) struct Unfinished {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

/// Times of changes, and identifiers of the current content.
pub(super) struct Times {
    /// The application's modification time, if the store's may differ.
    pub(super) mtime: Option<Time>,
    /// A clean record follows immediately and restores the modification time, so earlier steps need not.
    pub(super) restored_later: bool,
    /// When the application last changed the content.
    pub(super) written_at: Option<Time>,
    /// Time of the oldest change that is not durable.
    pub(super) uncommitted_since: Option<Instant>,
    /// Identifies the content. Never reused, not even by another file.
    pub(super) content: u64,
    /// Number of changes, by which the flusher notices changes between two of its steps.
    pub(super) changes: u64,
    /// Time of the last change.
    pub(super) changed_at: Instant,
}

/// The version of a file without content.
pub(super) const NO_VERSION: Version = Version { epoch: 0, size: 0, root: ALL_HOLES };

impl State {
    /// State of a file that was never committed.
    pub(super) fn never_committed(context: &Context) -> Self {
        State::clean(None, Records::none(), NO_VERSION, context)
    }

    /// A clean state that keeps only the stored version and the times.
    pub(super) fn away(self, context: &Context) -> Self {
        let (base, times) = (self.stored.base, self.times);
        State { times, fault: Some(Fault::Away), ..State::clean(None, Records::none(), base, context) }
    }

    /// A clean file at `base`.
    pub(super) fn clean(
        identity: Option<Arc<FileIdentity>>,
        records: Records,
        base: Version,
        context: &Context,
    ) -> Self {
        let stored = Stored {
            identity,
            records,
            is_new: false,
            durable: None,
            base,
            base_is_recorded: true,
            base_is_named: false,
            barrier: None,
            tree: EntryTree::new(&base, &context.slots),
            last_epoch: base.epoch,
            leftover: None,
            overhangs: false,
            uncommitted: 0,
        };
        let dirty = Dirty {
            size: base.size,
            buffer: WriteBuffer::new(context.buffered.clone()),
            gaps: Gaps::default(),
            in_flight: VecDeque::new(),
            write_failed: false,
            reserved: 0,
            flushes_through: false,
            unfinished: Vec::new(),
        };
        State { stored, dirty, times: Times::new(), fault: None }
    }

    /// How many of the `len` bytes at `offset` are before the end of the file.
    pub(super) fn available(&self, offset: u64, len: usize) -> usize {
        len.min(usize::try_from(self.dirty.size.saturating_sub(offset)).unwrap_or(usize::MAX))
    }

    /// Size of the flushed version once all writes in flight are complete.
    pub(super) fn planned_size(&self) -> u64 {
        self.dirty.in_flight.back().map_or(0, |write| write.size).max(self.stored.tree.size())
    }

    /// Checks that reads up to `end` can be answered from this state and that the stored length is right
    /// there.
    ///
    /// # Errors
    /// `Damaged` if the stored length is wrong, EIO if the state is unusable.
    pub(super) fn check_readable(&self, end: u64) -> Result<()> {
        match self.fault {
            Some(Fault::WrongLength(from)) if end > from => Err(wrong_length()),
            Some(Fault::Broken | Fault::Away | Fault::Lost) => Err(Error::os(libc::EIO)),
            Some(Fault::WrongLength(_) | Fault::SyncFailed | Fault::NotRecovered) | None => Ok(()),
        }
    }

    /// SEEK_DATA (`data`) or SEEK_HOLE from `offset`, for a file treated as data throughout.
    ///
    /// # Errors
    /// `NoData` past the end; EIO if the content is lost.
    pub(super) fn seek_in_data(&self, offset: u64, data: bool) -> Result<u64> {
        self.check_readable(0)?;
        match (offset < self.dirty.size, data) {
            (false, _) => Err(Error::NoData),
            (true, true) => Ok(offset),
            (true, false) => Ok(self.dirty.size),
        }
    }

    /// Whether the store holds everything that the application wrote.
    pub(super) fn is_stored(&self) -> bool {
        self.dirty.buffer.is_empty()
            && self.dirty.in_flight.is_empty()
            && self.dirty.unfinished.is_empty()
            && self.stored.leftover.is_none()
            && self.dirty.size == self.stored.tree.size()
    }

    /// Whether the store holds everything under a clean record, or nothing was ever committed.
    pub(super) fn is_clean(&self) -> bool {
        self.is_stored() && self.stored.is_committed() && !self.stored.records.on_disk.may_be_dirty()
    }

    /// Remembers the modification time before the first write to the store changes it.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn remember_mtime(&mut self, store: &dyn BackingFile) -> Result<()> {
        if self.times.mtime.is_none() {
            let (seconds, nanoseconds) = store.mtime()?;
            self.times.mtime = Some(Time { seconds, nanoseconds });
        }
        Ok(())
    }

    /// Restores the application's modification time on the stored file once all of the content is stored.
    /// Otherwise, a program that copies stored files and compares only sizes and times, such as rsync,
    /// would never copy the reself.
    pub(super) fn restore_mtime(&self, store: &dyn BackingFile) {
        if self.is_stored()
            && !self.times.restored_later
            && let Some(t) = self.times.mtime
            && let Err(e) = store.set_mtime(t.seconds, t.nanoseconds)
        {
            log::debug!("a modification time could not be restored: {e}");
        }
    }

    /// Makes the last flushed version, which is now durable, the base.
    pub(super) fn advance_base(&mut self) {
        if !self.stored.is_committed() {
            self.stored.base = self.stored.flushed();
            (self.stored.base_is_recorded, self.stored.base_is_named) = (false, false);
            self.stored.barrier = None;
            self.stored.uncommitted = 0;
            self.times.uncommitted_since = (!self.dirty.buffer.is_empty()).then(Instant::now);
        }
    }
}

impl Stored {
    /// The last flushed version.
    pub(super) fn flushed(&self) -> Version {
        Version { epoch: self.tree.epoch(), size: self.tree.size(), root: self.tree.root() }
    }

    /// Records that `record` is durable, unless a newer one is.
    pub(super) fn note_durable(&mut self, record: Option<Bound>) {
        let order = |bound: &Option<Bound>| bound.map(|bound| bound.order());
        if order(&record) > order(&self.durable) {
            self.durable = record;
        }
    }

    /// Whether everything flushed is durable.
    pub(super) fn is_committed(&self) -> bool {
        self.tree.epoch() == self.base.epoch
    }

    /// Rolls back a tree change that a flush or truncation failed to store. The store may have its
    /// record, and slots in these groups.
    pub(super) fn undo(&mut self, groups: impl IntoIterator<Item = u64>) {
        self.tree.take_back();
        self.leftover.get_or_insert_default().extend(groups);
        self.overhangs = true;
        self.tree.resident = true;
    }

    /// The claim of a dirty record for a version of `epoch` that follows `previous`.
    pub(super) fn over_base(&self, epoch: u64, previous: Version) -> Claim {
        let between = |version: &Version| self.base.epoch < version.epoch && version.epoch < epoch;
        let previous = Some(previous).filter(|_| holds(Rule::NamePrevious));
        let barrier = self.barrier.filter(|barrier| Some(*barrier) != previous && holds(Rule::NameBarrier));
        let mut named = previous.into_iter().chain(barrier).filter(between);
        Claim::Dirty { base: self.base, between: Between { previous: named.next(), barrier: named.next() } }
    }

    /// Truncates the stored file if it may be longer than the version. Bytes past the end must not count
    /// when the file grows.
    pub(super) fn cut_overhang(&mut self, store: &dyn BackingFile) -> Result<()> {
        if self.overhangs && holds(Rule::CutBeforeGrowth) {
            let length = layout::stored_size(self.tree.size());
            if store.len()? > length {
                store.set_len(length)?;
            }
            self.overhangs = false;
        }
        Ok(())
    }

    /// Loads the groups of these chunks, and the one at the old end if a growing file must erase entries
    /// there. Returns the groups to write.
    pub(super) fn load_groups(
        &mut self,
        source: LeafSource,
        size: u64,
        chunks: impl Iterator<Item = u64>,
    ) -> Result<BTreeSet<u64>> {
        let tree = &mut self.tree;
        tree.trim_cache();
        let mut groups: Vec<u64> = chunks.map(layout::group_of).collect();
        groups.dedup();
        let mut groups = BTreeSet::from_iter(groups);
        tree.load_all(source, groups.iter().copied())?;
        if size > tree.size() {
            let last = layout::groups(tree.size()) - 1;
            tree.load(source, last)?;
            if tree.is_stale(last) && holds(Rule::EraseWhereGrown) {
                groups.insert(last);
            }
        }
        Ok(groups)
    }

    /// Allocates a new epoch.
    ///
    /// # Errors
    /// `Invalid` if the epochs are exhausted.
    pub(super) fn next_epoch(&mut self) -> Result<u64> {
        if !holds(Rule::EpochPerFlush) && !self.is_committed() {
            return Ok(self.tree.epoch());
        }
        let epoch = self.last_epoch + 1;
        if epoch >= EPOCH_LIMIT {
            return Err(Error::Invalid("the file has used up its epochs; copy it"));
        }
        self.last_epoch = epoch;
        Ok(epoch)
    }
}

impl Dirty {
    /// Whether chunks of a range are in flight.
    pub(super) fn is_in_flight(&self, chunks: &Range<u64>) -> bool {
        self.in_flight.iter().any(|write| write.touches(chunks))
    }

    /// Completes the overwrites of a flush that failed half-way. They precede any other write.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn finish_overwrites(&mut self, store: &dyn BackingFile) -> Result<()> {
        if !holds(Rule::FinishOverwrites) {
            self.unfinished.clear();
        }
        while let Some(write) = self.unfinished.last() {
            store.write_at(&write.bytes, write.offset)?;
            self.unfinished.pop();
        }
        Ok(())
    }
}

impl Times {
    fn new() -> Self {
        Times {
            mtime: None,
            restored_later: false,
            written_at: None,
            uncommitted_since: None,
            content: new_content(),
            changes: 0,
            changed_at: Instant::now(),
        }
    }

    /// Records a change made by the application now.
    pub(super) fn note_write(&mut self) {
        self.mtime = Some(Time::now());
        self.written_at = self.mtime;
        self.note_change();
    }

    /// Records a change whose modification time the kernel sends separately.
    pub(super) fn note_gathered(&mut self) {
        match self.mtime {
            Some(_) => self.note_change(),
            None => self.note_write(),
        }
    }

    /// Records a change that has to become durable.
    pub(super) fn note_change(&mut self) {
        self.changes += 1;
        self.changed_at = Instant::now();
        self.uncommitted_since.get_or_insert(self.changed_at);
    }

    /// Assigns a new content id, before a change.
    pub(super) fn bump_content_version(&mut self) {
        self.content = new_content();
    }
}

fn new_content() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The error for a stored file that was shortened or extended.
pub(super) fn wrong_length() -> Error {
    Damage { what: "stored size".into(), reason: "is not that of the committed file" }.into()
}
