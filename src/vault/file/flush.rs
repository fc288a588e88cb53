//! Flush: buffered chunks become slots, entries and ciphertext in the store.
//!
//! What must hold, and why, is in `docs/format.md`, "Writing". The order here: everything that only adds
//! (record, slots, new chunks) needs no barrier; a chunk that the durable base holds is overwritten only
//! when the slot that will describe it is durable.

use super::{
    Durability, File,
    state::{Identity, NewRecord, OnDisk, Pending, State},
    writes::Writes,
};
use crate::{
    crypto::{
        chunk::{CHUNK, ChunkId},
        random,
    },
    engine::{Batch, Buffer, ChunkJob, Op},
    format::{
        entry::{Entry, Slot},
        layout,
        record::Version,
    },
    metrics::{self, Activity},
    vault::Result,
};
use std::collections::BTreeSet;

/// Chunks that a flush is about, ascending.
#[derive(Default)]
struct Changed {
    /// With new content in the buffer.
    chunks: Vec<u64>,
    /// To become holes.
    holes: Vec<u64>,
}

impl Changed {
    /// Those below `bound` that are buffered.
    fn below(st: &State, bound: u64) -> Self {
        Changed { chunks: st.buffer.written(0..bound), holes: st.buffer.holes(0..bound) }
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.holes.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().chain(&self.holes).copied()
    }

    /// Whether it holds for any of them.
    fn any(&self, holds: impl Fn(u64) -> Result<bool>) -> Result<bool> {
        self.all().try_fold(false, |any, index| Ok(any || holds(index)?))
    }
}

/// What one flush writes.
#[derive(Default)]
struct Plan {
    epoch: u64,
    size: u64,
    /// Sealed chunks, ascending, and their slots.
    chunks: Vec<(u64, Slot)>,
    /// Chunks that become holes, and their slots.
    holes: Vec<(u64, Slot)>,
    /// Groups whose entries are written.
    groups: BTreeSet<u64>,
    /// Chunks that the base holds data for.
    protected: BTreeSet<u64>,
    /// Ciphertext, chunk after chunk.
    sealed: Option<Buffer>,
}

impl File {
    /// Flushes all that is buffered.
    pub(super) fn flush_all(&self, st: &mut State) -> Result<()> {
        self.flush_below(st, u64::MAX)
    }

    /// Flushes the buffered chunks below `bound`; the flushed version ends there, too.
    pub(super) fn flush_below(&self, st: &mut State, bound: u64) -> Result<()> {
        let size = st.size.min(bound.saturating_mul(layout::CHUNK)).max(st.tree.size());
        let changed = Changed::below(st, bound);
        if changed.is_empty() && size == st.tree.size() {
            return Ok(());
        }
        self.check_writable(st)?;
        self.finish_pending(st)?;
        self.write_version(st, size, &changed)
    }

    /// Whether a flush would have to sync: after a clean record, or to overwrite what is stored.
    pub(super) fn needs_sync(&self, st: &mut State) -> Result<bool> {
        let changed = Changed::below(st, u64::MAX);
        if changed.is_empty() || st.records.on_disk != OnDisk::Dirty {
            return Ok(st.records.on_disk == OnDisk::Clean);
        }
        let identity = self.identity(st)?;
        self.load_groups(st, &identity, st.tree.size(), &changed)?;
        changed.any(|index| Ok(index < layout::chunks(st.tree.size()) && st.tree.slot(index)?.is_some()))
    }

    /// Gives a file that has none its salt and a record of an empty version.
    pub(super) fn write_first_record(&self, st: &mut State) -> Result<()> {
        self.check_writable(st)?;
        self.write_version(st, st.tree.size(), &Changed::default())
    }

    fn write_version(&self, st: &mut State, size: u64, changed: &Changed) -> Result<()> {
        self.keep_mtime(st)?;
        if st.records.on_disk == OnDisk::Nothing && !self.store.is_empty()? {
            self.store.set_len(0)?; // leavings of a first flush that a crash took the record of
        }
        let identity = self.identity(st)?;
        let groups = self.load_groups(st, &identity, size, changed)?;
        self.commit_if_rewritten(st, changed)?;
        let epoch = self.begin_epoch(st, &identity)?;
        let mut plan = Plan { epoch, size, groups, ..Plan::default() };
        self.seal(st, &identity, changed, &mut plan)?;

        st.tree.begin();
        if let Err(e) = self.write_plan(st, &identity, &plan) {
            st.tree.take_back();
            st.tree.resident = true; // the store may hold slots of the attempt
            self.restore_mtime(st);
            return Err(e);
        }
        self.after_data(st, &plan);
        Ok(())
    }

