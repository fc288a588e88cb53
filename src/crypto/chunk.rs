//! One chunk: CTR encryption and its tag.

use super::{AuthError, cipher::Cipher, mac::Integrity};

/// The largest chunk, and every chunk but a file's last, in bytes.
pub const CHUNK: usize = 4096;
/// A chunk's nonce.
pub type Nonce = [u8; 10];
/// A chunk's tag.
pub type Tag = [u8; 16];

/// What a tag binds besides the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkId {
    /// Place in the file, counted in chunks; below 2^40.
    pub index: u64,
    /// Epoch of the write; below 2^48.
    pub epoch: u64,
    /// Random per write.
    pub nonce: Nonce,
}

/// Encryption and MAC keys of one file's chunks.
pub struct ChunkKeys {
    _todo: (),
}

impl ChunkKeys {
    /// Expands both keys; `encryption` has `cipher.key_len()` bytes.
    pub fn new(_cipher: Cipher, _integrity: Integrity, _encryption: &[u8], _mac: &[u8; 32]) -> Self {
        todo!()
    }

    /// Encrypts `plain` (1 to 4096 bytes) into `out` of the same length and returns the tag.
    pub fn seal(&self, _id: &ChunkId, _plain: &[u8], _out: &mut [u8]) -> Tag {
        todo!()
    }

    /// Verifies, then decrypts in place. On failure `data` is untouched.
    ///
    /// # Errors
    /// `AuthError` if the tag is not that of these bytes at this place.
    pub fn open_in_place(&self, _id: &ChunkId, _tag: &Tag, _data: &mut [u8]) -> Result<(), AuthError> {
        todo!()
    }

    /// Verifies `data`, then decrypts it into `out` of the same length.
    ///
    /// # Errors
    /// `AuthError`; `out` is then untouched.
    pub fn open(&self, _id: &ChunkId, _tag: &Tag, _data: &[u8], _out: &mut [u8]) -> Result<(), AuthError> {
        todo!()
    }

    /// The tag of a ciphertext that is already there (a chunk cut short keeps its nonce).
    pub fn tag(&self, _id: &ChunkId, _ciphertext: &[u8]) -> Tag {
        todo!()
    }

    /// The tag of a hole punched over data; has its own customisation string.
    pub fn hole_tag(&self, _id: &ChunkId) -> Tag {
        todo!()
    }
}
