//! Key slots and descriptors in the layout of `kernels/batch.cuh`, and the memory requirements of the
//! kernels.

use crypto::{
    aes_keys::AesRoundKeys,
    chunk::ChunkId,
    cipher::{Cipher, CipherFamily},
    integrity::{Integrity, IntegrityKey},
    kuznyechik::Kuznyechik,
};

/// Dynamic shared memory of the kernels with tables.
pub const TABLES: u32 = 69_632;
/// Additional memory per warp of a wide kernel.
pub const DESK: u32 = 5104;
/// Additional memory of a block that checks a launch.
pub const CHECK_DESK: u32 = 4112;
/// Dynamic shared memory of Kuznyechik decryption.
pub const KUZNYECHIK_DECRYPTION: u32 = 98_304;

/// Round keys of both directions, in the order of use, and their number of rounds.
pub struct RoundKeys {
    pub encrypt: Vec<u8>,
    pub decrypt: Vec<u8>,
    pub rounds: u32,
}

pub fn round_keys(cipher: Cipher, key: &[u8]) -> RoundKeys {
    match cipher.family() {
        CipherFamily::Aes => {
            let keys = AesRoundKeys::new(key);
            RoundKeys {
                encrypt: keys.encryption_keys().as_flattened().to_vec(),
                decrypt: keys.decryption_keys().as_flattened().to_vec(),
                rounds: keys.rounds() as u32,
            }
        }
        CipherFamily::Kuznyechik => {
            let keys = Kuznyechik::new(key.try_into().expect("32 bytes"));
            RoundKeys {
                encrypt: keys.encryption_keys().as_flattened().to_vec(),
                decrypt: keys.decryption_keys().as_flattened().to_vec(),
                rounds: 10,
            }
        }
    }
}

/// A key slot of one file, with the customisation string of the format's chunk tags.
pub fn key_slot(cipher: Cipher, integrity: Integrity, encryption: &[u8], mac: &[u8; 32]) -> Vec<u8> {
    let keys = round_keys(cipher, encryption);
    let mut slot = keys.encrypt;
    slot.resize(240, 0);
    slot.extend(keys.rounds.to_le_bytes());
    slot.resize(256, 0);
    let tags = IntegrityKey::new(integrity, mac, b"warpcrypt v2 chunk");
    for sponge in std::iter::once(tags.whole()).chain(tags.lane()) {
        slot.extend(sponge.state().iter().flat_map(|lane| lane.to_le_bytes()));
    }
    slot.resize(656, 0);
    slot
}

/// A chunk of a batch.
#[derive(Clone)]
pub struct Descriptor {
    pub source: u64,
    pub target: u64,
    pub id: ChunkId,
    pub length: u16,
    pub key: u32,
    pub tag: [u8; 16],
}

impl Descriptor {
    pub fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&self.source.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.target.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.index.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.id.epoch.to_le_bytes());
        bytes[32..42].copy_from_slice(&self.id.nonce);
        bytes[42..44].copy_from_slice(&self.length.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.key.to_le_bytes());
        bytes[48..].copy_from_slice(&self.tag);
        bytes
    }
}

/// Bytes that look random and depend only on `seed`.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}