    /// Loads the groups of these chunks, and the one at the old end if a growing file must erase entries
    /// there. Returns those to write.
    fn load_groups(
        &self,
        st: &mut State,
        identity: &Identity,
        size: u64,
        changed: &Changed,
    ) -> Result<BTreeSet<u64>> {
        let source = self.source(identity);
        st.tree.trim_cache();
        let mut groups: BTreeSet<u64> = changed.all().map(layout::group_of).collect();
        for group in &groups {
            st.tree.load(source, *group)?;
        }
        if size > st.tree.size() {
            let last = layout::groups(st.tree.size()) - 1;
            st.tree.load(source, last)?;
            if st.tree.is_stale(last) {
                groups.insert(last);
            }
        }
        Ok(groups)
    }

    /// A chunk is written once an epoch: before a second time the epoch ends.
    fn commit_if_rewritten(&self, st: &mut State, changed: &Changed) -> Result<()> {
        let Some(epoch) = st.open_epoch else { return Ok(()) };
        if changed
            .any(|index| Ok(st.tree.entry(index)?.0.iter().flatten().any(|slot| slot.epoch == epoch)))?
        {
            self.commit(st)?;
        }
        Ok(())
    }

    fn seal(&self, st: &State, identity: &Identity, changed: &Changed, plan: &mut Plan) -> Result<()> {
        for index in changed.all() {
            if base_slot(st, index)?.is_some_and(|(_, slot)| !slot.is_hole()) {
                plan.protected.insert(index);
            }
        }
        let epoch = plan.epoch;
        for &index in &changed.holes {
            let id = ChunkId { index, epoch, nonce: [0; 10] };
            let tag = identity.keys.chunk.hole_tag(&id);
            plan.holes.push((index, Slot { nonce: id.nonce, epoch, tag }));
        }
        if changed.chunks.is_empty() {
            return Ok(());
        }
        self.seal_chunks(st, identity, &changed.chunks, plan)
    }

    fn seal_chunks(&self, st: &State, identity: &Identity, chunks: &[u64], plan: &mut Plan) -> Result<()> {
        let mut nonces = vec![0; chunks.len() * 10];
        random::fill(&mut nonces)?;
        let router = &self.context.router;
        let (input, output) = router.buffers.get_pair(chunks.len() * CHUNK);
        let mut batch = Batch {
            op: Op::Seal,
            keys: vec![identity.keys.chunk.clone()],
            jobs: Vec::with_capacity(chunks.len()),
            input,
            output,
        };
        for (at, (index, nonce)) in chunks.iter().zip(nonces.as_chunks::<10>().0).enumerate() {
            let len = layout::chunk_len(plan.size, *index);
            let offset = at * CHUNK;
            if let Some(plain) = st.buffer.get(*index) {
                batch.input[offset..offset + len].copy_from_slice(&plain[..len]);
            }
            let id = ChunkId { index: *index, epoch: plan.epoch, nonce: *nonce };
            batch.jobs.push(ChunkJob { key: 0, id, len, offset, tag: [0; 16], ok: false });
        }
        let bytes = batch.jobs.iter().map(|job| job.len).sum();
        metrics::measure(Activity::Batch, bytes, || router.run(&mut batch))?;
        for job in &batch.jobs {
            let slot = Slot { nonce: job.id.nonce, epoch: plan.epoch, tag: job.tag };
            plan.chunks.push((job.id.index, slot));
        }
        plan.sealed = Some(batch.output);
        Ok(())
    }

    /// Brings a plan to the store. An error before the first overwrite of base data leaves memory as it was
    /// (the caller takes the tree back); an error after it leaves `pending` writes behind.
    fn write_plan(&self, st: &mut State, identity: &Identity, plan: &Plan) -> Result<()> {
        let source = self.source(identity);
        if plan.size > st.tree.size() {
            st.tree.grow(source, plan.size)?;
        }
        for (index, slot) in plan.chunks.iter().chain(&plan.holes) {
            let entry = with_slot(st, *index, *slot)?;
            st.tree.set_entry(*index, entry);
        }
        st.tree.update(source, &plan.groups)?;
        let target = Version { epoch: plan.epoch, size: plan.size, root: st.tree.root() };
        let record = self.encode_record(st, identity, target, false);

        let mut slots = Writes::default();
        self.add_record_and_entries(st, &record, &plan.groups, &mut slots);
        let data = data_writes(plan);
        self.grow_store(st, plan)?;
        if plan.protected.is_empty() {
            slots.add_all(&data);
            slots.write(&*self.store)?;
            self.accept(st, record, plan);
            return Ok(());
        }
        slots.write(&*self.store)?;
        if self.context.durability == Durability::Strict {
            self.sync_store(st)?;
        }
        self.accept(st, record, plan);
        if let Err(e) = data.write(&*self.store) {
            st.pending = data.into_pending();
            self.restore_mtime(st);
            return Err(e.into());
        }
        Ok(())
    }

