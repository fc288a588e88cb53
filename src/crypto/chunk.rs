//! One chunk: CTR encryption and its tag.

use super::{
    AuthError,
    cipher::{Cipher, CipherKey},
    mac::{Integrity, MacKey},
    secret::ct_eq,
};

/// The largest chunk, and every chunk but a file's last, in bytes.
pub const CHUNK: usize = 4096;
/// A chunk's nonce.
pub type Nonce = [u8; 10];
/// A chunk's tag.
pub type Tag = [u8; 16];

/// Customisation string of a chunk's tag.
const CHUNK_CUSTOM: &[u8] = b"warpcrypt v1 chunk";
/// Customisation string of a punched hole's tag.
const HOLE_CUSTOM: &[u8] = b"warpcrypt v1 hole";

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

impl ChunkId {
    /// Indices are below this: a chunk's counter blocks, 256 of them, are numbered with 48 bits.
    pub const INDEX_END: u64 = 1 << 40;

    /// Nonce (10 bytes), then the number of the chunk's first block in the file (6 bytes, big-endian).
    ///
    /// # Panics
    /// If the index is out of range: its counter blocks would be another chunk's.
    fn counter(&self) -> [u8; 16] {
        assert!(self.index < Self::INDEX_END, "chunk index out of range");
        let mut counter = [0; 16];
        counter[..10].copy_from_slice(&self.nonce);
        counter[10..].copy_from_slice(&(self.index * (CHUNK as u64 / 16)).to_be_bytes()[2..]);
        counter
    }

    /// What every tag begins with: nonce, index (64 bits), epoch (64 bits) and length (32 bits), the
    /// numbers big-endian.
    fn header(&self, len: usize) -> [u8; 30] {
        let mut header = [0; 30];
        header[..10].copy_from_slice(&self.nonce);
        header[10..18].copy_from_slice(&self.index.to_be_bytes());
        header[18..26].copy_from_slice(&self.epoch.to_be_bytes());
        header[26..].copy_from_slice(&(len as u32).to_be_bytes());
        header
    }
}

/// Encryption and MAC keys of one file's chunks; wiped on drop.
pub struct ChunkKeys {
    encryption: CipherKey,
    chunk: MacKey,
    hole: MacKey,
}

impl ChunkKeys {
    /// Expands both keys; `encryption` has `cipher.key_len()` bytes.
    ///
    /// # Panics
    /// If it has another length.
    pub fn new(cipher: Cipher, integrity: Integrity, encryption: &[u8], mac: &[u8; 32]) -> Self {
        ChunkKeys {
            encryption: CipherKey::new(cipher, encryption),
            chunk: MacKey::new(integrity, mac, CHUNK_CUSTOM),
            hole: MacKey::new(integrity, mac, HOLE_CUSTOM),
        }
    }

    /// Encrypts `plain` (1 to 4096 bytes) into `out` of the same length and returns the tag.
    ///
    /// # Panics
    /// If the lengths differ or the index is out of range.
    pub fn seal(&self, id: &ChunkId, plain: &[u8], out: &mut [u8]) -> Tag {
        self.encryption.ctr(&id.counter(), plain, out);
        self.tag(id, out)
    }

    /// Verifies, then decrypts in place. On failure `data` is untouched.
    ///
    /// # Errors
    /// `AuthError` if the tag is not that of these bytes at this place.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn open_in_place(&self, id: &ChunkId, tag: &Tag, data: &mut [u8]) -> Result<(), AuthError> {
        self.verify(id, tag, data)?;
        self.encryption.ctr_in_place(&id.counter(), data);
        Ok(())
    }

    /// Verifies `data`, then decrypts it into `out` of the same length.
    ///
    /// # Errors
    /// `AuthError`; `out` is then untouched.
    ///
    /// # Panics
    /// If the lengths differ or the index is out of range.
    pub fn open(&self, id: &ChunkId, tag: &Tag, data: &[u8], out: &mut [u8]) -> Result<(), AuthError> {
        self.verify(id, tag, data)?;
        self.encryption.ctr(&id.counter(), data, out);
        Ok(())
    }

    /// The tag of a ciphertext that is already there (a chunk cut short keeps its nonce).
    pub fn tag(&self, id: &ChunkId, ciphertext: &[u8]) -> Tag {
        self.chunk.tag(&[&id.header(ciphertext.len()), ciphertext])
    }

    /// The tag of a hole punched over data; has its own customisation string and the length 0.
    pub fn hole_tag(&self, id: &ChunkId) -> Tag {
        self.hole.tag(&[&id.header(0)])
    }

    /// Compares the tag of `ciphertext` with `tag` in constant time.
    ///
    /// # Errors
    /// `AuthError` if they differ.
    pub fn verify(&self, id: &ChunkId, tag: &Tag, ciphertext: &[u8]) -> Result<(), AuthError> {
        if ct_eq(&self.tag(id, ciphertext), tag) { Ok(()) } else { Err(AuthError) }
    }
}
