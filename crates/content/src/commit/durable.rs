//! Commit: makes the flushed version durable and the new base.

use crate::{
    commit::Committer,
    error::Result,
    record::OnDisk,
    record_writer::SyncKind,
    rules::{Rule, holds},
    state::State,
};
use format::record::Version;

impl Committer<'_> {
    /// Makes everything flushed durable. Syncs even if nothing was flushed, because recovery may have
    /// left data in the page cache.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn commit(&self, st: &mut State) -> Result<()> {
        self.commit_with(st, SyncKind::Content)
    }

    /// `commit` with this kind of sync.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn commit_with(&self, st: &mut State, sync: SyncKind) -> Result<()> {
        self.complete_all(st);
        st.dirty.finish_overwrites(&*self.backing.store)?;
        // C1
        if holds(Rule::SyncBeforeBase) {
            self.records().sync_store_as(st, sync)?;
        }
        // C2
        st.advance_base();
        // C3. Also reached if the version became the base on the way to a clean record that was not
        // written. The record need not be durable: the previous one has the same version as its target,
        // so a crash finds it either way. But under the previous one, recovery could take damage for data
        // that a crash kept from the store, and a restored older chunk for the base's. If the newest record
        // may be clean, it already exposes damage, and a dirty one would have to be durable.
        // Leftovers of a failed write must be erased with the next record, which the next flush does.
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

    /// Writes a dirty record whose base and target are both the durable base, without a sync. It goes to
    /// both sectors. Otherwise, by blanking the newer record, an attacker could make recovery choose
    /// between the committed version and the one before.
    fn write_base_record(&self, st: &mut State) -> Result<()> {
        let Some(identity) = st.stored.identity.clone() else { return Ok(()) };
        let base = st.stored.base;
        let target = Version { epoch: st.stored.next_epoch()?, ..base };
        let claim = st.stored.over_base(target.epoch, base);
        let record = st.stored.records.encode_next(&identity, target, claim);
        if !holds(Rule::BaseRecordTwice) {
            return self.records().write_record(st, record);
        }
        st.remember_mtime(&*self.backing.store)?;
        let written = self.backing.store.write_at([record.sector; 2].as_flattened(), 0);
        st.restore_mtime(&*self.backing.store);
        written?;
        st.stored.records.accept_twice(record, OnDisk::Dirty);
        st.stored.base_is_recorded = true;
        Ok(())
    }
}
