//! The newest record of a file that is known to be durable, for a keeper outside the store.

use crate::error::Result;
use format::record::{KeyId, MAC_LEN, RECORD, Record};

/// Identifies a commit record: its file's key, its position in the order of that file's records, and its
/// MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The file's salt and key generation.
    pub key: KeyId,
    /// Sequence number.
    pub sequence: u64,
    /// The record's MAC.
    pub mac: [u8; MAC_LEN],
}

impl Bound {
    /// The bound for the record in a sector; `None` if there is no record.
    pub(super) fn of(sector: &[u8; RECORD]) -> Option<Bound> {
        let key = Record::peek_key(sector).ok()?;
        let (sequence, mac) = Record::peek_order(sector);
        Some(Bound { key, sequence, mac })
    }

    /// Sort key among the file's bounds. The sequence starts again when a file is rewritten under another
    /// key.
    pub fn order(&self) -> (u32, u64) {
        (self.key.generation, self.sequence)
    }
}

/// Keeps bounds of files outside the store.
pub trait Bounds: Send + Sync {
    /// Checks the newest record of a file that is being opened. The record is authentic.
    ///
    /// # Errors
    /// `Refused` if a newer record was confirmed; the keeper's.
    fn check(&self, found: &Bound) -> Result<()>;
    /// Reports a durable record. The keeper need not have stored it on return.
    fn note(&self, durable: Bound);
}
