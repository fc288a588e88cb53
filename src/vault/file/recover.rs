//! Opening: what the commit records say, and what a crash left to decide.
//!
//! `docs/format.md`, "Recovery", has the argument. In short: a dirty record names a target version over a
//! durable base. Each chunk is the target's where its slot and data are both there, else the base's.

use super::{
    File,
    slots::SlotMemory,
    state::{Fault, Identity, OnDisk, Records, State},
    tree::{Tree, decode_entries, encode_entries, read_entries},
};
use crate::{
    crypto::chunk::{CHUNK, ChunkId},
    format::{
        entry::{Entry, Slot},
        layout,
        record::{RECORD, Record, RecordError, Version},
        tree::Digest,
    },
    vault::{Damage, Error, Result},
};
use std::sync::Arc;

/// Slots this much newer than the newest record may be what a power cut took the record of; no writer leaves newer
/// ones, whose epochs would use up those that there are.
const NEWER: u64 = 1 << 16;

/// A dirty file: its newest record, and what the store holds.
struct Dirty<'a> {
    identity: &'a Identity,
    target: Version,
    base: Version,
    /// Size in the other record of the same epoch.
    other_size: Option<u64>,
    groups: Vec<Vec<Entry>>,
    base_proven: bool,
    target_proven: bool,
}

/// A version to open the file at.
struct Outcome {
    size: u64,
    groups: Vec<Vec<Entry>>,
    unreadable: usize,
}

impl File {
    /// Reads the records and brings the state to the version that counts. The store has `stored` bytes.
    ///
    /// A recovery that the store refuses to take (ENOSPC, EROFS, …) does not keep the file from being read.
    pub(super) fn load(&self, stored: u64) -> Result<()> {
        let mut st = self.state.write();
        match self.load_into(&mut st, stored) {
            Err(Error::Store(e)) if st.fault.is_some() => {
                log::warn!("a file left unfinished by a crash is readable, but cannot be recovered now: {e}");
                Ok(())
            }
            result => result,
        }
    }

    /// Tries again to write down a recovery that the store refused.
    pub(super) fn finish_recovery(&self, st: &mut State) -> Result<()> {
        self.load_into(st, self.store.len()?)
    }

    fn load_into(&self, st: &mut State, stored: u64) -> Result<()> {
        let mut header = [0; layout::PAGE as usize];
        if self.store.read_at(&mut header, 0)? < header.len() {
            return Ok(());
        }
        let sectors = [sector(&header, 0), sector(&header, 1)];
        // Whatever else the page holds: without a record nothing was committed.
        if sectors.iter().all(|s| *s == [0; RECORD]) {
            return Ok(());
        }
        let (identity, newest, other, place) = self.read_records(&sectors)?;
        let identity = Arc::new(identity);
        let on_disk = if newest.base.is_some() { OnDisk::Dirty } else { OnDisk::Clean };
        let records = Records { sectors, newest: place, sequence: newest.sequence, on_disk };
        match newest.base {
            None => {
                self.load_clean(st, identity, records, newest.target, stored)?;
                st.tree.keep_header(&header);
                Ok(())
            }
            Some(base) => self.recover(st, identity, records, newest.target, base, other),
        }
    }

    fn read_records(&self, sectors: &[[u8; RECORD]; 2]) -> Result<(Identity, Record, Option<Record>, usize)> {
        let salts = sectors.iter().map(Record::peek_salt).filter(|s| *s != Err(RecordError::Empty));
        let salts =
            salts.collect::<std::result::Result<Vec<_>, _>>().map_err(|_| bad_record("is malformed"))?;
        if salts.iter().any(|salt| *salt != salts[0]) {
            return Err(bad_record("belongs to another file"));
        }
        let identity = self.derive(salts[0]);
        let mut found: Vec<(usize, Record)> = Vec::new();
        for (place, bytes) in sectors.iter().enumerate() {
            match Record::decode(bytes, &identity.keys.record) {
                Ok(record) => found.push((place, record)),
                Err(RecordError::Empty) => {}
                // Sectors are atomic: no crash leaves half a record.
                Err(_) => return Err(bad_record("does not authenticate")),
            }
        }
        found.sort_by_key(|(_, record)| record.sequence);
        match found[..] {
            [(place, only)] => Ok((identity, only, None, place)),
            [(_, older), (place, newer)] if older.sequence < newer.sequence => {
                Ok((identity, newer, Some(older), place))
            }
            _ => Err(bad_record("stands there twice")),
        }
    }