    fn add_record_and_entries<'a>(
        &self,
        st: &mut State,
        record: &'a NewRecord,
        groups: &BTreeSet<u64>,
        writes: &mut Writes<'a>,
    ) {
        if groups.contains(&0) {
            // The header page in one piece: a kill keeps all of it or nothing.
            let mut page = st.records.sectors.as_flattened().to_vec();
            page[record.offset() as usize..][..record.sector.len()].copy_from_slice(&record.sector);
            page.extend_from_slice(&st.tree.entries_bytes(0));
            writes.add_owned(0, page);
        } else {
            writes.add(record.offset(), &record.sector);
        }
        for group in groups.iter().filter(|g| **g > 0) {
            writes.add_owned(layout::entries_offset(*group), st.tree.entries_bytes(*group));
        }
    }

    /// Extends the store before the barrier (a base tail that grows must not lose its old end to a torn
    /// size), and where no chunk that is written reaches the end.
    fn grow_store(&self, st: &State, plan: &Plan) -> Result<()> {
        let reaches_end = plan.chunks.last().is_some_and(|(index, _)| index + 1 == layout::chunks(plan.size));
        if reaches_end && plan.protected.is_empty() {
            return Ok(());
        }
        let wanted = layout::stored_size(plan.size);
        if st.records.on_disk == OnDisk::Nothing || self.store.len()? < wanted {
            self.store.set_len(wanted)?;
        }
        Ok(())
    }

    /// Record and slots are in the store.
    fn accept(&self, st: &mut State, record: NewRecord, plan: &Plan) {
        st.records.accept(record);
        st.tree.keep();
        st.uncommitted += (plan.chunks.len() * CHUNK) as u64;
        st.note_change();
    }

    fn after_data(&self, st: &mut State, plan: &Plan) {
        for (index, _) in &plan.holes {
            if plan.protected.contains(index) {
                let len = layout::chunk_len(plan.size, *index) as u64;
                if let Err(e) = self.store.punch(layout::chunk_offset(*index), len) {
                    log::debug!("space of a hole could not be freed: {e}");
                }
            }
        }
        for (index, _) in plan.chunks.iter().chain(&plan.holes) {
            st.buffer.remove(*index);
        }
        self.restore_mtime(st);
    }

    /// Completes the overwrites of a flush that failed half-way.
    pub(super) fn finish_pending(&self, st: &mut State) -> Result<()> {
        while let Some(write) = st.pending.last() {
            self.store.write_at(&write.bytes, write.offset)?;
            st.pending.pop();
        }
        Ok(())
    }
}

/// The slot that the durable base has for a chunk of a loaded group, and its place.
pub(super) fn base_slot(st: &State, index: u64) -> Result<Option<(usize, Slot)>> {
    if index >= layout::chunks(st.base.size) {
        return Ok(None);
    }
    Ok(st.tree.entry(index)?.current(Some(st.base.epoch), None))
}

/// The chunk's entry with a new slot, which never takes the place of the base's.
pub(super) fn with_slot(st: &State, index: u64, slot: Slot) -> Result<Entry> {
    let mut entry = Entry([Some(slot), None]);
    if let Some((place, base)) = base_slot(st, index)? {
        entry.0[place] = Some(base);
        entry.0[1 - place] = Some(slot);
    }
    Ok(entry)
}

fn data_writes(plan: &Plan) -> Writes<'_> {
    let mut writes = Writes::default();
    if let Some(sealed) = &plan.sealed {
        for (at, (index, _)) in plan.chunks.iter().enumerate() {
            let len = layout::chunk_len(plan.size, *index);
            writes.add(layout::chunk_offset(*index), &sealed[at * CHUNK..][..len]);
        }
    }
    writes
}

impl Writes<'_> {
    fn into_pending(self) -> Vec<Pending> {
        self.into_owned().into_iter().map(|(offset, bytes)| Pending { offset, bytes }).collect()
    }
}
