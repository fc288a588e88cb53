//! What is known of one open file: what the store has, what waits to be written, and when it changed.

use super::{
    Context,
    bound::Bound,
    buffer::WriteBuffer,
    gaps::Gaps,
    in_flight::InFlight,
    record::{Identity, Records},
    rules::{Rule, holds},
    tree::Tree,
};
use crate::{
    format::{
        entry::EPOCH_LIMIT,
        record::{Between, Claim, Version},
        tree::ALL_HOLES,
    },
    vault::{Damage, Error, Result, Time},
};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// Why a file takes no more writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An fdatasync failed: what it should have made durable may be gone, and a later success would
    /// prove nothing.
    SyncFailed,
    /// The stored file was cut or grown behind a clean record. Reads fail from this byte on.
    WrongLength(u64),
    /// What a crash left is known, but the store took no writes (full or read-only). The file reads as
    /// recovered, and the next write tries again.
    NotRecovered,
    /// A panic left the state half-changed. Only what the store has counts, once the file is opened again.
    Broken,
    /// The vault is locked, or the file was not as before when the vault was unlocked.
    Away,
    /// The store took the lease away. The file stays so; opened anew it is another.
    Lost,
}

/// One open file.
pub(super) struct State {
    pub(super) stored: Stored,
    pub(super) dirty: Dirty,
    pub(super) times: Times,
    pub(super) fault: Option<Fault>,
}

/// What the store has.
pub(super) struct Stored {
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) records: Records,
    /// The stored file was made for this one: nothing was in it.
    pub(super) is_new: bool,
    /// The newest record that a sync of this process made durable.
    pub(super) durable: Option<Bound>,
    /// The durable version.
    pub(super) base: Version,
    /// The newest record, durable or not, names the base as such.
    pub(super) base_is_recorded: bool,
    /// A durable record does.
    pub(super) base_is_named: bool,
    /// The newest version that was flushed over data of the base. Its slots are durable.
    pub(super) barrier: Option<Version>,
    /// Slots, root and size of the version that was flushed last.
    pub(super) tree: Tree,
    /// The largest epoch number ever used, or given up by a flush that failed.
    pub(super) last_epoch: u64,
    /// The groups in which the store may have slots of flushes that failed. While this is `Some` the store may also have
    /// their record: the next record takes its place, and comes with these entries as they should be.
    pub(super) leftover: Option<BTreeSet<u64>>,
    /// The stored file may be longer than the version.
    pub(super) overhangs: bool,
    /// Bytes flushed since the last commit.
    pub(super) uncommitted: u64,
}

/// What waits to be written.
pub(super) struct Dirty {
    /// Size of the file, with everything below.
    pub(super) size: u64,
    pub(super) buffer: WriteBuffer,
    /// What is to come before something that has.
    pub(super) gaps: Gaps,
    /// Writes in flight, in the order of their completion. Their chunks are not in the buffer.
    pub(super) in_flight: VecDeque<Arc<InFlight>>,
    /// One of them failed, and no program was told.
    pub(super) write_failed: bool,
    /// End of the places that may be reserved behind the end of the stored file, as an offset in it.
    pub(super) reserved: u64,
    /// A write is being flushed as a whole, so its full extents do not start by themselves.
    pub(super) flushes_through: bool,
    /// What a flush could not bring to its place after its slots were durable. It goes first.
    pub(super) unfinished: Vec<Unfinished>,
}

/// Bytes that a flush could not bring to their place. They overwrite chunks whose slots are durable, so
/// exactly these bytes have to follow.
pub(super) struct Unfinished {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

/// When the file changed, and which change it is at.
pub(super) struct Times {
    /// The application's modification time, if the store's may differ.
    pub(super) mtime: Option<Time>,
    /// Whether a clean record follows at once, with which the store gets that time again: once is enough.
    pub(super) restored_later: bool,
    /// When the application last changed the content.
    pub(super) written_at: Option<Time>,
    /// Since when something is not durable.
    pub(super) uncommitted_since: Option<Instant>,
    /// Names the content: no two contents of any file ever have the same.
    pub(super) content: u64,
    /// Counts changes, so that the flusher sees whether the file changed between two of its steps.
    pub(super) changes: u64,
    /// When the last change was.
    pub(super) changed_at: Instant,
}

/// A version of nothing.
pub(super) const NO_VERSION: Version = Version { epoch: 0, size: 0, root: ALL_HOLES };

impl State {
    /// A file that nothing was committed to.
    pub(super) fn never_committed(context: &Context) -> Self {
        State::clean(None, Records::none(), NO_VERSION, context)
    }

