//! Shared by the ways of writing: keys, records, epochs, syncs and the modification time.

use crate::{
    error::{Error, Result},
    file::File,
    record::{FileIdentity, NewRecord},
    rules::{Rule, holds},
    state::{Fault, State, wrong_length},
};
use crypto::random;
use format::record::Version;
use std::sync::Arc;

/// Scope of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncKind {
    /// The content: fdatasync.
    Content,
    /// Also owner, permissions, times and attributes: fsync.
    Whole,
}

impl File {
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
        let keys = &self.core.backing.context.keys;
        let identity = st.stored.identity.insert(FileIdentity::new(|| keys.of_new(salt)));
        Ok(identity.clone())
    }

    /// Begins a change of the file: assigns a new content id, and writes a recovery that could not be
    /// written earlier.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn begin_change(&self, st: &mut State) -> Result<()> {
        if self.core.backing.context.read_only {
            return Err(Error::ReadOnly);
        }
        (self.core.backing.context.guard)()?;
        if self.core.backing.lacks_lease() {
            return Err(Error::os(libc::EAGAIN)); // Unreachable: the caller holds the lease.
        }
        st.times.bump_content_version();
        match st.fault {
            None => Ok(()),
            Some(Fault::SyncFailed) if !holds(Rule::StopAfterFailedSync) => Ok(()),
            Some(Fault::SyncFailed | Fault::Broken | Fault::Away | Fault::Lost) => Err(Error::os(libc::EIO)),
            Some(Fault::WrongLength(_)) => Err(wrong_length()),
            // Nothing was written meanwhile, so the stored file still tells everything.
            Some(Fault::NotRecovered) => self.finish_recovery(st),
        }
    }

    /// Writes a dirty or recovery record by itself.
    pub(crate) fn write_record(&self, st: &mut State, record: NewRecord) -> Result<()> {
        st.remember_mtime(&*self.core.backing.store)?;
        self.core.backing.store.write_at(&record.sector, record.offset())?;
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
            SyncKind::Content => self.core.backing.store.sync_data(),
            SyncKind::Whole => self.core.backing.store.sync_whole(),
        };
        synced.inspect_err(|_| st.fault = Some(Fault::SyncFailed))?;
        st.stored.durable = st.stored.records.newest_bound();
        Ok(())
    }
}
