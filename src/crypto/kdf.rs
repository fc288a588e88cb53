//! Keys from keys, and keys from passwords.

use super::{
    chunk::ChunkKeys,
    cipher::Cipher,
    mac::{Integrity, MacKey},
    secret::Secret,
};
use std::sync::Arc;

/// The sub-key of `parent` for one use: KMAC256 (SP 800-185), key `parent`, input `label`.
pub fn subkey(_parent: &Secret<32>, _label: &str) -> Secret<32> {
    todo!()
}

/// What Argon2id (RFC 9106) costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argon2Cost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

/// Argon2id of a password, 32 bytes.
///
/// # Errors
/// When the cost is out of range or the memory cannot be had.
pub fn argon2id(_password: &[u8], _salt: &[u8; 32], _cost: Argon2Cost) -> Result<Secret<32>, String> {
    todo!()
}

/// The keys of one file, all from one KMAC256 output over its salt.
pub struct FileKeys {
    /// Seals and opens chunks.
    pub chunk: Arc<ChunkKeys>,
    /// Digest of a group's slots.
    pub leaf: MacKey,
    /// Digest of a node page.
    pub node: MacKey,
    /// MAC of a commit record.
    pub record: MacKey,
}

impl FileKeys {
    /// Derives the keys of the file with this salt from the vault's contents key.
    pub fn derive(_contents: &Secret<32>, _salt: &[u8; 32], _cipher: Cipher, _integrity: Integrity) -> Self {
        todo!()
    }
}
