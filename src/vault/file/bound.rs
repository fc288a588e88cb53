//! Which record of a file is known to be durable, for whoever keeps that outside of the store.

use crate::{
    format::record::{KeyId, MAC_LEN, RECORD, Record},
    vault::Result,
};

/// A commit record: whose it is, its place in the order of that file's records, and its MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The file's salt, and the generation of its key.
    pub key: KeyId,
    /// Sequence number.
    pub sequence: u64,
    /// The record's MAC.
    pub mac: [u8; MAC_LEN],
}

impl Bound {
    /// That of the record in a sector; `None` if there is none.
    pub(super) fn of(sector: &[u8; RECORD]) -> Option<Bound> {
        let key = Record::peek_key(sector).ok()?;
        let (sequence, mac) = Record::peek_order(sector);
        Some(Bound { key, sequence, mac })
    }

    /// The file's place in the order of its records. A file that is rewritten under another key counts from the start again.
    pub fn order(&self) -> (u32, u64) {
        (self.key.generation, self.sequence)
    }
}

/// Keeps bounds of files outside of the store.
pub trait Bounds: Send + Sync {
    /// Judges the newest record of a file that is opened, which is authentic.
    ///
    /// # Errors
    /// `Refused` if a newer one was confirmed; the keeper's.
    fn check(&self, found: &Bound) -> Result<()>;
    /// Takes note of a record that is durable. It need not be kept yet.
    fn note(&self, durable: Bound);
}
