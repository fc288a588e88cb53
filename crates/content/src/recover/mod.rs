//! Opening a file: reads the commit records, and recovers from a crash.
//!
//! `docs/format.md`, "Recovery", has the argument. In short: a dirty record names a target version over a
//! durable base, and versions between them. `prove` finds the versions that the stored slots prove,
//! `choose` selects the slots that count, and `redo` makes that choice durable in a recovery record before
//! it erases anything. All steps process the file group by group and skip holes of the stored file.

mod choose;
mod header;
mod prove;
mod redo;

use super::{
    backing::Backing,
    bound::Bound,
    error::{Damage, Error, Result},
    record::{FileIdentity, OnDisk, Records},
    record_writer::RecordWriter,
    state::{Fault, State},
    time::Time,
    tree::{EntryTree, NodePage, Recovered, RootBuilder, Sink, decode_entries},
};
use format::{
    entry::{EPOCH_LIMIT, Entry},
    layout,
    record::{Between, Claim, MOST_UNREADABLE, RECORD, Record, RecordError, Version},
    tree::{Digest, leaf_digest},
};
pub(super) use header::Header;
use prove::Proven;
use std::sync::Arc;

const NO_SUCH_KEY: &str =
    "is of a key that this vault does not have; if it came from a backup, that was made before `key rotate`";
const NOT_LISTED: &str = "is of the vault's former key, and not as it was when `key rotate` began: it was put there since, \
                          from a backup or by somebody who has that key";

/// A dirty file: its identity, and the versions that its newest record names.
struct DirtyFile {
    identity: Arc<FileIdentity>,
    /// Newest first; the last one is the base.
    versions: Vec<Version>,
    base: Version,
}

/// The newest record and the index of its sector.
struct NewestRecord {
    identity: Arc<FileIdentity>,
    place: usize,
    newest: Record,
}

/// Reads the state of a stored file, and recovers it.
#[derive(Clone, Copy)]
pub(super) struct CrashRecovery<'a> {
    backing: &'a Backing,
}

/// The newest record of a stored file, if it is authentic; `None` if nothing was committed.
///
/// # Errors
/// `Damaged`, or the store's.
pub(super) fn newest_record(backing: &Backing) -> Result<Option<Bound>> {
    let header = Header::read(&*backing.store)?;
    if header.committed().is_none() {
        return Ok(None);
    }
    let recovery = CrashRecovery::of(backing);
    recovery.require_accepted(&header)?;
    let sectors = header.records();
    let found = recovery.read_records(&sectors)?;
    Ok(Bound::of(&sectors[found.place]))
}

impl<'a> CrashRecovery<'a> {
    pub(super) fn of(backing: &'a Backing) -> Self {
        CrashRecovery { backing }
    }

