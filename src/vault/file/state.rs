//! What is known of one open file, and the commit records that make it known on disk.

use super::{
    Context, File,
    buffer::WriteBuffer,
    flight::Flight,
    rules::{Rule, holds},
    tree::{Source, Tree},
};
use crate::{
    crypto::{kdf::FileKeys, random},
    format::{
        entry::EPOCH_LIMIT,
        layout,
        record::{KeyId, RECORD, Record, Version},
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
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// A file's keys and where they come from.
pub(super) struct Identity {
    pub(super) id: KeyId,
    pub(super) keys: FileKeys,
}

/// What the newest commit record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDisk {
    /// There is none.
    Nothing,
    Dirty,
    Clean,
    /// Dirty, unless the clean record is there whose write failed.
    DirtyOrClean,
}

impl OnDisk {
    /// Whether a clean record may be there: then nothing may be written before a dirty one is durable.
    pub(super) fn may_be_clean(self) -> bool {
        match self {
            OnDisk::Clean | OnDisk::DirtyOrClean => true,
            OnDisk::Nothing | OnDisk::Dirty => false,
        }
    }

    /// Whether a dirty record may be there.
    pub(super) fn may_be_dirty(self) -> bool {
        match self {
            OnDisk::Dirty | OnDisk::DirtyOrClean => true,
            OnDisk::Nothing | OnDisk::Clean => false,
        }
    }
}

/// Why a file takes no more writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An fdatasync failed: what it should have made durable may be gone, and a later success would
    /// prove nothing.
    SyncFailed,
    /// The stored file was cut or grown behind a clean record; reads from this byte on fail.
    WrongLength(u64),
    /// What a crash left is known, but the store took no writes (full or read-only): the file reads as
    /// recovered, and the next write tries again.
    NotRecovered,
    /// A panic left the state half-changed: only what the store has counts, once the file is opened anew.
    Broken,
}

/// Bytes that a flush could not bring to their place. They overwrite chunks whose slots are durable, so
/// exactly these bytes have to follow.
pub(super) struct Pending {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

/// The two record sectors.
pub(super) struct Records {
    pub(super) sectors: [[u8; RECORD]; 2],
    pub(super) newest: usize,
    pub(super) sequence: u64,
    pub(super) on_disk: OnDisk,
}

/// One open file.
pub(super) struct State {
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) records: Records,
    /// The durable version.
    pub(super) base: Version,
    /// The largest epoch number ever used, or burnt by a flush that failed.
    pub(super) last_epoch: u64,
    /// The groups in which the store may have slots of flushes that failed. While this is `Some` it may also have their
    /// record: the next record takes its place, and comes with these entries as they should be.
    pub(super) leftover: Option<BTreeSet<u64>>,
    /// The stored file may be longer than the version.
    pub(super) overhangs: bool,
    /// A durable record names the base as such.
    pub(super) base_is_named: bool,
    /// Slots, root and size as last flushed.
    pub(super) tree: Tree,
    /// Size with what is buffered.
    pub(super) size: u64,
    pub(super) buffer: WriteBuffer,
    /// On their way to the store, in the order of their landing. Their chunks are not in the buffer.
    pub(super) flights: VecDeque<Arc<Flight>>,
    /// One of them failed, and nobody was told.
    pub(super) flight_failed: bool,
    pub(super) pending: Vec<Pending>,
    pub(super) mtime: Option<Time>,
    /// When the application last changed the content.
    pub(super) written_at: Option<Time>,
    pub(super) fault: Option<Fault>,
    /// Bytes flushed since the last commit.
    pub(super) uncommitted: u64,
    /// Since when something is not durable.
    pub(super) uncommitted_since: Option<Instant>,
    /// Names the content: no two contents of any file ever have the same.
    pub(super) content: u64,
    /// Counts changes, so that the keeper sees whether a file rested.
    pub(super) changes: u64,
    /// When the last change was.
    pub(super) changed_at: Instant,
}

/// A name for a content that is about to be.
pub(super) fn new_content() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A version of nothing.
pub(super) const NO_VERSION: Version = Version { epoch: 0, size: 0, root: ALL_HOLES };

