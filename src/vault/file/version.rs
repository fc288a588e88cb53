//! A flight's chunks become a part of the version in the store: slots, entries, record, ciphertext.
//!
//! What must hold, and why, is in `docs/format.md`, "Writing". The order here: everything that only adds
//! (record, slots, new chunks) needs no barrier; a chunk that the durable base holds is overwritten only
//! when the slot that will describe it is durable.

use super::{
    Durability, File,
    flight::Flight,
    rules::{Rule, holds},
    state::{Identity, NewRecord, OnDisk, Pending, State},
    tree::{encode_entries, read_entries},
    writes::Writes,
};
use crate::{
    crypto::chunk::ChunkId,
    engine::{Batch, ChunkJob},
    format::{
        entry::{Entry, Slot},
        layout,
        record::Version,
    },
    vault::Result,
};
use std::{collections::BTreeSet, io};

/// What a flight brings to the store beside the data.
pub(super) struct Prepared {
    record: NewRecord,
    /// The groups whose entries are written.
    groups: BTreeSet<u64>,
    /// Their entries, or the header page, and where they go.
    entries: Vec<(u64, Vec<u8>)>,
    /// The length that the store gets first, if it is shorter.
    length: Option<u64>,
    /// Chunks that the base holds data for are overwritten.
    protected: bool,
    /// Then record and slots are made durable before.
    barrier: bool,
    /// Where the store has the data of chunks that become holes: offset and length.
    freed: Vec<(u64, u64)>,
}

impl Prepared {
    /// The groups whose entries may be in the store.
    pub(super) fn into_groups(self) -> BTreeSet<u64> {
        self.groups
    }
}

/// Where writing a version ended.
pub(super) enum WriteError {
    /// Before any data of the base was overwritten.
    Slots(io::Error),
    /// The same, and what was written before may be gone.
    Sync(io::Error),
    /// After the slots were durable.
    Data(io::Error),
}

impl File {
    /// Puts a flight's slots into the tree, as a change that the caller keeps or takes back.
    pub(super) fn prepare_version(
        &self,
        st: &mut State,
        flight: &Flight,
        batches: &[Batch],
    ) -> Result<Prepared> {
        if st.records.on_disk == OnDisk::Nothing && !self.store.is_empty()? {
            // Left of a first flush: of ours that failed, or of one that a crash took the record of.
            if st.leftover.is_none() {
                (self.context.set_aside)(&*self.store)?;
            }
            self.store.set_len(0)?;
        }
        let identity = &*flight.identity;
        let size = flight.size.max(st.tree.size());
        if size > st.tree.size() {
            self.cut_overhang(st)?;
        }
        let (data, holes) = (slots(flight, batches), hole_slots(identity, flight));
        let mut groups =
            self.load_groups(st, identity, size, data.iter().chain(&holes).map(|(index, _)| *index))?;
        groups.extend(self.spoiled_groups(st)?);

        st.tree.begin(flight.epoch);
        let source = self.source(identity);
        if size > st.tree.size() {
            st.tree.grow(source, size)?;
        }
        let (overwritten, punched) = (set_slots(st, &data)?, set_slots(st, &holes)?);
        let protected = !overwritten.is_empty() || !punched.is_empty();
        st.tree.update(source, &groups)?;
        let target = Version { epoch: flight.epoch, size, root: st.tree.root() };
        let record = self.encode_record(st, identity, target, false);

        // Also where a power cut may damage what is overwritten: without a record of the base the file would end there.
        let strict = self.context.durability == Durability::Strict;
        // The store is extended before the barrier (a base tail that grows must not lose its old end to a torn
        // size), and where no chunk that is written reaches the end.
        let end = jobs(batches).map(|(_, job)| job.id.index + 1).max().unwrap_or(0);
        let reaches_end = end > 0 && end == layout::chunks(size) && !protected;
        let place = |index: &u64| (layout::chunk_offset(*index), layout::chunk_len(size, *index) as u64);
        Ok(Prepared {
            entries: entries(st, &record, &groups),
            groups,
            record,
            length: (!reaches_end && holds(Rule::LengthBeforeSync)).then(|| layout::stored_size(size)),
            protected,
            barrier: strict || !st.base_is_named,
            freed: punched.iter().map(place).collect(),
        })
    }