    fn records(&self) -> RecordWriter<'a> {
        RecordWriter::of(self.backing)
    }

    /// Initialises the state from `header`, which was just read from a stored file of `stored` bytes.
    ///
    /// If the store rejects the writes of a recovery (ENOSPC, EROFS, …), the file can still be read.
    pub(super) fn load(&self, st: &mut State, stored: u64, header: &Header) -> Result<()> {
        match self.load_header(st, stored, header) {
            Err(Error::Store(e)) if st.fault.is_some() => {
                log::warn!("a file left unfinished by a crash is readable, but cannot be recovered now: {e}");
                Ok(())
            }
            result => result,
        }
    }

    /// Retries a recovery that the store rejected. It makes the same choice, because the file was read
    /// that way.
    pub(super) fn finish_recovery(&self, st: &mut State) -> Result<()> {
        if let Some(recovered) = st.stored.tree.as_recovered() {
            self.redo(st, &recovered)?;
        }
        st.fault = None;
        Ok(())
    }

    /// Like `load`, but returns an error if the store rejects a recovery.
    pub(super) fn load_header(&self, st: &mut State, stored: u64, header: &Header) -> Result<()> {
        let Some(page) = header.committed() else { return Ok(()) };
        let sectors = header.records();
        let NewestRecord { identity, place, newest } = self.read_records(&sectors)?;
        if let (Some(bounds), Some(found)) = (&self.backing.context.bounds, Bound::of(&sectors[place])) {
            bounds.check(&found)?;
        }
        let on_disk = if newest.base().is_some() { OnDisk::Dirty } else { OnDisk::Clean };
        let records = Records { sectors, newest: place, sequence: newest.sequence, on_disk, written: false };
        let target = newest.target;
        match newest.claim {
            Claim::Clean => {
                self.load_clean(st, identity, records, target, stored)?;
                st.stored.tree.keep_header(page)
            }
            // The other record does not count: it may come from a copy that was written separately.
            Claim::Dirty { base, between: Between { previous, barrier } } => {
                let versions = [Some(target), previous, barrier, Some(base)].into_iter().flatten().collect();
                let dirty = DirtyFile { identity, versions, base };
                let recovered = self.choose(&dirty, &self.prove(&dirty)?)?;
                self.recover(st, dirty.identity, records, target.epoch, recovered)
            }
            Claim::Recovery(recovery) => {
                let recovered = self.resume(&identity, &target, &recovery)?;
                self.recover(st, identity, records, target.epoch, recovered)
            }
        }
    }

    /// Rejects a file under the former key that is not on the rotation's list.
    ///
    /// # Errors
    /// `Damaged`.
    pub(super) fn require_accepted(&self, header: &Header) -> Result<()> {
        let (sectors, keys) = (header.records(), &self.backing.context.keys);
        let is_former = |sector| Record::peek_key(sector).is_ok_and(|key| keys.are_former(&key));
        if header.committed().is_none() || !sectors.iter().any(is_former) {
            return Ok(());
        }
        let found = self.read_records(&sectors)?;
        match keys.accept(&found.identity.id, &sectors[found.place]) {
            true => Ok(()),
            false => Err(bad_record(NOT_LISTED)),
        }
    }

    fn read_records(&self, sectors: &[[u8; RECORD]; 2]) -> Result<NewestRecord> {
        let keys = sectors.iter().map(Record::peek_key).filter(|key| *key != Err(RecordError::Empty));
        let keys =
            keys.collect::<std::result::Result<Vec<_>, _>>().map_err(|_| bad_record("is malformed"))?;
        if keys.iter().any(|key| *key != keys[0]) {
            return Err(bad_record("belongs to another file"));
        }
        let identity = self.backing.derive(keys[0]);
        let identity = identity.ok_or_else(|| bad_record(NO_SUCH_KEY))?;
        let mut found: Vec<(usize, Record)> = Vec::new();
        for (place, bytes) in sectors.iter().enumerate() {
            match Record::decode(bytes, &identity.keys.record) {
                Ok(record) => found.push((place, record)),
                Err(RecordError::Empty) => {}
                // Sectors are atomic, so a crash never leaves half a record.
                Err(_) => return Err(bad_record("does not authenticate")),
            }
        }
        found.sort_by_key(|(_, record)| record.sequence);
        if let [(_, one), (_, other)] = &found[..]
            && one.sequence == other.sequence
            && one != other
        {
            return Err(bad_record("has two different versions with the same sequence number"));
        }
        let (place, newest) = found.pop().ok_or_else(|| bad_record("is missing"))?;
        Ok(NewestRecord { identity, place, newest })
    }

    fn load_clean(
        &self,
        st: &mut State,
        identity: Arc<FileIdentity>,
        records: Records,
        version: Version,
        stored: u64,
    ) -> Result<()> {
        *st = State::clean(Some(identity), records, version, &self.backing.context);
        if stored != layout::stored_size(version.size) {
            let intact = layout::plain_size(stored).min(version.size.saturating_sub(1));
            st.fault = Some(Fault::WrongLength(intact / layout::CHUNK * layout::CHUNK));
        } else if self.backing.may_write() && st.stored.records.sectors[0] != st.stored.records.sectors[1] {
            self.repeat_clean_record(st)?;
        }
        Ok(())
    }

    /// Writes a clean record to the other sector, too, where a power cut left an older one.
    fn repeat_clean_record(&self, st: &mut State) -> Result<()> {
        let sectors = [st.stored.records.sectors[st.stored.records.newest]; 2];
        st.remember_mtime(&*self.backing.store)?;
        match self.backing.store.write_at(sectors.as_flattened(), 0) {
            Ok(()) => {
                st.stored.records.sectors = sectors;
                st.stored.records.written = true;
            }
            Err(e) => log::debug!("a clean record could not be repeated: {e}"),
        }
        st.restore_mtime(&*self.backing.store);
        Ok(())
    }

    /// Adopts the recovered version, with an epoch one above `newest`, the newest record's. Writes it down if
    /// this process may write.
    fn recover(
        &self,
        st: &mut State,
        identity: Arc<FileIdentity>,
        records: Records,
        newest: u64,
        recovered: Recovered,
    ) -> Result<()> {
        let (seconds, nanoseconds) = self.backing.store.mtime()?;
        let unreadable = recovered.unreadable().len();
        if unreadable > 0 {
            log::error!("recovery left {unreadable} unreadable chunks");
        }
        let recovered = Arc::new(recovered);
        let mut nodes: Vec<NodePage> = Vec::new();
        let root = self.each_node(&identity, &recovered, &mut |level, k, children: &_| {
            let mut page = [0; layout::PAGE as usize];
            let read = self.backing.store.read_at(&mut page, layout::node_offset(level, k))?;
            if read < page.len() || page != children.as_flattened() {
                nodes.push(((level, k), Box::new(*children)));
            }
            Ok(())
        })?;
        let epoch = newest + 1;
        if epoch >= EPOCH_LIMIT {
            return Err(Error::Invalid("the file has used up its epochs"));
        }
        let version = Version { epoch, size: recovered.size, root };
        *st = State::clean(Some(identity), records, version, &self.backing.context);
        st.stored.tree =
            EntryTree::recovered(&version, recovered.clone(), nodes, &self.backing.context.slots);
        st.times.mtime = Some(Time { seconds, nanoseconds });
        if !self.backing.may_write() {
            return Ok(());
        }
        if unreadable > MOST_UNREADABLE {
            log::error!("a file is read-only until it is repaired");
            st.fault = Some(Fault::NotRecovered);
            return Ok(());
        }
        let written = self.redo(st, &recovered);
        if let Err(Error::Store(_)) = written {
            st.fault.get_or_insert(Fault::NotRecovered);
        }
        written
    }

    /// Passes each node page of the recovered version that is not all holes to `sink`, and returns the
    /// root.
    fn each_node(
        &self,
        identity: &FileIdentity,
        recovered: &Recovered,
        sink: &mut impl Sink,
    ) -> Result<Digest> {
        let mut root = RootBuilder::new(&identity.keys, recovered.size);
        self.backing.each_group(layout::groups(recovered.size), |group, raw| {
            let entries = indexed(group, raw).map(|(index, entry)| recovered.current(index, &entry));
            let entries = Vec::from_iter(entries);
            let leaf = leaf_digest(&identity.keys, group, entries.iter().map(Entry::newest));
            root.add(group, leaf, sink)
        })?;
        root.finish(sink)
    }
}

/// The stored entries of a group, each with the index of its chunk.
fn indexed(group: u64, raw: &[u8]) -> impl Iterator<Item = (u64, Entry)> {
    (layout::first_chunk(group)..).zip(decode_entries(raw))
}

fn bad_record(reason: &'static str) -> Error {
    Damage { what: "commit record".into(), reason }.into()
}
