//! One chunk: CTR encryption and its tag.

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

/// The largest chunk, and every chunk but a file's last, in bytes.
pub const CHUNK: usize = 4096;
/// A chunk's nonce.
pub type Nonce = [u8; 10];
/// A chunk's tag.
pub type Tag = [u8; 16];

/// Customisation string of a chunk's tag.
pub(super) const CHUNK_CUSTOM: &[u8] = b"warpcrypt v2 chunk";
/// Customisation string of a punched hole's tag.
pub(super) const HOLE_CUSTOM: &[u8] = b"warpcrypt v2 hole";

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
    pub(super) fn header(&self, len: usize) -> [u8; 30] {
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
    chunk: IntegrityKey,
    hole: IntegrityKey,
    cipher: Cipher,
    integrity: Integrity,
    /// The encryption key and zeros: what `expanded` is made of when it is first asked for.
    key: Zeroizing<[u8; 32]>,
    expanded: OnceLock<Box<ExpandedKeys>>,
}

impl ChunkKeys {
    /// Expands both keys; `encryption` has `cipher.key_len()` bytes.
    ///
    /// # Panics
    /// If it has another length.
    pub fn new(cipher: Cipher, integrity: Integrity, encryption: &[u8], mac: &[u8; 32]) -> Self {
        let [chunk, hole] =
            [CHUNK_CUSTOM, HOLE_CUSTOM].map(|custom| IntegrityKey::new(integrity, mac, custom));
        Self::of_macs(cipher, integrity, encryption, chunk, hole)
    }

    /// The same with the keys of chunk and hole tags already made.
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

    /// Encrypts or decrypts without a look at the tag: `tags` makes or has verified it.
    ///
    /// # Panics
    /// As `seal`.
    pub fn apply_keystream(&self, id: &ChunkId, src: &[u8], out: &mut [u8]) {
        self.encryption.ctr(&id.counter(), src, out);
    }

    /// The same in place.
    pub(super) fn apply_keystream_in_place(&self, id: &ChunkId, data: &mut [u8]) {
        self.encryption.ctr_in_place(&id.counter(), data);
    }

    /// The cipher and the integrity function.
    pub fn functions(&self) -> (Cipher, Integrity) {
        (self.cipher, self.integrity)
    }

    /// The keys in the form that an implementation outside of this module works with.
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
        self.chunk.tag(&id.header(ciphertext.len()), ciphertext)
    }

    /// The tag of a hole punched over data; has its own customisation string and the length 0.
    pub fn hole_tag(&self, id: &ChunkId) -> Tag {
        self.hole.tag(&id.header(0), &[])
    }

    /// Compares the tag of `ciphertext` with `tag` in constant time.
    ///
    /// # Errors
    /// `AuthError` if they differ.
    pub fn verify(&self, id: &ChunkId, tag: &Tag, ciphertext: &[u8]) -> Result<(), AuthError> {
        if ct_eq(&self.tag(id, ciphertext), tag) { Ok(()) } else { Err(AuthError) }
    }

    /// The same for the tag of a hole.
    ///
    /// # Errors
    /// `AuthError` if it is not that of a hole at this place.
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

    /// Neighbours with one nonce: their counter blocks follow each other and never meet.
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
