//! Sealed to assigned: puts the slots of a write into the tree, which determines the writes to the store.

use crate::{
    commit::Committer,
    context::Durability,
    error::Result,
    in_flight::{Assigned, Ended, InFlight, Plan, SealedWrite, Stage, WriteOutcome, jobs},
    record::{FileIdentity, NewRecord, OnDisk},
    rules::{Rule, holds},
    state::State,
    tree::{encode_entries, read_entries},
};
use crypto::chunk::ChunkId;
use engine::Batch;
use format::{
    entry::{Entry, Slot},
    layout,
    record::Version,
};
use std::collections::BTreeSet;

impl Committer<'_> {
    /// Assigns the slots of a sealed write, which must be the first one.
    pub(super) fn assign(&self, st: &mut State, write: &InFlight, stage: &mut Stage) {
        *stage = match stage.take() {
            Stage::Sealed(SealedWrite { payload }) => match self.plan(st, write, &payload.batches) {
                Ok(plan) => Stage::Assigned(Assigned { payload, plan }),
                Err(e) => {
                    st.stored.tree.take_back();
                    Stage::Ended(Ended { payload, outcome: WriteOutcome::Refused(e) })
                }
            },
            other => other,
        };
    }

    /// Puts the slots into the tree, as a change that the caller keeps or takes back.
    fn plan(&self, st: &mut State, write: &InFlight, batches: &[Batch]) -> Result<Plan> {
        (self.backing.context.guard)()?;
        self.clear_blank_store(st)?;
        let identity = &*write.identity;
        let size = write.size.max(st.stored.tree.size());
        if size > st.stored.tree.size() {
            st.stored.cut_overhang(&*self.backing.store)?;
        }
        let (data, holes) = (data_slots(write, batches), hole_slots(identity, write));
        let chunks = data.iter().chain(&holes).map(|(index, _)| *index);
        let mut groups = st.stored.load_groups(self.backing.source(identity), size, chunks)?;
        groups.extend(self.spoiled_groups(st)?);

        let source = self.backing.source(identity);
        let previous = st.stored.flushed();
        st.stored.tree.begin(write.epoch);
        if size > st.stored.tree.size() {
            st.stored.tree.grow(source, size)?;
        }
        let (mut protected, punched) = (set_slots(st, &data)?, set_slots(st, &holes)?);
        protected.sort_unstable();
        let overwrites_base = !protected.is_empty() || !punched.is_empty();
        st.stored.tree.update(source, &groups)?;
        let target = Version { epoch: write.epoch, size, root: st.stored.tree.root() };
        let claim = st.stored.over_base(write.epoch, previous);
        let record = st.stored.records.encode_next(identity, target, claim);

        // Needed even in relaxed mode until a durable record names the base. Under an older record,
        // recovery would end the file at an overwritten chunk.
        let strict = self.backing.context.durability == Durability::Strict;
        // The store is extended before the barrier, because a growing last chunk of the base must not
        // lose its old end to a size that was not durable. It is also extended if no written chunk
        // reaches the end.
        let end = jobs(batches).map(|(_, job)| job.id.index + 1).max().unwrap_or(0);
        let reaches_end = end > 0 && end == layout::chunks(size) && !overwrites_base;
        let place = |index: &u64| (layout::chunk_offset(*index), layout::chunk_len(size, *index) as u64);
        Ok(Plan {
            entries: entries(st, &record, &groups),
            groups,
            record,
            length: (!reaches_end && holds(Rule::LengthBeforeSync)).then(|| layout::stored_size(size)),
            protected,
            overwrites_base,
            barrier: strict || !st.stored.base_is_named,
            freed: punched.iter().map(place).collect(),
        })
    }

    /// Empties a stored file that has no record. Its bytes are left over from a first flush: one of ours
    /// that failed, or one whose record a crash lost.
    fn clear_blank_store(&self, st: &State) -> Result<()> {
        if st.stored.records.on_disk != OnDisk::Nothing {
            return Ok(());
        }
        if !st.stored.is_new && st.stored.leftover.is_none() {
            (self.backing.context.vacate)(&*self.backing.store)?;
        }
        if !self.backing.store.is_empty()? {
            self.backing.store.set_len(0)?;
        }
        Ok(())
    }

    /// The groups that contain leftovers of a failed flush. Only these are written again, because a full
    /// store may have no space for the others.
    fn spoiled_groups(&self, st: &State) -> Result<Vec<u64>> {
        let end = layout::groups(st.stored.tree.size());
        let mut spoiled = Vec::new();
        for group in st.stored.leftover.iter().flatten().copied().filter(|group| *group < end) {
            if holds(Rule::EraseLeftovers)
                && read_entries(&*self.backing.store, group)?
                    != encode_entries(st.stored.tree.entries(group)?)
            {
                spoiled.push(group);
            }
        }
        Ok(spoiled)
    }
}