    /// Loads the groups of these chunks, and the one at the old end if a growing file must erase entries
    /// there. Returns those to write.
    pub(super) fn load_groups(
        &self,
        st: &mut State,
        identity: &Identity,
        size: u64,
        chunks: impl Iterator<Item = u64>,
    ) -> Result<BTreeSet<u64>> {
        let source = self.source(identity);
        st.tree.trim_cache();
        let mut groups: Vec<u64> = chunks.map(layout::group_of).collect();
        groups.dedup();
        let mut groups = BTreeSet::from_iter(groups);
        st.tree.load_all(source, groups.iter().copied())?;
        if size > st.tree.size() {
            let last = layout::groups(st.tree.size()) - 1;
            st.tree.load(source, last)?;
            if st.tree.is_stale(last) && holds(Rule::EraseWhereGrown) {
                groups.insert(last);
            }
        }
        Ok(groups)
    }

    /// Cuts the stored file where it may be longer than the version: what lies there must not count when that grows.
    pub(super) fn cut_overhang(&self, st: &mut State) -> Result<()> {
        if st.overhangs && holds(Rule::CutBeforeGrowth) {
            let stored = layout::stored_size(st.tree.size());
            if self.store.len()? > stored {
                self.store.set_len(stored)?;
            }
            st.overhangs = false;
        }
        Ok(())
    }

    /// The groups in which a failed flush left something that is not in this version. On a full store those that have it not
    /// may have no place, so only these are written again.
    fn spoiled_groups(&self, st: &mut State) -> Result<Vec<u64>> {
        let end = layout::groups(st.tree.size());
        let mut spoiled = Vec::new();
        for group in st.leftover.iter().flatten().copied().filter(|group| *group < end) {
            if holds(Rule::EraseLeftovers)
                && read_entries(&*self.store, group)? != encode_entries(st.tree.entries(group)?)
            {
                spoiled.push(group);
            }
        }
        Ok(spoiled)
    }

    /// Writes a version to the store. Needs nothing of the state.
    pub(super) fn write_version(
        &self,
        prepared: &Prepared,
        batches: &[Batch],
    ) -> std::result::Result<(), WriteError> {
        let mut slots = Writes::default();
        if prepared.entries.first().is_none_or(|(offset, _)| *offset > 0) {
            slots.add(prepared.record.offset(), &prepared.record.sector); // else it is in the header page
        }
        for (offset, entries) in &prepared.entries {
            slots.add(*offset, entries);
        }
        let mut data = Writes::default();
        for batch in batches {
            for run in batch.jobs.chunk_by(are_adjacent) {
                let (first, last) = (&run[0], &run[run.len() - 1]);
                let bytes = &batch.output[first.offset..last.offset + last.len];
                data.add(layout::chunk_offset(first.id.index), bytes);
            }
        }
        self.grow_store(prepared).map_err(WriteError::Slots)?;
        if !prepared.protected {
            slots.add_all(&data);
            return slots.write(&*self.store).map_err(WriteError::Slots);
        }
        slots.write(&*self.store).map_err(WriteError::Slots)?;
        if prepared.barrier && holds(Rule::SyncBeforeOverwrite) {
            self.store.sync_data().map_err(WriteError::Sync)?;
        }
        data.write(&*self.store).map_err(WriteError::Data)
    }

    fn grow_store(&self, prepared: &Prepared) -> io::Result<()> {
        match prepared.length {
            Some(length) if self.store.len()? < length => self.store.set_len(length),
            _ => Ok(()),
        }
    }

    /// Record and slots are in the store. Returns where data of holes may be freed.
    pub(super) fn accept(&self, st: &mut State, prepared: Prepared, flight: &Flight) -> Vec<(u64, u64)> {
        st.records.accept(prepared.record);
        st.tree.keep();
        st.leftover = None;
        st.base_is_named |= prepared.protected && prepared.barrier;
        st.uncommitted += flight.chunks as u64 * layout::CHUNK;
        st.note_change();
        prepared.freed
    }

    /// The data is there, too: frees the space of holes.
    pub(super) fn after_data(&self, st: &mut State, freed: &[(u64, u64)], flight: &Flight) {
        for (offset, len) in freed {
            if let Err(e) = self.store.punch(*offset, *len) {
                log::debug!("space of a hole could not be freed: {e}");
            }
        }
        for index in &flight.holes {
            st.buffer.forget_hole(*index);
        }
        self.restore_mtime(st);
    }

