//! Commit: what was flushed becomes durable, and is the base from then on.

use crate::{
    format::record::Version,
    vault::{
        Result,
        file::{
            File,
            commit::SyncKind,
            record::OnDisk,
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
        // taken for data that a crash kept from the store, and an older chunk that was put back for that of the base. Where a clean record may be, it tells damage already, and a dirty one
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

    /// Writes a dirty record, not synced, with the base, which is durable, as its target, too. It goes to both sectors: an older
    /// record would let whoever blanks the newer one have recovery choose between what was committed and what was before.
    fn write_base_record(&self, st: &mut State) -> Result<()> {
        let Some(identity) = st.stored.identity.clone() else { return Ok(()) };
        let base = st.stored.base;
        let target = Version { epoch: st.stored.next_epoch()?, ..base };
        let claim = st.stored.over_base(target.epoch, base);
        let record = self.encode_record(st, &identity, target, claim);
        if !holds(Rule::BaseRecordTwice) {
            return self.write_record(st, record);
        }
        self.remember_mtime(st)?;
        let written = self.store.write_at([record.sector; 2].as_flattened(), 0);
        self.restore_mtime(st);
        written?;
        st.stored.records.accept_twice(record, OnDisk::Dirty);
        st.stored.base_is_recorded = true;
        Ok(())
    }
}