    fn load_clean(
        &self,
        st: &mut State,
        identity: Arc<Identity>,
        records: Records,
        version: Version,
        stored: u64,
    ) -> Result<()> {
        *st = State::over(Some(identity), records, version, &self.context);
        st.skip_epochs()?;
        if stored != layout::stored_size(version.size) {
            let intact = layout::plain_size(stored).min(version.size.saturating_sub(1));
            st.fault = Some(Fault::WrongLength(intact / layout::CHUNK * layout::CHUNK));
        }
        Ok(())
    }

    fn recover(
        &self,
        st: &mut State,
        identity: Arc<Identity>,
        mut records: Records,
        target: Version,
        base: Version,
        other: Option<Record>,
    ) -> Result<()> {
        let (seconds, nanoseconds) = self.store.mtime()?;
        if !self.context.read_only {
            self.store.sync_data()?; // what the page cache shows must be durable before it is trusted
        }
        let same_epoch =
            |r: &Record| r.target.epoch == target.epoch && r.base.is_some_and(|b| b.epoch == base.epoch);
        let other_size = other.filter(same_epoch).map(|r| r.target.size);
        let dirty = self.read_dirty(&identity, target, base, other_size)?;
        let outcome = self.choose(&dirty)?;
        let epochs = dirty.groups.iter().flatten().flat_map(|e| e.0).flatten().map(|slot| slot.epoch);
        let epochs = epochs.filter(|epoch| *epoch <= target.epoch + NEWER);
        let epoch = epochs.max().unwrap_or(0).max(target.epoch);
        let tree =
            Tree::build(&identity.keys, outcome.groups.clone(), outcome.size, epoch, &self.context.slots);
        let version = Version { epoch, size: outcome.size, root: tree.root() };
        records.on_disk = OnDisk::Dirty;
        *st = State::over(Some(identity), records, version, &self.context);
        st.tree = tree;
        st.mtime = Some(crate::vault::Time { seconds, nanoseconds });
        if outcome.unreadable > 0 {
            log::error!("recovery left {} unreadable chunks", outcome.unreadable);
        }
        if self.context.read_only {
            st.tree.resident = true;
            return Ok(());
        }
        let written = self.write_recovered(st, &outcome.groups);
        if let Err(Error::Store(_)) = written {
            st.tree.resident = true; // only what is in memory is whole
            st.fault.get_or_insert(Fault::NotRecovered);
        }
        written
    }

    /// Makes the outcome durable, then says so.
    fn write_recovered(&self, st: &mut State, groups: &[Vec<Entry>]) -> Result<()> {
        for (group, entries) in (0..).zip(groups) {
            let bytes = encode_entries(entries);
            // What the slots mean is not enough: under a clean record every byte of an empty one is zero.
            if read_entries(&*self.store, group)? != bytes {
                self.store.write_at(&bytes, layout::entries_offset(group))?;
            }
        }
        let stored = layout::stored_size(st.base.size);
        if self.store.len()? != stored {
            self.store.set_len(stored)?;
        }
        for (offset, page) in st.tree.unsaved_nodes() {
            self.store.write_at(&page, offset)?;
        }
        self.sync_store(st)?;
        if st.tree.has_older_slots() {
            self.write_base_record(st)?;
            self.sync_store(st)?;
            self.write_canonical(st)?;
            self.sync_store(st)?;
        }
        self.write_clean_record(st)
    }