impl State {
    /// How many of `len` bytes from `offset` on there are.
    pub(super) fn available(&self, offset: u64, len: usize) -> usize {
        len.min(usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX))
    }

    /// Whether what is read up to `end` can be told from this state, and is where the stored file has the right length.
    ///
    /// # Errors
    /// `Damaged` if its length is wrong, EIO if the state is broken.
    pub(super) fn check_readable(&self, end: u64) -> Result<()> {
        match self.fault {
            Some(Fault::WrongLength(from)) if end > from => Err(wrong_length()),
            Some(Fault::Broken) => Err(Error::os(libc::EIO)),
            Some(Fault::WrongLength(_) | Fault::SyncFailed | Fault::NotRecovered) | None => Ok(()),
        }
    }

    /// Whether everything flushed is durable.
    pub(super) fn is_committed(&self) -> bool {
        self.tree.epoch() == self.base.epoch
    }

    /// Notes that a flush or a cut failed which may have written its record, and slots of these groups.
    pub(super) fn note_leftover(&mut self, groups: impl IntoIterator<Item = u64>) {
        self.leftover.get_or_insert_default().extend(groups);
        self.overhangs = true;
        self.tree.resident = true;
    }

    /// A file that nothing was committed to.
    pub(super) fn never_committed(context: &Context) -> Self {
        let records = Records { sectors: [[0; RECORD]; 2], newest: 1, sequence: 0, on_disk: OnDisk::Nothing };
        State::over(None, records, NO_VERSION, context)
    }

    /// A file at rest at `base`.
    pub(super) fn over(
        identity: Option<Arc<Identity>>,
        records: Records,
        base: Version,
        context: &Context,
    ) -> Self {
        State {
            identity,
            records,
            base,
            last_epoch: base.epoch,
            leftover: None,
            overhangs: false,
            base_is_named: false,
            tree: Tree::new(&base, &context.slots),
            size: base.size,
            buffer: WriteBuffer::new(context.buffered.clone()),
            flights: VecDeque::new(),
            flight_failed: false,
            pending: Vec::new(),
            mtime: None,
            written_at: None,
            fault: None,
            uncommitted: 0,
            uncommitted_since: None,
            content: new_content(),
            changes: 0,
            changed_at: Instant::now(),
        }
    }

    /// Steps over a random number of epochs: copies of a file that were restored do not share them.
    pub(super) fn skip_epochs(&mut self) -> Result<()> {
        let mut step = [0; 2];
        random::fill(&mut step)?;
        self.last_epoch += u64::from(u16::from_le_bytes(step));
        Ok(())
    }

    /// The application changed something just now.
    pub(super) fn touch(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.mtime = Some(Time { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() });
        self.written_at = self.mtime;
        self.note_change();
    }

    pub(super) fn note_change(&mut self) {
        self.changes += 1;
        self.changed_at = Instant::now();
        self.uncommitted_since.get_or_insert(self.changed_at);
    }

    /// Whether the store holds all that the application wrote.
    pub(super) fn is_stored(&self) -> bool {
        self.buffer.is_empty()
            && self.flights.is_empty()
            && self.pending.is_empty()
            && self.leftover.is_none()
            && self.size == self.tree.size()
    }

    /// Whether the store holds all there is, under a clean record (or nothing at all).
    pub(super) fn at_rest(&self) -> bool {
        self.is_stored() && self.is_committed() && !self.records.on_disk.may_be_dirty()
    }
}

impl File {
    pub(super) fn source<'a>(&'a self, identity: &'a Identity) -> Source<'a> {
        Source { store: &*self.store, keys: &identity.keys }
    }

    /// The file's salt and keys; drawn when it is first written.
    pub(super) fn identity(&self, st: &mut State) -> Result<Arc<Identity>> {
        if let Some(identity) = &st.identity {
            return Ok(identity.clone());
        }
        let mut salt = [0; 32];
        random::fill(&mut salt)?;
        let identity = Arc::new(self.derive(KeyId { generation: self.context.key_generation, salt }));
        st.identity = Some(identity.clone());
        Ok(identity)
    }

    pub(super) fn derive(&self, id: KeyId) -> Identity {
        Identity { id, keys: self.context.keys.keys(&id.salt) }
    }

    /// Whether the file may be written. Its content counts as another from here on.
    pub(super) fn check_writable(&self, st: &mut State) -> Result<()> {
        if self.context.read_only {
            return Err(Error::ReadOnly);
        }
        st.content = new_content();
        match st.fault {
            None => Ok(()),
            Some(Fault::SyncFailed) if !holds(Rule::StopAfterFailedSync) => Ok(()),
            Some(Fault::SyncFailed | Fault::Broken) => Err(Error::os(libc::EIO)),
            Some(Fault::WrongLength(_)) => Err(wrong_length()),
            // Nothing was written meanwhile, so what is stored still tells everything.
            Some(Fault::NotRecovered) => self.finish_recovery(st),
        }
    }

    /// Remembers the modification time, before the first write to the store changes it.
    pub(super) fn keep_mtime(&self, st: &mut State) -> Result<()> {
        if st.mtime.is_none() {
            let (seconds, nanoseconds) = self.store.mtime()?;
            st.mtime = Some(Time { seconds, nanoseconds });
        }
        Ok(())
    }