/// Slots of the chunks with data.
fn data_slots(write: &InFlight, batches: &[Batch]) -> Vec<(u64, Slot)> {
    let mut slots = Vec::with_capacity(write.chunks);
    for (_, job) in jobs(batches) {
        slots.push((job.id.index, Slot { nonce: job.id.nonce, epoch: write.epoch, tag: job.tag }));
    }
    slots
}

/// Slots of the holes.
fn hole_slots(identity: &FileIdentity, write: &InFlight) -> Vec<(u64, Slot)> {
    let slot = |index: &u64| {
        let id = ChunkId { index: *index, epoch: write.epoch, nonce: [0; 10] };
        (*index, Slot { nonce: id.nonce, epoch: id.epoch, tag: identity.keys.chunk.hole_tag(&id) })
    };
    write.holes.iter().map(slot).collect()
}

/// Entries of these groups, with their offsets.
fn entries(st: &mut State, record: &NewRecord, groups: &BTreeSet<u64>) -> Vec<(u64, Vec<u8>)> {
    let page = |group: &u64| {
        let bytes = st.stored.tree.entries_bytes(*group);
        st.stored.tree.note_written(*group); // Taken back with the rest on failure.
        if *group > 0 {
            return (layout::entries_offset(*group), bytes);
        }
        // The header page is one write, so that a kill keeps all of it or nothing.
        let mut header = st.stored.records.sectors.as_flattened().to_vec();
        header[record.offset() as usize..][..record.sector.len()].copy_from_slice(&record.sector);
        header.extend_from_slice(&bytes);
        (0, header)
    };
    groups.iter().map(page).collect()
}

/// Puts new slots into the entries of chunks whose groups are loaded. A new slot never replaces the
/// durable base's. Returns the chunks for which the base has data.
pub(crate) fn set_slots(st: &mut State, slots: &[(u64, Slot)]) -> Result<Vec<u64>> {
    let base = st.stored.base;
    let end = layout::chunks(base.size);
    let (mut protected, mut entries) = (Vec::new(), Vec::with_capacity(layout::GROUP as usize));
    for of_group in slots.chunk_by(|a, b| layout::group_of(a.0) == layout::group_of(b.0)) {
        let group = layout::group_of(of_group[0].0);
        let before = st.stored.tree.entries(group)?;
        entries.clear();
        for (index, slot) in of_group {
            let entry = &before[layout::place_in_group(*index)];
            let kept = entry.current(Some(base.epoch), None).filter(|_| *index < end);
            if kept.is_some_and(|(_, slot)| !slot.is_hole()) {
                protected.push(*index);
            }
            entries.push((*index, with_slot(kept, *slot)));
        }
        st.stored.tree.set_entries(group, &entries);
    }
    Ok(protected)
}

/// An entry with the base's slot, which keeps its position, and a new slot.
fn with_slot(base: Option<(usize, Slot)>, slot: Slot) -> Entry {
    let mut entry = Entry([Some(slot), None]);
    if let Some((place, base)) = base.filter(|_| holds(Rule::KeepBaseSlot)) {
        entry.0[place] = Some(base);
        entry.0[1 - place] = Some(slot);
    }
    entry
}