    /// Completes the overwrites of a flush that failed half-way.
    pub(super) fn finish_pending(&self, st: &mut State) -> Result<()> {
        if !holds(Rule::FinishOverwrites) {
            st.pending.clear();
        }
        while let Some(write) = st.pending.last() {
            self.store.write_at(&write.bytes, write.offset)?;
            st.pending.pop();
        }
        Ok(())
    }
}

/// The jobs of some batches, each with its batch.
pub(super) fn jobs(batches: &[Batch]) -> impl Iterator<Item = (&Batch, &ChunkJob)> {
    batches.iter().flat_map(|batch| batch.jobs.iter().map(move |job| (batch, job)))
}

/// Whether the second chunk is behind the first in the batch and in the store.
fn are_adjacent(first: &ChunkJob, second: &ChunkJob) -> bool {
    let apart = |job: &ChunkJob| layout::chunk_offset(job.id.index).wrapping_sub(job.offset as u64);
    second.offset == first.offset + first.len && apart(first) == apart(second)
}

/// The writes of a flight's data.
pub(super) fn pending(batches: &[Batch]) -> Vec<Pending> {
    let write = |(batch, job): (&Batch, &ChunkJob)| Pending {
        offset: layout::chunk_offset(job.id.index),
        bytes: batch.output[job.offset..][..job.len].to_vec(),
    };
    jobs(batches).map(write).collect()
}

/// The slots of a flight's chunks.
fn slots(flight: &Flight, batches: &[Batch]) -> Vec<(u64, Slot)> {
    let mut slots = Vec::with_capacity(flight.chunks);
    for (_, job) in jobs(batches) {
        slots.push((job.id.index, Slot { nonce: job.id.nonce, epoch: flight.epoch, tag: job.tag }));
    }
    slots
}

/// The slots of its holes.
fn hole_slots(identity: &Identity, flight: &Flight) -> Vec<(u64, Slot)> {
    let slot = |index: &u64| {
        let id = ChunkId { index: *index, epoch: flight.epoch, nonce: [0; 10] };
        (*index, Slot { nonce: id.nonce, epoch: id.epoch, tag: identity.keys.chunk.hole_tag(&id) })
    };
    flight.holes.iter().map(slot).collect()
}

/// The entries of these groups, and where they go.
fn entries(st: &mut State, record: &NewRecord, groups: &BTreeSet<u64>) -> Vec<(u64, Vec<u8>)> {
    let page = |group: &u64| {
        let bytes = st.tree.entries_bytes(*group);
        if *group > 0 {
            return (layout::entries_offset(*group), bytes);
        }
        // The header page in one piece: a kill keeps all of it or nothing.
        let mut header = st.records.sectors.as_flattened().to_vec();
        header[record.offset() as usize..][..record.sector.len()].copy_from_slice(&record.sector);
        header.extend_from_slice(&bytes);
        (0, header)
    };
    groups.iter().map(page).collect()
}

/// Puts new slots into the entries of chunks of loaded groups; none takes the place of the durable base's. Returns the
/// chunks that the base has data of.
pub(super) fn set_slots(st: &mut State, slots: &[(u64, Slot)]) -> Result<Vec<u64>> {
    let end = layout::chunks(st.base.size);
    let (mut protected, mut entries) = (Vec::new(), Vec::with_capacity(layout::GROUP as usize));
    for run in slots.chunk_by(|a, b| layout::group_of(a.0) == layout::group_of(b.0)) {
        let group = layout::group_of(run[0].0);
        let before = st.tree.entries(group)?;
        entries.clear();
        for (index, slot) in run {
            let entry = &before[layout::place_in_group(*index)];
            let base = entry.current(Some(st.base.epoch), None).filter(|_| *index < end);
            if base.is_some_and(|(_, base)| !base.is_hole()) {
                protected.push(*index);
            }
            entries.push((*index, with_slot(base, *slot)));
        }
        st.tree.set_entries(group, &entries);
    }
    Ok(protected)
}

/// An entry of the slot that the base has, which stays in its place, and a new one.
fn with_slot(base: Option<(usize, Slot)>, slot: Slot) -> Entry {
    let mut entry = Entry([Some(slot), None]);
    if let Some((place, base)) = base.filter(|_| holds(Rule::KeepBaseSlot)) {
        entry.0[place] = Some(base);
        entry.0[1 - place] = Some(slot);
    }
    entry
}
