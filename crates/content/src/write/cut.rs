//! Truncation of the flushed version, which uses its own epoch.

use crate::{
    commit::set_slots,
    damage::damaged_chunk,
    error::Result,
    record::FileIdentity,
    rules::{Rule, holds},
    state::State,
    write::ContentWriter,
};
use crypto::chunk::ChunkId;
use format::{
    entry::{ENTRY, Slot},
    layout,
    record::Version,
};

impl ContentWriter<'_> {
    /// Truncates the flushed version to `size`, which must be smaller.
    ///
    /// # Errors
    /// The store's, before the truncation is durable; nothing was truncated then.
    pub(crate) fn cut_flushed(&self, st: &mut State, size: u64) -> Result<()> {
        // T1
        st.remember_mtime(&*self.core.backing.store)?;
        if st.stored.leftover.is_some() {
            self.flusher().flush_record(st)?;
        }
        st.dirty.finish_overwrites(&*self.core.backing.store)?;
        let identity = self.records().identity_or_new(st)?;
        // After truncation to nothing, no older version is needed, so the last one need not be durable
        // first.
        if !st.stored.is_committed() && size > 0 && holds(Rule::CommitBeforeCut) {
            self.committer().commit(st)?;
        }
        // T2
        st.stored.tree.trim_cache();
        st.stored.tree.load(self.core.backing.source(&identity), layout::groups(size) - 1)?;
        let shortened = self.shortened_slot(st, size)?.filter(|_| holds(Rule::RetagAtCut));
        let epoch = match shortened {
            Some(_) => self.records().begin_epoch(st, &identity)?,
            None => st.stored.next_epoch()?, // No slot is written; the record itself comes first.
        };
        let previous = st.stored.flushed();
        st.stored.tree.begin(epoch);
        if let Err(e) = self.write_cut(st, &identity, size, previous, shortened) {
            st.stored.undo([layout::groups(size) - 1]);
            st.restore_mtime(&*self.core.backing.store);
            return Err(e);
        }
        st.advance_base();
        st.times.note_change();
        // T4
        let cut = self.core.backing.store.set_len(layout::stored_size(size));
        st.restore_mtime(&*self.core.backing.store);
        if let Err(e) = cut {
            if !holds(Rule::CutHasHappened) {
                return Err(e.into());
            }
            st.stored.overhangs = true;
            log::warn!("a file was truncated, but its space could not be freed yet: {e}");
        }
        Ok(())
    }

    fn write_cut(
        &self,
        st: &mut State,
        identity: &FileIdentity,
        size: u64,
        previous: Version,
        shortened: Option<(u64, Slot)>,
    ) -> Result<()> {
        let epoch = st.stored.tree.epoch();
        if let Some((index, slot)) = shortened {
            let slot = self.retag(st, identity, index, Slot { epoch, ..slot }, size)?;
            set_slots(st, &[(index, slot)])?;
        }
        st.stored.tree.shrink(self.core.backing.source(identity), size)?;
        let target = Version { epoch, size, root: st.stored.tree.root() };
        let claim = st.stored.over_base(epoch, previous);
        let record = st.stored.records.encode_next(identity, target, claim);
        // T3
        self.records().write_record(st, record)?;
        if let Some((index, _)) = shortened {
            // Write this entry alone: the base needs those past the new end until the truncation is
            // durable.
            let mut bytes = [0; ENTRY];
            st.stored.tree.entry(index)?.encode(&mut bytes);
            let group = layout::entries_offset(layout::group_of(index));
            self.core
                .backing
                .store
                .write_at(&bytes, group + (layout::place_in_group(index) * ENTRY) as u64)?;
        }
        if holds(Rule::SyncBeforeCut) {
            self.records().sync_store(st)?;
        }
        st.stored.tree.keep();
        Ok(())
    }

    /// The slot of the chunk that truncation to `size` shortens, if it has data.
    fn shortened_slot(&self, st: &State, size: u64) -> Result<Option<(u64, Slot)>> {
        if size.is_multiple_of(layout::CHUNK) {
            return Ok(None);
        }
        let index = size / layout::CHUNK;
        Ok(st.stored.tree.slot(index)?.filter(|slot| !slot.is_hole()).map(|slot| (index, slot)))
    }

    /// The slot for the first part of a chunk's ciphertext, which is verified first. The nonce stays the
    /// same, so no keystream is used for another plaintext.
    fn retag(&self, st: &State, identity: &FileIdentity, index: u64, new: Slot, size: u64) -> Result<Slot> {
        let old = st.stored.tree.slot(index)?.unwrap_or(new);
        let mut bytes = vec![0; layout::chunk_len(st.stored.tree.size(), index)];
        self.core.backing.read_ciphertext(index, &mut bytes)?;
        let id = |epoch| ChunkId { index, epoch, nonce: old.nonce };
        let verified = identity.keys.chunk.verify(&id(old.epoch), &old.tag, &bytes);
        verified.map_err(|_| damaged_chunk(index))?;
        let kept = &bytes[..layout::chunk_len(size, index)];
        Ok(Slot { tag: identity.keys.chunk.tag(&id(new.epoch), kept), ..new })
    }
}
