//! Steps towards a clean record. The caller syncs between them, so that one sync can serve many files.

use crate::{
    bound::Bound,
    commit::Committer,
    error::Result,
    file_core::FileCore,
    flush::Flusher,
    record_writer::RecordWriter,
    rules::{Rule, holds},
    state::State,
};
use format::layout;
use std::sync::Arc;

/// A step of one file towards a clean record. It is void if the file has changed since.
#[derive(Debug, Clone, Copy)]
pub struct CleanStep {
    changes: u64,
    /// The newest record before the caller's sync, which makes that record durable.
    newest: Option<Bound>,
}

/// Writes a file's clean record, in steps.
#[derive(Clone, Copy)]
pub struct Cleaner<'a> {
    core: &'a Arc<FileCore>,
}

impl<'a> Cleaner<'a> {
    pub(super) fn of(core: &'a Arc<FileCore>) -> Self {
        Cleaner { core }
    }

    fn records(&self) -> RecordWriter<'a> {
        RecordWriter::of(&self.core.backing)
    }

    fn committer(&self) -> Committer<'a> {
        Committer::of(&self.core.backing)
    }

    fn flusher(&self) -> Flusher<'a> {
        Flusher::of(self.core)
    }

    /// C4: flushes and writes the node pages. The caller then syncs the store.
    ///
    /// # Errors
    /// As [`File::flush`](crate::File::flush).
    pub fn flush(&self) -> Result<CleanStep> {
        let mut st = self.core.state.write();
        self.flush_with_nodes(&mut st)?;
        Ok(CleanStep { changes: st.times.changes, newest: st.stored.records.newest_bound() })
    }

    fn flush_with_nodes(&self, st: &mut State) -> Result<()> {
        self.committer().begin_change(st)?;
        self.flusher().flush_all(st)?;
        st.dirty.finish_overwrites(&*self.core.backing.store)?;
        if st.stored.records.on_disk.may_be_dirty() && holds(Rule::NodesBeforeClean) {
            let nodes = st.stored.tree.unsaved_nodes();
            let written =
                nodes.iter().try_for_each(|(offset, page)| self.core.backing.store.write_at(page, *offset));
            if !nodes.is_empty() {
                st.restore_mtime(&*self.core.backing.store); // Even a failed write changes the time.
            }
            written?;
        }
        Ok(())
    }

    /// C4 to C6 for this file alone. The clean record is synced, too, because another machine must find
    /// it.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn clean_at_once(&self, st: &mut State) -> Result<()> {
        st.times.restored_later = true;
        let settled = self.settle_at_once(st);
        st.times.restored_later = false;
        if settled.is_err() {
            st.restore_mtime(&*self.core.backing.store);
        }
        settled?;
        if st.stored.records.on_disk.may_be_dirty() {
            self.records().write_clean_record(st)?;
        }
        self.records().sync_store(st)
    }

    /// C4 and C5 of `clean_at_once`.
    fn settle_at_once(&self, st: &mut State) -> Result<()> {
        self.flush_with_nodes(st)?;
        if st.stored.records.on_disk.may_be_dirty() {
            self.records().sync_store(st)?;
            st.advance_base();
            let length = layout::stored_size(st.stored.tree.size());
            if !st.stored.tree.is_canonical() || self.core.backing.store.len()? != length {
                self.make_exact(st, length)?;
                self.records().sync_store(st)?;
            }
        }
        Ok(())
    }

    /// The sync of C4 or C5, for this file alone.
    ///
    /// # Errors
    /// The store's; the file then accepts no more writes.
    pub fn sync(&self) -> Result<()> {
        let mut st = self.core.state.write();
        // The store reports a failed sync only once. If this sync consumed the report, a write in flight
        // would miss it.
        if holds(Rule::CompleteBeforeSync) {
            self.committer().complete_all(&mut st);
        }
        if holds(Rule::SyncBeforeClean) { self.records().sync_store(&mut st) } else { Ok(()) }
    }

    /// C5, after a sync: makes the version the base and erases older slots. The caller then syncs again.
    /// If there is nothing to erase, as in a file written once, writes the clean record immediately.
    /// Returns `false` if no last step is needed, because the file is clean now or has changed.
    ///
    /// # Errors
    /// The store's.
    pub fn settle(&self, step: CleanStep) -> Result<bool> {
        let mut st = self.core.state.write();
        if is_void(&st, step) || !st.stored.records.on_disk.may_be_dirty() || st.fault.is_some() {
            return Ok(false);
        }
        (self.core.backing.context.guard)()?;
        st.stored.note_durable(step.newest);
        let length = layout::stored_size(st.stored.tree.size());
        if st.stored.tree.is_canonical() && self.core.backing.store.len()? == length {
            st.advance_base();
            self.records().write_clean_record(&mut st)?;
            return Ok(false);
        }
        st.advance_base();
        let exact = self.make_exact(&mut st, length);
        st.times.changes += 1; // Voids a concurrent cleaning, whose sync did not cover this.
        st.restore_mtime(&*self.core.backing.store);
        exact.map(|()| true)
    }

    /// Removes everything except the version from the store: older slots, and bytes past its end.
    fn make_exact(&self, st: &mut State, length: u64) -> Result<()> {
        if holds(Rule::EraseOlderSlots) {
            self.erase_older_slots(st)?;
        }
        if self.core.backing.store.len()? != length && holds(Rule::ExactLength) {
            self.core.backing.store.set_len(length)?; // A truncation failed after its record was written.
        }
        Ok(())
    }

    /// C6, after the second sync: writes the clean record.
    ///
    /// # Errors
    /// The store's.
    pub fn finish(&self, step: CleanStep) -> Result<()> {
        let mut st = self.core.state.write();
        let settled = CleanStep { changes: step.changes + 1, ..step };
        if !is_void(&st, settled) && st.fault.is_none() && st.stored.is_committed() {
            (self.core.backing.context.guard)()?;
            self.records().write_clean_record(&mut st)?;
        }
        Ok(())
    }

    /// Whether C4 has nothing to write.
    pub fn is_flushed(&self) -> bool {
        let st = self.core.state.read();
        st.is_stored() && st.stored.tree.unsaved_nodes().is_empty()
    }

    /// Erases slots that are not current from the groups written since the last clean record.
    fn erase_older_slots(&self, st: &mut State) -> Result<()> {
        let Some(identity) = st.stored.identity.clone() else { return Ok(()) };
        let tree = &mut st.stored.tree;
        for group in tree.touched() {
            tree.load(self.core.backing.source(&identity), group)?;
            if !tree.make_canonical(group) {
                continue;
            }
            let bytes = tree.entries_bytes(group);
            if let Err(e) = self.core.backing.store.write_at(&bytes, layout::entries_offset(group)) {
                tree.resident = true; // The store still has older slots.
                return Err(e.into());
            }
            tree.note_written(group);
        }
        Ok(())
    }
}

/// Whether the file has changed since the first step, or a failed change left something in the store.
fn is_void(st: &State, step: CleanStep) -> bool {
    let changed = st.times.changes != step.changes && holds(Rule::CleanStepIsVoid);
    changed || st.stored.leftover.is_some() && holds(Rule::FailureVoidsCleanStep)
}
