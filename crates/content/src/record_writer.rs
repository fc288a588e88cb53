//! Writes records, and what belongs to them: the keys, epochs, and syncs of the store.

use crate::{
    backing::Backing,
    error::{Error, Result},
    record::{FileIdentity, NewRecord, OnDisk},
    rules::{Rule, holds},
    state::{Fault, State},
};
use crypto::random;
use format::record::{Claim, Version};
use std::sync::Arc;

/// Scope of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncKind {
    /// The content: fdatasync.
    Content,
    /// Also owner, permissions, times and attributes: fsync.
    Whole,
}

/// Writes records, and what must be durable before them.
#[derive(Clone, Copy)]
pub(crate) struct RecordWriter<'a> {
    backing: &'a Backing,
}

impl<'a> RecordWriter<'a> {
    pub(crate) fn of(backing: &'a Backing) -> Self {
        RecordWriter { backing }
    }

    /// The file's salt and keys, generated before the first write.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn identity_or_new(&self, st: &mut State) -> Result<Arc<FileIdentity>> {
        if let Some(identity) = &st.stored.identity {
            return Ok(identity.clone());
        }
        let mut salt = [0; 32];
        random::fill(&mut salt)?;
        let keys = &self.backing.context.keys;
        let identity = st.stored.identity.insert(FileIdentity::new(|| keys.of_new(salt)));
        Ok(identity.clone())
    }

    /// Writes a dirty or recovery record by itself.
    pub(crate) fn write_record(&self, st: &mut State, record: NewRecord) -> Result<()> {
        st.remember_mtime(&*self.backing.store)?;
        self.backing.store.write_at(&record.sector, record.offset())?;
        st.stored.records.accept(record);
        st.stored.base_is_recorded = true;
        Ok(())
    }

    /// W2: allocates an epoch for a version to be written over the base. If the newest record may be
    /// clean, first makes a dirty one durable. No slot may be written before that.
    pub(super) fn begin_epoch(&self, st: &mut State, identity: &FileIdentity) -> Result<u64> {
        if st.stored.records.on_disk.may_be_clean() {
            let epoch = st.stored.next_epoch()?;
            let target = Version { epoch, ..st.stored.base };
            let claim = st.stored.over_base(epoch, st.stored.base);
            let record = st.stored.records.encode_next(identity, target, claim);
            self.write_record(st, record)?;
            if holds(Rule::DirtyRecordFirst) {
                self.sync_store(st)?;
            }
        }
        st.stored.next_epoch()
    }

    /// fdatasync of the stored file; see `sync_store_as`.
    ///
    /// # Errors
    /// As `sync_store_as`.
    pub(crate) fn sync_store(&self, st: &mut State) -> Result<()> {
        self.sync_store_as(st, SyncKind::Content)
    }

    /// Syncs the stored file. If that fails, no earlier write can be trusted.
    ///
    /// # Errors
    /// The store's; EIO after an earlier failure, since a success would prove nothing.
    pub(crate) fn sync_store_as(&self, st: &mut State, what: SyncKind) -> Result<()> {
        if st.fault == Some(Fault::SyncFailed) && holds(Rule::StopAfterFailedSync) {
            return Err(Error::os(libc::EIO));
        }
        let synced = match what {
            SyncKind::Content => self.backing.store.sync_data(),
            SyncKind::Whole => self.backing.store.sync_whole(),
        };
        synced.inspect_err(|_| st.fault = Some(Fault::SyncFailed))?;
        st.stored.durable = st.stored.records.newest_bound();
        Ok(())
    }

    /// Writes the clean record to both sectors. Everything else must be durable.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn write_clean_record(&self, st: &mut State) -> Result<()> {
        let Some(identity) = st.stored.identity.clone() else { return Ok(()) };
        let base = st.stored.base;
        let record = st.stored.records.encode_next(&identity, base, Claim::Clean);
        st.remember_mtime(&*self.backing.store)?;
        st.stored.records.on_disk = OnDisk::DirtyOrClean;
        let written = if holds(Rule::CleanTwice) {
            // With no dirty record in the other sector, nobody can make recovery choose again.
            self.backing.store.write_at(&[record.sector; 2].concat(), 0)
        } else {
            self.backing.store.write_at(&record.sector, record.offset())
        };
        st.restore_mtime(&*self.backing.store);
        written?;
        st.stored.records.accept_twice(record, OnDisk::Clean);
        st.stored.base_is_recorded = true;
        st.stored.overhangs = false;
        st.stored.tree.set_clean();
        Ok(())
    }
}
