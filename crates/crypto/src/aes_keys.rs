//! AES round keys (FIPS 197, section 5.2), for implementations that need them expanded. The `aes` crate
//! does not expose its own.

use aes::{
    Block,
    hazmat::{cipher_round, inv_mix_columns},
};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Maximum number of round keys: those of AES-256.
const MOST_ROUND_KEYS: usize = 15;

/// An expanded key: one block for each round, and one before the first. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct AesRoundKeys {
    /// Round keys of encryption, in order of use.
    encrypt: [[u8; 16]; MOST_ROUND_KEYS],
    rounds: usize,
}

/// Round keys of encryption, by key size.
#[cfg(target_arch = "x86_64")]
pub(super) enum Schedule<'a> {
    Aes128(&'a [[u8; 16]; 11]),
    Aes192(&'a [[u8; 16]; 13]),
    Aes256(&'a [[u8; 16]; 15]),
}

impl AesRoundKeys {
    /// Expands a key.
    ///
    /// # Panics
    /// If its length is not 16, 24 or 32 bytes.
    pub fn new(key: &[u8]) -> Self {
        assert!(matches!(key.len(), 16 | 24 | 32), "the length of an AES key");
        let rounds = key.len() / 4 + 6;
        let mut keys = AesRoundKeys { encrypt: [[0; 16]; MOST_ROUND_KEYS], rounds };
        expand(key, keys.encrypt[..=rounds].as_flattened_mut());
        keys
    }

    /// Number of rounds: 10, 12 or 14.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Round keys of encryption, with their number in the type.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn schedule(&self) -> Schedule<'_> {
        let [keys192 @ .., _, _] = &self.encrypt;
        let [keys128 @ .., _, _] = keys192;
        match self.rounds {
            10 => Schedule::Aes128(keys128),
            12 => Schedule::Aes192(keys192),
            14 => Schedule::Aes256(&self.encrypt),
            rounds => unreachable!("AES with {rounds} rounds"), // invariant: `new` sets no other number
        }
    }

    /// The `rounds() + 1` round keys of encryption.
    pub fn encryption_keys(&self) -> &[[u8; 16]] {
        &self.encrypt[..=self.rounds]
    }

    /// The `rounds() + 1` round keys of the equivalent inverse cipher (section 5.3.5), in order of use.
    pub fn decryption_keys(&self) -> Zeroizing<Vec<[u8; 16]>> {
        let mut keys: Zeroizing<Vec<_>> =
            Zeroizing::new(self.encryption_keys().iter().rev().copied().collect());
        keys[1..self.rounds].iter_mut().for_each(|key| {
            let mut block = Block::from(*key);
            inv_mix_columns(&mut block);
            *key = block.into();
        });
        keys
    }
}

/// KeyExpansion: copies the key to the front of `words` and computes the rest.
fn expand(key: &[u8], words: &mut [u8]) {
    words[..key.len()].copy_from_slice(key);
    let mut constant = 1;
    for at in (key.len()..words.len()).step_by(4) {
        let mut word = [words[at - 4], words[at - 3], words[at - 2], words[at - 1]];
        if at % key.len() == 0 {
            word.rotate_left(1);
            word = substitute(word);
            word[0] ^= constant;
            constant = double(constant);
        } else if key.len() == 32 && at % 32 == 16 {
            word = substitute(word);
        }
        for (i, byte) in word.into_iter().enumerate() {
            words[at + i] = words[at + i - key.len()] ^ byte;
        }
    }
}

/// Product with 2 in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1.
fn double(x: u8) -> u8 {
    (x << 1) ^ (0x1b & 0u8.wrapping_sub(x >> 7))
}

/// SubWord, by way of the round function on a block of four copies of the word: ShiftRows has no effect on
/// that, and MixColumns is undone.
fn substitute(word: [u8; 4]) -> [u8; 4] {
    let mut block = Block::default();
    block.as_chunks_mut::<4>().0.fill(word);
    cipher_round(&mut block, &Block::default());
    inv_mix_columns(&mut block);
    let [b0, b1, b2, b3, ..] = block.0;
    block.zeroize();
    [b0, b1, b2, b3]
}

#[cfg(test)]
mod tests {
    use super::AesRoundKeys;

    /// FIPS 197, appendix A: key and last round key for each size.
    #[test]
    fn expansions_of_fips_197_appendix_a() {
        let key128 = 0x2b7e151628aed2a6abf7158809cf4f3c_u128.to_be_bytes();
        assert_eq!(last(&key128), (10, 0xd014f9a8c9ee2589e13f0cc8b6630ca6));
        let mut key192 = 0x8e73b0f7da0e6452c810f32b809079e5_u128.to_be_bytes().to_vec();
        key192.extend(0x62f8ead2522c6b7b_u64.to_be_bytes());
        assert_eq!(last(&key192), (12, 0xe98ba06f448c773c8ecc720401002202));
        let mut key256 = 0x603deb1015ca71be2b73aef0857d7781_u128.to_be_bytes().to_vec();
        key256.extend(0x1f352c073b6108d72d9810a30914dff4_u128.to_be_bytes());
        assert_eq!(last(&key256), (14, 0xfe4890d1e6188d0b046df344706c631e));
    }

    fn last(key: &[u8]) -> (usize, u128) {
        let keys = AesRoundKeys::new(key);
        assert_eq!(keys.encryption_keys().len(), keys.rounds() + 1);
        (keys.rounds(), u128::from_be_bytes(keys.encryption_keys()[keys.rounds()]))
    }

    /// FIPS 197, appendix C.1 lists the round keys of the equivalent inverse cipher. The second one
    /// is checked here.
    #[test]
    fn decryption_keys_are_mixed_and_reversed() {
        let key = 0x000102030405060708090a0b0c0d0e0f_u128.to_be_bytes();
        let keys = AesRoundKeys::new(&key);
        let decryption: Vec<u128> =
            keys.decryption_keys().iter().map(|key| u128::from_be_bytes(*key)).collect();
        assert_eq!(decryption[0], 0x13111d7fe3944a17f307a78b4d2b30c5);
        assert_eq!(decryption[1], 0x13aa29be9c8faff6f770f58000f7bf03);
        assert_eq!(decryption[10].to_be_bytes(), key);
    }
}
