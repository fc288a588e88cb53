//! Commit: what was flushed becomes durable; and the way to a clean record.

use super::{
    File,
    read::damaged_chunk,
    rules::{Rule, holds},
    state::{Identity, OnDisk, State, next_epoch},
    version,
};
use crate::{
    crypto::chunk::ChunkId,
    format::{
        entry::{ENTRY, Slot},
        layout,
        record::Version,
    },
    vault::Result,
};

/// A file's step on the way to rest; void if the file changed since.
#[derive(Debug, Clone, Copy)]
pub struct Rest {
    changes: u64,
}

impl File {
    /// Makes what was flushed durable: it is the base then. A record says so, which need not be durable: the one before names
    /// the same version as its target, so a crash finds it either way. But under that one damage could be taken for data that
    /// a crash kept from the store. Without anything flushed it still syncs: recovery may have left something in the page
    /// cache.
    pub(super) fn commit(&self, st: &mut State) -> Result<()> {
        self.land_all(st);
        self.finish_pending(st)?;
        if holds(Rule::SyncBeforeBase) {
            self.sync_store(st)?;
        }
        if st.is_committed() {
            return Ok(());
        }
        self.advance(st);
        if holds(Rule::RecordAfterCommit)
            && let Err(e) = self.write_base_record(st)
        {
            log::debug!("the record after a commit could not be written: {e}");
        }
        Ok(())
    }

    /// First step to rest: flushes, and writes the node pages. The caller then syncs the store.
    ///
    /// # Errors
    /// As `flush`.
    pub fn rest_flush(&self) -> Result<Rest> {
        let mut st = self.state.write();
        self.check_writable(&mut st)?;
        self.flush_all(&mut st)?;
        self.finish_pending(&mut st)?;
        if st.records.on_disk.may_be_dirty() && holds(Rule::NodesBeforeClean) {
            let nodes = st.tree.unsaved_nodes();
            for (offset, page) in &nodes {
                self.store.write_at(page, *offset)?;
            }
            if !nodes.is_empty() {
                self.restore_mtime(&st);
            }
        }
        Ok(Rest { changes: st.changes })
    }

    /// The sync between two steps, for this file alone.
    ///
    /// # Errors
    /// The store's; the file then takes no more writes.
    pub fn rest_sync(&self) -> Result<()> {
        let mut st = self.state.write();
        if holds(Rule::SyncBeforeClean) { self.sync_store(&mut st) } else { Ok(()) }
    }

    /// Second step, after a sync: the version is the base, and older slots go. The caller then syncs again.
    /// Where nothing has to go, as in a file written once, the clean record follows at once.
    /// `false` if there is no last step: the file rests now, or it changed.
    ///
    /// # Errors
    /// The store's.
    pub fn rest_settle(&self, rest: Rest) -> Result<bool> {
        let mut st = self.state.write();
        if is_void(&st, rest) || !st.records.on_disk.may_be_dirty() || st.fault.is_some() {
            return Ok(false);
        }
        let stored = layout::stored_size(st.tree.size());
        if st.tree.is_canonical() && self.store.len()? == stored {
            self.advance(&mut st);
            self.write_clean_record(&mut st)?;
            return Ok(false);
        }
        self.advance(&mut st);
        if holds(Rule::EraseOlderSlots) {
            self.write_canonical(&mut st)?;
        }
        if self.store.len()? != stored && holds(Rule::ExactLength) {
            self.store.set_len(stored)?; // a cut that failed after its record
        }
        self.restore_mtime(&st);
        Ok(true)
    }

    /// Whether the first step has nothing to write.
    pub fn is_flushed(&self) -> bool {
        let st = self.state.read();
        st.is_stored() && st.tree.unsaved_nodes().is_empty()
    }

    /// Last step, after the second sync: the clean record.
    ///
    /// # Errors
    /// The store's.
    pub fn rest_finish(&self, rest: Rest) -> Result<()> {
        let mut st = self.state.write();
        if !is_void(&st, rest) && st.fault.is_none() && st.is_committed() {
            self.write_clean_record(&mut st)?;
        }
        Ok(())
    }

    /// Erases slots that are not current from the groups written since the last clean record.
    pub(super) fn write_canonical(&self, st: &mut State) -> Result<()> {
        let Some(identity) = st.identity.clone() else { return Ok(()) };
        for group in st.tree.touched() {
            st.tree.load(self.source(&identity), group)?;
            if !st.tree.make_canonical(group) {
                continue;
            }
            let bytes = st.tree.entries_bytes(group);
            if let Err(e) = self.store.write_at(&bytes, layout::entries_offset(group)) {
                st.tree.resident = true; // the store has older slots still
                return Err(e.into());
            }
        }
        Ok(())
    }

