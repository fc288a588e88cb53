//! Encryption and authentication of a single chunk.

use super::{
    AuthError,
    cipher::{Cipher, CipherKey},
    expanded::ExpandedKeys,
    integrity::{Integrity, IntegrityKey},
    secret::ct_eq,
    traces,
};
use std::sync::OnceLock;
use zeroize::Zeroizing;

/// Size of a chunk in bytes. Only the last chunk of a file may be shorter.
pub const CHUNK: usize = 4096;
/// Nonce of a chunk.
pub type Nonce = [u8; 10];
/// Tag of a chunk.
pub type Tag = [u8; 16];

/// Customisation string of a chunk's tag.
pub(super) const CHUNK_CUSTOM: &[u8] = b"warpcrypt v2 chunk";
/// Customisation string of a punched hole's tag.
pub(super) const HOLE_CUSTOM: &[u8] = b"warpcrypt v2 hole";

/// Values that a tag covers besides the ciphertext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkId {
    /// Index of the chunk in the file; below 2^40.
    pub index: u64,
    /// Epoch of the write; below 2^48.
    pub epoch: u64,
    /// Random for each write.
    pub nonce: Nonce,
}

impl ChunkId {
    /// Upper bound (exclusive) of indices: a chunk has 256 counter blocks, which are numbered with 48 bits.
    pub const INDEX_END: u64 = 1 << 40;

    /// The first counter block: the nonce (10 bytes), then the number of the chunk's first block in the
    /// file (6 bytes, big-endian).
    ///
    /// # Panics
    /// If the index is out of range: the counter blocks would be those of another chunk.
    fn counter(&self) -> [u8; 16] {
        assert!(self.index < Self::INDEX_END, "chunk index out of range");
        let mut counter = [0; 16];
        counter[..10].copy_from_slice(&self.nonce);
        counter[10..].copy_from_slice(&(self.index * (CHUNK as u64 / 16)).to_be_bytes()[2..]);
        counter
    }

    /// The header in a tag's input: nonce, index (64 bits), epoch (64 bits) and length (32 bits). Numbers
    /// are big-endian.
    pub(super) fn header(&self, len: usize) -> [u8; 30] {
        let mut header = [0; 30];
        header[..10].copy_from_slice(&self.nonce);
        header[10..18].copy_from_slice(&self.index.to_be_bytes());
        header[18..26].copy_from_slice(&self.epoch.to_be_bytes());
        header[26..].copy_from_slice(&(len as u32).to_be_bytes());
        header
    }
}

/// Encryption and MAC keys for the chunks of a file. Wiped on drop.
pub struct ChunkKeys {
    encryption: CipherKey,
    chunk: IntegrityKey,
    hole: IntegrityKey,
    cipher: Cipher,
    integrity: Integrity,
    /// The encryption key, zero-padded. `expanded` is computed from it on first use.
    key: Zeroizing<[u8; 32]>,
    expanded: OnceLock<Box<ExpandedKeys>>,
}

impl ChunkKeys {
    /// Expands both keys. `encryption` must have `cipher.key_len()` bytes.
    ///
    /// # Panics
    /// If it has another length.
    pub fn new(cipher: Cipher, integrity: Integrity, encryption: &[u8], mac: &[u8; 32]) -> Self {
        let [chunk, hole] =
            [CHUNK_CUSTOM, HOLE_CUSTOM].map(|custom| IntegrityKey::new(integrity, mac, custom));
        Self::of_macs(cipher, integrity, encryption, chunk, hole)
    }

    /// Like `new`, but takes the expanded MAC keys for chunks and holes.
    pub(super) fn of_macs(
        cipher: Cipher,
        integrity: Integrity,
        encryption: &[u8],
        chunk: IntegrityKey,
        hole: IntegrityKey,
    ) -> Self {
        let expanded_key = CipherKey::new(cipher, encryption);
        let mut key = Zeroizing::new([0; 32]);
        key[..encryption.len()].copy_from_slice(encryption);
        ChunkKeys { encryption: expanded_key, chunk, hole, cipher, integrity, key, expanded: OnceLock::new() }
    }

    pub(super) fn chunk_key(&self) -> &IntegrityKey {
        &self.chunk
    }

    /// Encrypts or decrypts without handling the tag, which `tags` computes or has verified.
    ///
    /// # Panics
    /// As `seal`.
    pub fn apply_keystream(&self, id: &ChunkId, src: &[u8], out: &mut [u8]) {
        self.encryption.ctr(&id.counter(), src, out);
    }

    /// Like `apply_keystream`, but in place.
    pub(super) fn apply_keystream_in_place(&self, id: &ChunkId, data: &mut [u8]) {
        self.encryption.ctr_in_place(&id.counter(), data);
    }

    /// The cipher and the integrity function of these keys.
    pub fn functions(&self) -> (Cipher, Integrity) {
        (self.cipher, self.integrity)
    }

    /// The keys in the form for implementations outside this module.
    pub fn expanded(&self) -> &ExpandedKeys {
        self.expanded.get_or_init(|| {
            let key = &self.key[..self.cipher.key_len()];
            traces::wiped(|| Box::new(ExpandedKeys::new(self.cipher, key, &self.chunk)))
        })
    }

