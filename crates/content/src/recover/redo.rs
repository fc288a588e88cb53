//! R3 to R6: writes the choice down. Only data covered by a later successful sync counts: after a failed
//! sync, the page cache may show data that never reached the disk. So everything kept is written again,
//! in the order of a flush, before anything is erased.

use super::{CrashRecovery, State, indexed};
use crate::{
    error::{Damage, Result},
    record::FileIdentity,
    rules::{Rule, holds},
    tree::{EntryTree, Recovered},
};
use format::{
    entry::{ENTRY, Entry},
    layout,
    record::{Claim, MOST_UNREADABLE, Recovery},
};
use std::ops::Range;

impl CrashRecovery<'_> {
    /// Makes the recovered version durable, then writes the clean record. Can be repeated after a
    /// failure.
    ///
    /// # Errors
    /// The store's; `Damaged`, with nothing written, if more chunks are unreadable than a record can
    /// name.
    pub(super) fn redo(&self, st: &mut State, recovered: &Recovered) -> Result<()> {
        let Some(identity) = st.stored.identity.clone() else { return Ok(()) };
        if recovered.unreadable().len() > MOST_UNREADABLE {
            let reason = "left more unreadable chunks than can be written down: repair the file";
            return Err(Damage { what: "recovery".into(), reason }.into());
        }
        // R3
        if holds(Rule::RewriteSlots) {
            self.backing.store.write_at(st.stored.records.sectors.as_flattened(), 0)?;
            st.stored.records.written = true;
            self.backing.each_group(layout::groups(recovered.size), |group, raw| {
                Ok(self.backing.store.write_at(raw, layout::entries_offset(group))?)
            })?;
            if holds(Rule::RewriteEnd) {
                self.rewrite_end()?;
            }
            self.records().sync_store(st)?;
        }
        if holds(Rule::RewriteData) && self.rewrite_data(recovered)? {
            self.records().sync_store(st)?;
        }
        // R4
        if holds(Rule::RecordBeforeErasing) {
            self.write_recovery_record(st, &identity, recovered)?;
            self.records().sync_store(st)?;
        }
        // R5
        if holds(Rule::EraseRejected) {
            self.erase(recovered)?;
        }
        self.write_exact(st, &identity, recovered)?;
        self.records().sync_store(st)?;
        // R6
        st.stored.tree = EntryTree::new(&st.stored.base, &self.backing.context.slots);
        self.records().write_clean_record(st)
    }

    /// Writes the recovery record over the older record. Once it is durable, no other version counts.
    fn write_recovery_record(
        &self,
        st: &mut State,
        identity: &FileIdentity,
        recovered: &Recovered,
    ) -> Result<()> {
        let unreadable =
            if holds(Rule::NameUnreadable) { recovered.unreadable().to_vec() } else { Vec::new() };
        let recovery = Recovery { base: recovered.base(), limit: recovered.limit(), unreadable };
        let record = st.stored.records.encode_next(identity, st.stored.base, Claim::Recovery(recovery));
        self.records().write_record(st, record)
    }

    /// Writes the stored length and all node pages, since it is unknown which of them are durable.
    fn write_exact(&self, st: &State, identity: &FileIdentity, recovered: &Recovered) -> Result<()> {
        let stored = layout::stored_size(st.stored.base.size);
        if self.backing.store.len()? != stored {
            self.backing.store.set_len(stored)?;
        }
        self.each_node(identity, recovered, &mut |level, k, children: &_| {
            Ok(self.backing.store.write_at(children.as_flattened(), layout::node_offset(level, k))?)
        })?;
        Ok(())
    }

    /// Erases everything in the entries except the slots that count.
    fn erase(&self, recovered: &Recovered) -> Result<()> {
        self.backing.each_group(layout::groups(recovered.size), |group, raw| {
            let mut bytes = vec![0; raw.len()];
            for ((index, stored), out) in indexed(group, raw).zip(bytes.as_chunks_mut::<ENTRY>().0) {
                recovered.current(index, &stored).encode(out);
            }
            if bytes != raw {
                self.backing.store.write_at(&bytes, layout::entries_offset(group))?;
            }
            Ok(())
        })
    }

    /// Rewrites the last bytes of the stored file. After a failed sync, the file may be shorter on the disk
    /// than in the page cache, and only a write at its end makes the length durable with the next sync.
    fn rewrite_end(&self) -> Result<()> {
        let end = self.backing.store.len()?;
        self.rewrite(end.saturating_sub(1) / layout::PAGE * layout::PAGE..end)
    }

    /// Writes bytes of the stored file again, as far as they exist.
    fn rewrite(&self, range: Range<u64>) -> Result<()> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = self.backing.store.read_at(&mut bytes, range.start)?;
        Ok(self.backing.store.write_at(&bytes[..read], range.start)?)
    }

    /// Rewrites the data of the kept slots. Returns whether there is any.
    fn rewrite_data(&self, recovered: &Recovered) -> Result<bool> {
        let mut any = false;
        self.backing.each_group(layout::groups(recovered.size), |group, raw| {
            let kept = |(index, entry): &(u64, Entry)| {
                recovered.kept_slot(*index, entry).is_some_and(|slot| !slot.is_hole())
            };
            let chunks: Vec<u64> = indexed(group, raw).filter(kept).map(|(index, _)| index).collect();
            for run in chunks.chunk_by(|a, b| a + 1 == *b) {
                let (first, last) = (run[0], run[run.len() - 1]);
                let start = layout::chunk_offset(first);
                let end = layout::chunk_offset(last) + layout::chunk_len(recovered.size, last) as u64;
                self.rewrite(start..end)?; // A damaged chunk may be incomplete.
                any = true;
            }
            Ok(())
        })?;
        Ok(any)
    }
}