    pub(super) fn write_clean_record(&self, st: &mut State) -> Result<()> {
        let Some(identity) = st.identity.clone() else { return Ok(()) };
        let base = st.base;
        let record = self.encode_record(st, &identity, base, true);
        self.keep_mtime(st)?;
        st.records.on_disk = OnDisk::DirtyOrClean;
        if holds(Rule::CleanTwice) {
            // Without the other sector's dirty record nobody can make recovery choose again.
            self.store.write_at(&[record.sector; 2].concat(), 0)?;
        } else {
            self.store.write_at(&record.sector, record.offset())?;
        }
        st.records.accept_clean(record);
        st.overhangs = false;
        self.restore_mtime(st);
        st.tree.set_clean();
        st.skip_epochs()
    }

    /// Cuts the flushed version to `size`, below its present size: an epoch of its own.
    pub(super) fn cut_flushed(&self, st: &mut State, size: u64) -> Result<()> {
        self.keep_mtime(st)?;
        if st.leftover.is_some() {
            self.flush_record(st)?;
        }
        self.finish_pending(st)?;
        let identity = self.identity(st)?;
        // Nothing of a file cut to nothing is needed again, so its last version need not be durable first.
        if !st.is_committed() && size > 0 && holds(Rule::CommitBeforeCut) {
            self.commit(st)?;
        }
        let source = self.source(&identity);
        st.tree.trim_cache();
        st.tree.load(source, layout::groups(size) - 1)?;
        let retag = self.boundary_slot(st, size)?.filter(|_| holds(Rule::RetagAtCut));
        let epoch = match retag {
            Some(_) => self.begin_epoch(st, &identity)?,
            None => next_epoch(st)?, // no slot is written: the record itself comes first
        };
        st.tree.begin(epoch);
        if let Err(e) = self.write_cut(st, &identity, size, epoch, retag) {
            st.tree.take_back();
            st.note_leftover([layout::groups(size) - 1]);
            self.restore_mtime(st);
            return Err(e);
        }
        self.advance(st);
        st.note_change();
        let cut = self.store.set_len(layout::stored_size(size));
        self.restore_mtime(st);
        if let Err(e) = cut {
            if !holds(Rule::CutHasHappened) {
                return Err(e.into());
            }
            st.overhangs = true;
            log::warn!("a file was cut, but its space could not be freed yet: {e}");
        }
        Ok(())
    }

    fn write_cut(
        &self,
        st: &mut State,
        identity: &Identity,
        size: u64,
        epoch: u64,
        retag: Option<(u64, Slot)>,
    ) -> Result<()> {
        let source = self.source(identity);
        if let Some((index, slot)) = retag {
            let slot = self.retagged(st, identity, index, Slot { epoch, ..slot }, size)?;
            version::set_slots(st, &[(index, slot)])?;
        }
        st.tree.shrink(source, size)?;
        let target = Version { epoch, size, root: st.tree.root() };
        let record = self.encode_record(st, identity, target, false);
        self.write_record(st, record)?;
        if let Some((index, _)) = retag {
            // This entry alone: those past the new end stay until the cut is durable, the base needs them.
            let mut bytes = [0; ENTRY];
            st.tree.entry(index)?.encode(&mut bytes);
            let group = layout::entries_offset(layout::group_of(index));
            self.store.write_at(&bytes, group + (layout::place_in_group(index) * ENTRY) as u64)?;
        }
        if holds(Rule::SyncBeforeCut) {
            self.sync_store(st)?;
        }
        st.tree.keep();
        Ok(())
    }

    /// The slot of the chunk that a cut to `size` leaves shorter, if it has data.
    fn boundary_slot(&self, st: &State, size: u64) -> Result<Option<(u64, Slot)>> {
        if size.is_multiple_of(layout::CHUNK) {
            return Ok(None);
        }
        let index = size / layout::CHUNK;
        Ok(st.tree.slot(index)?.filter(|slot| !slot.is_hole()).map(|slot| (index, slot)))
    }

    /// The slot for the first bytes of a chunk's ciphertext, which is verified first: the nonce stays, no
    /// keystream is used anew.
    fn retagged(&self, st: &State, identity: &Identity, index: u64, new: Slot, size: u64) -> Result<Slot> {
        let old = st.tree.slot(index)?.unwrap_or(new);
        let mut bytes = vec![0; layout::chunk_len(st.tree.size(), index)];
        self.read_ciphertext(index, &mut bytes)?;
        let id = |epoch| ChunkId { index, epoch, nonce: old.nonce };
        let verified = identity.keys.chunk.verify(&id(old.epoch), &old.tag, &bytes);
        verified.map_err(|_| damaged_chunk(index))?;
        let kept = &bytes[..layout::chunk_len(size, index)];
        Ok(Slot { tag: identity.keys.chunk.tag(&id(new.epoch), kept), ..new })
    }
}

/// Whether the file changed since the first step to rest.
fn is_void(st: &State, rest: Rest) -> bool {
    st.changes != rest.changes && holds(Rule::RestIsVoid)
}