    /// A clean file of which nothing is known any more but the version that the store has, and when it changed.
    pub(super) fn away(self, context: &Context) -> Self {
        let (base, times) = (self.stored.base, self.times);
        State { times, fault: Some(Fault::Away), ..State::clean(None, Records::none(), base, context) }
    }

    /// A clean file at `base`.
    pub(super) fn clean(
        identity: Option<Arc<Identity>>,
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
            tree: Tree::new(&base, &context.slots),
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

    /// How many of `len` bytes from `offset` on there are.
    pub(super) fn available(&self, offset: u64, len: usize) -> usize {
        len.min(usize::try_from(self.dirty.size.saturating_sub(offset)).unwrap_or(usize::MAX))
    }

    /// Size of the flushed version once all writes in flight are complete.
    pub(super) fn planned_size(&self) -> u64 {
        self.dirty.in_flight.back().map_or(0, |write| write.size).max(self.stored.tree.size())
    }

    /// Whether this state tells what is read up to `end`, and the stored file has the right length there.
    ///
    /// # Errors
    /// `Damaged` if its length is wrong, EIO if the state is broken.
    pub(super) fn check_readable(&self, end: u64) -> Result<()> {
        match self.fault {
            Some(Fault::WrongLength(from)) if end > from => Err(wrong_length()),
            Some(Fault::Broken | Fault::Away | Fault::Lost) => Err(Error::os(libc::EIO)),
            Some(Fault::WrongLength(_) | Fault::SyncFailed | Fault::NotRecovered) | None => Ok(()),
        }
    }

    /// Whether the store holds all that the application wrote.
    pub(super) fn is_stored(&self) -> bool {
        self.dirty.buffer.is_empty()
            && self.dirty.in_flight.is_empty()
            && self.dirty.unfinished.is_empty()
            && self.stored.leftover.is_none()
            && self.dirty.size == self.stored.tree.size()
    }

    /// Whether the store holds all there is, under a clean record (or nothing at all).
    pub(super) fn is_clean(&self) -> bool {
        self.is_stored() && self.stored.is_committed() && !self.stored.records.on_disk.may_be_dirty()
    }

    /// Makes the version that was flushed last, durable now, the base.
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
    /// The version that was flushed last.
    pub(super) fn flushed(&self) -> Version {
        Version { epoch: self.tree.epoch(), size: self.tree.size(), root: self.tree.root() }
    }

    /// Takes note of a record that is durable, unless a newer one is.
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

    /// Takes a change to the tree back that a flush or a cut failed to store. The store may have its record, and slots
    /// of these groups.
    pub(super) fn undo(&mut self, groups: impl IntoIterator<Item = u64>) {
        self.tree.take_back();
        self.leftover.get_or_insert_default().extend(groups);
        self.overhangs = true;
        self.tree.resident = true;
    }

    /// What a dirty record says of a version of `epoch` that follows `previous`.
    pub(super) fn over_base(&self, epoch: u64, previous: Version) -> Claim {
        let between = |version: &Version| self.base.epoch < version.epoch && version.epoch < epoch;
        let previous = Some(previous).filter(|_| holds(Rule::NamePrevious));
        let barrier = self.barrier.filter(|barrier| Some(*barrier) != previous && holds(Rule::NameBarrier));
        let mut named = previous.into_iter().chain(barrier).filter(between);
        Claim::Dirty { base: self.base, between: Between { previous: named.next(), barrier: named.next() } }
    }

    /// Uses up an epoch that nothing was written in.
    ///
    /// # Errors
    /// `Invalid` if there is none left.
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

    /// Notes that the application changed something just now.
    pub(super) fn note_write(&mut self) {
        self.mtime = Some(Time::now());
        self.written_at = self.mtime;
        self.note_change();
    }

    /// Notes that something changed at a time that is told separately.
    pub(super) fn note_gathered(&mut self) {
        match self.mtime {
            Some(_) => self.note_change(),
            None => self.note_write(),
        }
    }

    /// Notes that something changed that is to become durable.
    pub(super) fn note_change(&mut self) {
        self.changes += 1;
        self.changed_at = Instant::now();
        self.uncommitted_since.get_or_insert(self.changed_at);
    }

    /// Gives the content that is about to be a name of its own.
    pub(super) fn rename_content(&mut self) {
        self.content = new_content();
    }
}

fn new_content() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The error of a stored file that was cut or grown.
pub(super) fn wrong_length() -> Error {
    Damage { what: "stored size".into(), reason: "is not that of the committed file" }.into()
}