    fn read_dirty<'a>(
        &self,
        identity: &'a Identity,
        target: Version,
        base: Version,
        other_size: Option<u64>,
    ) -> Result<Dirty<'a>> {
        let largest = target.size.max(base.size).max(other_size.unwrap_or(0));
        let groups = (0..layout::groups(largest))
            .map(|group| Ok(decode_entries(&read_entries(&*self.store, group)?)))
            .collect::<Result<Vec<_>>>()?;
        let mut dirty =
            Dirty { identity, target, base, other_size, groups, base_proven: false, target_proven: false };
        dirty.base_proven = dirty.root(base.size, |d, index| d.base_slot(index)) == base.root;
        dirty.target_proven = dirty.root(target.size, |d, index| d.newest_slot(index)) == target.root;
        if !dirty.base_proven && !dirty.target_proven {
            return Err(Damage {
                what: "entries".into(),
                reason: "give neither the version being written nor the one before",
            }
            .into());
        }
        Ok(dirty)
    }

    /// The size, of those the records allow, at which most is readable; the target's first.
    fn choose(&self, dirty: &Dirty) -> Result<Outcome> {
        let mut sizes = vec![dirty.target.size];
        if dirty.base_proven {
            sizes.extend(dirty.other_size);
            sizes.push(dirty.base.size);
        }
        let ends: Vec<u64> = sizes.iter().map(|s| layout::chunks(*s)).collect();
        let mut best: Option<Outcome> = None;
        for (at, size) in sizes.iter().enumerate() {
            if sizes[..at].contains(size) {
                continue;
            }
            let outcome = self.resolve(dirty, *size, &ends)?;
            if best.as_ref().is_none_or(|b| outcome.unreadable < b.unreadable) {
                best = Some(outcome);
            }
            if best.as_ref().is_some_and(|b| b.unreadable == 0) {
                break;
            }
        }
        best.ok_or_else(|| bad_record("allows no size"))
    }

    /// The slot to use for each chunk at `size`. `ends` are the ends of all candidate sizes: only chunks
    /// next to one depend on the choice, so only there is base data read.
    fn resolve(&self, dirty: &Dirty, size: u64, ends: &[u64]) -> Result<Outcome> {
        let mut outcome = Outcome { size, groups: Vec::new(), unreadable: 0 };
        let end = layout::chunks(size);
        for group in 0..layout::groups(size) {
            let mut entries = vec![Entry::default(); layout::entries_in(group)];
            let first = layout::first_chunk(group);
            for (place, kept) in entries.iter_mut().enumerate() {
                let index = first + place as u64;
                if index >= end {
                    break;
                }
                let (slot, readable) = self.resolve_chunk(dirty, index, size, ends.contains(&(index + 1)))?;
                outcome.unreadable += usize::from(!readable);
                // The base's slot stays beside the target's: a crash in here must find what proves it.
                kept.0 = [dirty.base_slot(index), slot.filter(|s| s.epoch == dirty.target.epoch)];
            }
            outcome.groups.push(entries);
        }
        Ok(outcome)
    }

    fn resolve_chunk(
        &self,
        dirty: &Dirty,
        index: u64,
        size: u64,
        boundary: bool,
    ) -> Result<(Option<Slot>, bool)> {
        let new = dirty.target_slot(index);
        let base = dirty.base_slot(index);
        if let Some(slot) = new
            && self.verifies(dirty.identity, index, slot, size)?
        {
            return Ok((new, true));
        }
        let authentic = dirty.base_proven || (dirty.target_proven && new.is_none());
        let readable = match base {
            Some(slot) if boundary => self.verifies(dirty.identity, index, slot, size)?,
            _ => true,
        };
        if authentic && readable {
            return Ok((base, true));
        }
        Ok((new.or(base), false))
    }

    /// Whether the stored bytes are those of the slot, in a file of `size` bytes.
    fn verifies(&self, identity: &Identity, index: u64, slot: Slot, size: u64) -> Result<bool> {
        let id = ChunkId { index, epoch: slot.epoch, nonce: slot.nonce };
        if slot.is_hole() {
            return Ok(identity.keys.chunk.verify_hole(&id, &slot.tag).is_ok());
        }
        let mut bytes = [0; CHUNK];
        let bytes = &mut bytes[..layout::chunk_len(size, index)];
        let whole = self.store.read_at(bytes, layout::chunk_offset(index))? == bytes.len();
        Ok(whole && identity.keys.chunk.verify(&id, &slot.tag, bytes).is_ok())
    }
}

impl Dirty<'_> {
    fn entry(&self, index: u64) -> Entry {
        let group = self.groups.get(layout::group_of(index) as usize);
        group.map_or(Entry::default(), |g| g[layout::place_in_group(index)])
    }

    fn in_base(&self, index: u64) -> bool {
        index < layout::chunks(self.base.size)
    }

    fn base_slot(&self, index: u64) -> Option<Slot> {
        let slot = self.entry(index).current(Some(self.base.epoch), None);
        slot.filter(|_| self.in_base(index)).map(|(_, slot)| slot)
    }

    fn target_slot(&self, index: u64) -> Option<Slot> {
        self.entry(index).current(None, Some(self.target.epoch)).map(|(_, slot)| slot)
    }

    fn newest_slot(&self, index: u64) -> Option<Slot> {
        self.target_slot(index).or_else(|| self.base_slot(index))
    }

    /// The root over the slots that `pick` takes in a file of `size` bytes.
    fn root(&self, size: u64, pick: impl Fn(&Self, u64) -> Option<Slot>) -> Digest {
        let end = layout::chunks(size);
        let groups = (0..layout::groups(size)).map(|group| {
            let first = layout::first_chunk(group);
            let slots = (first..first + layout::entries_in(group) as u64)
                .map(|index| Entry([pick(self, index).filter(|_| index < end), None]));
            slots.collect()
        });
        // Counts nowhere: it is gone at once.
        let memory = SlotMemory::new(0);
        Tree::build(&self.identity.keys, groups.collect(), size, u64::MAX, &memory).root()
    }
}

fn sector(header: &[u8; layout::PAGE as usize], place: usize) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    bytes.copy_from_slice(&header[place * RECORD..][..RECORD]);
    bytes
}

fn bad_record(reason: &'static str) -> Error {
    Damage { what: "commit record".into(), reason }.into()
}