    /// Gives the stored file the application's modification time again, once all of the content that belongs to it is
    /// there: who copies stored files and looks at sizes and times alone, as rsync does, would never come back for
    /// the rest.
    pub(super) fn restore_mtime(&self, st: &State) {
        if st.is_stored()
            && let Some(t) = st.mtime
            && let Err(e) = self.store.set_mtime(t.seconds, t.nanoseconds)
        {
            log::debug!("a modification time could not be restored: {e}");
        }
    }

    /// The sector of the next record, as `write_record` will write it. Its sequence number is used up.
    pub(super) fn encode_record(
        &self,
        st: &mut State,
        identity: &Identity,
        target: Version,
        clean: bool,
    ) -> NewRecord {
        let sequence = st.records.sequence + 1;
        if holds(Rule::BurnSequence) {
            st.records.sequence = sequence;
        }
        let base = (!clean).then_some(st.base);
        let record = Record { sequence, key: identity.id, target, base };
        NewRecord { place: 1 - st.records.newest, sequence, sector: record.encode(&identity.keys.record) }
    }

    /// Writes a dirty record by itself.
    pub(super) fn write_record(&self, st: &mut State, record: NewRecord) -> Result<()> {
        self.keep_mtime(st)?;
        self.store.write_at(&record.sector, record.offset())?;
        st.records.accept(record);
        Ok(())
    }

    /// The epoch of a version that is about to be written over the base. After a clean record a dirty one is made durable
    /// first: no slot may be written before.
    pub(super) fn begin_epoch(&self, st: &mut State, identity: &Identity) -> Result<u64> {
        if st.records.on_disk.may_be_clean() {
            let epoch = next_epoch(st)?;
            let record = self.encode_record(st, identity, Version { epoch, ..st.base }, false);
            self.write_record(st, record)?;
            if holds(Rule::DirtyRecordFirst) {
                self.sync_store(st)?;
            }
        }
        next_epoch(st)
    }

    /// fdatasync, after which nothing may be trusted if it fails.
    pub(super) fn sync_store(&self, st: &mut State) -> Result<()> {
        self.store.sync_data().map_err(|e| {
            st.fault = Some(Fault::SyncFailed);
            e.into()
        })
    }

    /// A dirty record, not synced, with the base as its target, too.
    pub(super) fn write_base_record(&self, st: &mut State) -> Result<()> {
        let Some(identity) = st.identity.clone() else { return Ok(()) };
        let target = Version { epoch: next_epoch(st)?, ..st.base };
        let record = self.encode_record(st, &identity, target, false);
        let outcome = self.write_record(st, record);
        self.restore_mtime(st);
        outcome
    }

    /// What was flushed, durable now, becomes the base.
    pub(super) fn advance(&self, st: &mut State) {
        if !st.is_committed() {
            st.base = Version { epoch: st.tree.epoch(), size: st.tree.size(), root: st.tree.root() };
            st.base_is_named = false;
            st.uncommitted = 0;
            st.uncommitted_since = (!st.buffer.is_empty()).then(Instant::now);
        }
    }
}

/// An epoch that nothing was written in.
pub(super) fn next_epoch(st: &mut State) -> Result<u64> {
    if !holds(Rule::EpochPerFlush) && !st.is_committed() {
        return Ok(st.tree.epoch());
    }
    let epoch = st.last_epoch + 1;
    if epoch >= EPOCH_LIMIT {
        return Err(Error::Invalid("the file has used up its epochs; copy it"));
    }
    st.last_epoch = epoch;
    Ok(epoch)
}

/// A record on its way to the store.
pub(super) struct NewRecord {
    place: usize,
    sequence: u64,
    pub(super) sector: [u8; RECORD],
}

impl NewRecord {
    pub(super) fn offset(&self) -> u64 {
        self.place as u64 * layout::RECORD
    }
}

impl Records {
    /// A dirty record is in the store.
    pub(super) fn accept(&mut self, record: NewRecord) {
        self.sectors[record.place] = record.sector;
        self.newest = record.place;
        self.sequence = record.sequence;
        self.on_disk = OnDisk::Dirty;
    }

    /// A clean record is, in both sectors.
    pub(super) fn accept_clean(&mut self, record: NewRecord) {
        self.sectors = [record.sector; 2];
        self.sequence = record.sequence;
        self.on_disk = OnDisk::Clean;
    }
}

pub(super) fn wrong_length() -> Error {
    Damage { what: "stored size".into(), reason: "is not that of the committed file" }.into()
}
