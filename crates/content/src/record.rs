//! A file's keys, and the two record sectors, which determine its current version.

use super::{
    bound::Bound,
    rules::{Rule, holds},
};
use crypto::{kdf::FileKeys, traces};
use format::{
    layout,
    record::{Claim, KeyId, RECORD, Record, Version},
};
use std::sync::Arc;

/// A file's keys and their origin.
pub(super) struct FileIdentity {
    pub(super) id: KeyId,
    pub(super) keys: FileKeys,
}

impl FileIdentity {
    /// An identity with the keys that `derive` returns. The stack is wiped of them afterwards.
    pub(super) fn new(derive: impl FnOnce() -> (KeyId, FileKeys)) -> Arc<FileIdentity> {
        traces::wiped(|| {
            let (id, keys) = derive();
            Arc::new(FileIdentity { id, keys })
        })
    }
}

/// State of the newest commit record in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDisk {
    /// There is no record.
    Nothing,
    Dirty,
    Clean,
    /// Writing a clean record failed, but it may be in the store.
    DirtyOrClean,
}

impl OnDisk {
    /// Whether a clean record may be in the store. Nothing may then be written before a dirty one is
    /// durable.
    pub(super) fn may_be_clean(self) -> bool {
        match self {
            OnDisk::Clean | OnDisk::DirtyOrClean => true,
            OnDisk::Nothing | OnDisk::Dirty => false,
        }
    }

    /// Whether a dirty record may be in the store.
    pub(super) fn may_be_dirty(self) -> bool {
        match self {
            OnDisk::Dirty | OnDisk::DirtyOrClean => true,
            OnDisk::Nothing | OnDisk::Clean => false,
        }
    }
}

/// The two record sectors.
pub(super) struct Records {
    pub(super) sectors: [[u8; RECORD]; 2],
    /// Index of the newer one.
    pub(super) newest: usize,
    pub(super) sequence: u64,
    pub(super) on_disk: OnDisk,
    /// Whether the newest record was written since the file was opened. For a record that was only read,
    /// a sync proves nothing, because an earlier sync may have failed and lost it.
    pub(super) written: bool,
}

/// A record that is about to be written.
pub(super) struct NewRecord {
    pub(super) place: usize,
    pub(super) sequence: u64,
    pub(super) sector: [u8; RECORD],
}

impl NewRecord {
    /// Offset in the stored file.
    pub(super) fn offset(&self) -> u64 {
        self.place as u64 * layout::RECORD
    }
}

impl Records {
    /// No record yet.
    pub(super) fn none() -> Self {
        Records {
            sectors: [[0; RECORD]; 2],
            newest: 1,
            sequence: 0,
            on_disk: OnDisk::Nothing,
            written: false,
        }
    }

    /// The newest record, if it was written since the file was opened. A sync makes it durable.
    pub(super) fn newest_bound(&self) -> Option<Bound> {
        if self.written { Bound::of(&self.sectors[self.newest]) } else { None }
    }

    /// Encodes the next record for `write_record`. Its sequence number is used up.
    pub(super) fn encode_next(
        &mut self,
        identity: &FileIdentity,
        target: Version,
        claim: Claim,
    ) -> NewRecord {
        let sequence = self.sequence + 1;
        if holds(Rule::BurnSequence) {
            self.sequence = sequence;
        }
        let place = 1 - self.newest;
        let record = Record { sequence, key: identity.id, target, claim };
        NewRecord { place, sequence, sector: record.encode(&identity.keys.record) }
    }

    /// Called when a dirty or recovery record is in the store.
    pub(super) fn accept(&mut self, record: NewRecord) {
        self.sectors[record.place] = record.sector;
        self.newest = record.place;
        self.sequence = record.sequence;
        self.on_disk = OnDisk::Dirty;
        self.written = true;
    }

    /// Called when a record is in both sectors.
    pub(super) fn accept_twice(&mut self, record: NewRecord, on_disk: OnDisk) {
        self.sectors = [record.sector; 2];
        self.sequence = record.sequence;
        self.on_disk = on_disk;
        self.written = true;
    }
}
