//! Commit: what was flushed becomes durable, and is the base from then on.

use crate::{
    format::record::Version,
    vault::{
        Result,
        file::{
            File,
            commit::SyncKind,
            rules::{Rule, holds},
            state::State,
        },
    },
};

impl File {
    /// Makes what was flushed durable. Without anything flushed it still syncs: recovery may have left something in the page
    /// cache.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::vault::file) fn commit(&self, st: &mut State) -> Result<()> {
        self.commit_with(st, SyncKind::Content)
    }

    /// `commit`, with this kind of sync.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::vault::file) fn commit_with(&self, st: &mut State, sync: SyncKind) -> Result<()> {
        self.complete_all(st);
        self.finish_overwrites(st)?;
        // C1
        if holds(Rule::SyncBeforeBase) {
            self.sync_store_as(st, sync)?;
        }
        // C2
        st.advance_base();
        // C3, also where the version became the base on the way to a clean record that was not written. It need not be durable: the
        // record before names the same version as its target, so a crash finds it either way. But under that one, damage could be
        // taken for data that a crash kept from the store. Where a clean record may be, it tells damage already, and a dirty one
        // would have to be durable.
        // What a failed write left has to be erased with the next record, which the next flush does.
        if !st.stored.base_is_recorded
            && st.stored.leftover.is_none()
            && !st.stored.records.on_disk.may_be_clean()
            && holds(Rule::RecordAfterCommit)
            && let Err(e) = self.write_base_record(st)
        {
            log::debug!("the record after a commit could not be written: {e}");
        }
        Ok(())
    }

    /// Writes a dirty record, not synced, with the base as its target, too.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::vault::file) fn write_base_record(&self, st: &mut State) -> Result<()> {
        let Some(identity) = st.stored.identity.clone() else { return Ok(()) };
        let target = Version { epoch: st.stored.next_epoch()?, ..st.stored.base };
        let record = self.encode_record(st, &identity, target, false);
        let written = self.write_record(st, record);
        self.restore_mtime(st);
        written
    }
}
