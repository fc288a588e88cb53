//! Writing down what was chosen. Only what a sync has confirmed since counts: after a sync that failed, the store's page
//! cache may show what the disk never got. So what is kept is written again, in the order of a flush, before anything goes.

use super::{File, Recovered, State, indexed};
use crate::{
    format::{entry::Entry, layout},
    vault::{
        Result,
        file::{
            rules::{Rule, holds},
            tree::{Tree, encode_entries, read_entries},
        },
    },
};

impl File {
    /// Makes the recovered version durable, then says so. `groups` are those with more than the base's slots.
    ///
    /// # Errors
    /// The store's; the next opening then begins anew.
    pub(super) fn redo(&self, st: &mut State, recovered: &Recovered, groups: &[u64]) -> Result<()> {
        let groups = Vec::from_iter(groups.iter().copied().filter(|g| *g < layout::groups(recovered.size)));
        if holds(Rule::RewriteSlots) {
            self.rewrite_slots(st, &groups)?;
        }
        if holds(Rule::RewriteData) && self.rewrite_data(recovered, &groups)? {
            self.sync_store(st)?;
        }
        let two = self.erase(recovered, &groups, Recovered::retained)?;
        let stored = layout::stored_size(st.base.size);
        if self.store.len()? != stored {
            self.store.set_len(stored)?;
        }
        for (offset, page) in st.tree.unsaved_nodes() {
            self.store.write_at(&page, offset)?;
        }
        self.sync_store(st)?;
        if two {
            if holds(Rule::RecordBeforeErasing) {
                self.write_base_record(st)?;
                self.sync_store(st)?;
            }
            self.erase(recovered, &groups, Recovered::current)?;
            self.sync_store(st)?;
        }
        st.tree = Tree::new(&st.base, &self.context.slots);
        self.write_clean_record(st)
    }

    /// Records and slots, as they are.
    fn rewrite_slots(&self, st: &mut State, groups: &[u64]) -> Result<()> {
        self.store.write_at(st.records.sectors.as_flattened(), 0)?;
        for group in groups {
            let entries = read_entries(&*self.store, *group)?;
            self.store.write_at(&entries, layout::entries_offset(*group))?;
        }
        self.sync_store(st)
    }

    /// The data that kept slots are of; whether there is any.
    fn rewrite_data(&self, recovered: &Recovered, groups: &[u64]) -> Result<bool> {
        let mut any = false;
        for group in groups {
            let raw = read_entries(&*self.store, *group)?;
            let kept = |(index, entry): &(u64, Entry)| {
                recovered.kept_slot(*index, entry).is_some_and(|slot| !slot.is_hole())
            };
            let chunks: Vec<u64> = indexed(*group, &raw).filter(kept).map(|(index, _)| index).collect();
            for run in chunks.chunk_by(|a, b| a + 1 == *b) {
                let (first, last) = (run[0], run[run.len() - 1]);
                let start = layout::chunk_offset(first);
                let end = layout::chunk_offset(last) + layout::chunk_len(recovered.size, last) as u64;
                let mut bytes = vec![0; (end - start) as usize];
                let read = self.store.read_at(&mut bytes, start)?; // less where a damaged chunk is not all there
                self.store.write_at(&bytes[..read], start)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Leaves each entry what `which` says; whether one has two slots then.
    fn erase(
        &self,
        recovered: &Recovered,
        groups: &[u64],
        which: impl Fn(&Recovered, u64, &Entry) -> Entry,
    ) -> Result<bool> {
        let mut two = false;
        for group in groups {
            let raw = read_entries(&*self.store, *group)?;
            let entries: Vec<Entry> =
                indexed(*group, &raw).map(|(index, entry)| which(recovered, index, &entry)).collect();
            two |= entries.iter().any(|entry| entry.0.iter().flatten().count() > 1);
            let bytes = encode_entries(&entries);
            // What the slots mean is not enough: under a clean record every byte of an empty one is zero.
            if bytes != raw && holds(Rule::EraseRejected) {
                self.store.write_at(&bytes, layout::entries_offset(*group))?;
            }
        }
        Ok(two)
    }
}
