//! Expanded chunk keys, for implementations outside this module.

use super::{
    aes_keys::AesRoundKeys,
    cipher::{Cipher, CipherFamily},
    integrity::IntegrityKey,
    keccak::KeccakState,
    kuznyechik::Kuznyechik,
};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Round keys of a cipher's encryption, and the states of an integrity function after absorbing its key. As
/// secret as the keys; wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct ExpandedKeys {
    round_keys: [[u8; 16]; 15],
    count: usize,
    keyed: KeccakState,
    lane: KeccakState,
}

impl ExpandedKeys {
    /// Expands `key`, which must have the cipher's key length, and copies the states of `tags`.
    pub(super) fn new(cipher: Cipher, key: &[u8], tags: &IntegrityKey) -> Self {
        let lane = tags.lane().map_or([0; 25], |lane| *lane.state());
        let keyed = *tags.whole().state();
        let mut keys = ExpandedKeys { round_keys: [[0; 16]; 15], count: 0, keyed, lane };
        match cipher.family() {
            CipherFamily::Aes => keys.set(AesRoundKeys::new(key).encryption_keys()),
            CipherFamily::Kuznyechik => keys.set(Kuznyechik::from_slice(key).encryption_keys()),
        }
        keys
    }

    fn set(&mut self, round_keys: &[[u8; 16]]) {
        self.count = round_keys.len();
        self.round_keys[..self.count].copy_from_slice(round_keys);
    }

    /// Round keys of encryption, in order of use: 11, 13 or 15 for AES, 10 for Kuznyechik.
    pub fn round_keys(&self) -> &[[u8; 16]] {
        &self.round_keys[..self.count]
    }

    /// The sponge's state for chunk tags, at a block boundary.
    pub fn keyed_state(&self) -> &KeccakState {
        &self.keyed
    }

    /// The sponge's state for the lanes, at a block boundary; zeros if the integrity function has no lanes.
    pub fn lane_state(&self) -> &KeccakState {
        &self.lane
    }
}