    /// Encrypts `plain` (1 to 4096 bytes) into `out` of the same length and returns the tag.
    ///
    /// # Panics
    /// If the lengths differ or the index is out of range.
    pub fn seal(&self, id: &ChunkId, plain: &[u8], out: &mut [u8]) -> Tag {
        self.encryption.ctr(&id.counter(), plain, out);
        self.tag(id, out)
    }

    /// Verifies `data`, then decrypts it into `out` of the same length.
    ///
    /// # Errors
    /// `AuthError`; `out` is unchanged then.
    ///
    /// # Panics
    /// If the lengths differ or the index is out of range.
    pub fn open(&self, id: &ChunkId, tag: &Tag, data: &[u8], out: &mut [u8]) -> Result<(), AuthError> {
        self.verify(id, tag, data)?;
        self.encryption.ctr(&id.counter(), data, out);
        Ok(())
    }

    /// The tag of existing ciphertext, for example of a truncated chunk, which keeps its nonce.
    pub fn tag(&self, id: &ChunkId, ciphertext: &[u8]) -> Tag {
        self.chunk.tag(&id.header(ciphertext.len()), ciphertext)
    }

    /// The tag of a hole punched over data. It has a separate customisation string, and the length is 0.
    pub fn hole_tag(&self, id: &ChunkId) -> Tag {
        self.hole.tag(&id.header(0), &[])
    }

    /// Verifies the tag of `ciphertext` in constant time.
    ///
    /// # Errors
    /// `AuthError` if `tag` is not its tag.
    pub fn verify(&self, id: &ChunkId, tag: &Tag, ciphertext: &[u8]) -> Result<(), AuthError> {
        if ct_eq(&self.tag(id, ciphertext), tag) { Ok(()) } else { Err(AuthError) }
    }

    /// Verifies the tag of a hole in constant time.
    ///
    /// # Errors
    /// `AuthError` if `tag` is not the tag of this hole.
    pub fn verify_hole(&self, id: &ChunkId, tag: &Tag) -> Result<(), AuthError> {
        if ct_eq(&self.hole_tag(id), tag) { Ok(()) } else { Err(AuthError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ChunkId = ChunkId { index: 3, epoch: 9, nonce: [7; 10] };

    fn all_keys() -> impl Iterator<Item = ChunkKeys> {
        Cipher::ALL.into_iter().flat_map(|cipher| {
            Integrity::ALL.into_iter().map(move |integrity| {
                ChunkKeys::new(cipher, integrity, &[1; 32][..cipher.key_len()], &[2; 32])
            })
        })
    }

    #[test]
    fn a_chunk_opens_where_it_was_sealed_and_nowhere_else() {
        for keys in all_keys() {
            for len in [1, 16, 17, 4095, CHUNK] {
                let plain: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let mut sealed = vec![0; len];
                let tag = keys.seal(&ID, &plain, &mut sealed);
                assert_eq!(tag, keys.tag(&ID, &sealed));
                for id in [
                    ChunkId { index: 4, ..ID },
                    ChunkId { epoch: 10, ..ID },
                    ChunkId { nonce: [8; 10], ..ID },
                    ChunkId { index: 3 | 1 << 39, ..ID },
                ] {
                    let mut out = vec![0xee; len];
                    assert_eq!(keys.open(&id, &tag, &sealed, &mut out), Err(AuthError));
                    assert_eq!(out, vec![0xee; len], "a failed open writes nothing");
                }
                let shorter = len - 1;
                assert_eq!(keys.verify(&ID, &tag, &sealed[..shorter]), Err(AuthError));
                let mut out = vec![0; len];
                assert_eq!(keys.open(&ID, &tag, &sealed, &mut out), Ok(()));
                assert_eq!(out, plain);
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_data_and_tag_is_seen() {
        for keys in all_keys() {
            let mut sealed = [0; 40];
            let tag = keys.seal(&ID, &[5; 40], &mut sealed);
            for bit in 0..sealed.len() * 8 {
                sealed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(keys.verify(&ID, &tag, &sealed), Err(AuthError));
                sealed[bit / 8] ^= 1 << (bit % 8);
            }
            for bit in 0..128 {
                let mut wrong = tag;
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(keys.verify(&ID, &wrong, &sealed), Err(AuthError));
            }
        }
    }

    #[test]
    fn a_hole_is_not_an_empty_chunk() {
        for keys in all_keys() {
            assert_ne!(keys.hole_tag(&ID), keys.tag(&ID, &[]));
            assert_ne!(keys.hole_tag(&ID), keys.hole_tag(&ChunkId { index: 4, ..ID }));
            assert_ne!(keys.hole_tag(&ID), keys.hole_tag(&ChunkId { epoch: 8, ..ID }));
        }
    }

    /// Neighbouring chunks with the same nonce: their counter blocks are consecutive and do not overlap.
    #[test]
    fn counter_blocks_of_chunks_do_not_overlap() {
        let first = |index| u128::from_be_bytes(ChunkId { index, ..ID }.counter());
        for index in [0, 1, 0xff_ffff, (1 << 32) - 1, ChunkId::INDEX_END - 2] {
            assert_eq!(first(index + 1) - first(index), CHUNK as u128 / 16);
        }
        let last = first(ChunkId::INDEX_END - 1) + 255;
        assert_eq!(last.to_be_bytes()[..10], ID.nonce, "the largest index carries into no nonce");
    }
}
