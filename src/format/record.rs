//! The commit record: one 512-byte sector that says which version of a file counts.

use super::tree::Digest;
use crate::crypto::mac::MacKey;

/// Bytes of a record.
pub const RECORD: usize = 512;

/// One version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Epoch.
    pub epoch: u64,
    /// Plaintext bytes.
    pub size: u64,
    /// Root of the tree over the slots current at `epoch`.
    pub root: Digest,
}

/// A commit record. Clean: all of `target` is durable and nothing newer was begun. Dirty: `target` is
/// being written over the durable `base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The higher one counts.
    pub sequence: u64,
    /// The file's salt.
    pub salt: [u8; 32],
    /// The version that the record is about.
    pub target: Version,
    /// The durable version under a dirty record; `None` for a clean one.
    pub base: Option<Version>,
}

/// Why a sector is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// All zero: never written.
    #[error("empty record sector")]
    Empty,
    /// Wrong magic, version or field.
    #[error("malformed record")]
    Malformed,
    /// The MAC does not verify.
    #[error("record does not authenticate")]
    Forged,
}

impl Record {
    /// The salt of a sector that looks like a record: needed to derive the key that verifies it.
    ///
    /// # Errors
    /// `Empty` or `Malformed`.
    pub fn peek_salt(_sector: &[u8; RECORD]) -> Result<[u8; 32], RecordError> {
        todo!()
    }

    /// Verifies and decodes a sector.
    ///
    /// # Errors
    /// `Empty`, `Malformed` or `Forged`.
    pub fn decode(_sector: &[u8; RECORD], _key: &MacKey) -> Result<Self, RecordError> {
        todo!()
    }

    /// Encodes and authenticates.
    pub fn encode(&self, _key: &MacKey) -> [u8; RECORD] {
        todo!()
    }
}
