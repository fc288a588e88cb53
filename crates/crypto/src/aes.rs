//! AES (FIPS 197) with all key sizes. The block functions are those of the `aes` crate, which selects the
//! processor's AES instructions (VAES, AES-NI, ARMv8) at run time, or else a constant-time bit-sliced
//! implementation. CTR mode has separate implementations for x86-64 processors with AES-NI or VAES.

use super::{
    aes_keys::AesRoundKeys,
    ctr::{self, BLOCK, Text},
};
#[cfg(target_arch = "x86_64")]
use super::{aes_ni, aes_vaes256, aes_vaes512};
use ::aes::{
    Aes128, Aes192, Aes256,
    cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit},
};

/// An expanded key; wiped on drop.
pub(super) struct AesKey {
    blocks: Blocks,
    rounds: AesRoundKeys,
}

/// The expanded key of the `aes` crate.
enum Blocks {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

/// Evaluates an expression for the key's size.
macro_rules! dispatch {
    ($key:expr, $cipher:ident => $body:expr) => {
        match &$key.blocks {
            Blocks::Aes128($cipher) => $body,
            Blocks::Aes192($cipher) => $body,
            Blocks::Aes256($cipher) => $body,
        }
    };
}

impl AesKey {
    /// Expands a key of 16, 24 or 32 bytes.
    ///
    /// # Panics
    /// If it has another length.
    pub(super) fn new(key: &[u8]) -> Self {
        let length = "the length of an AES key";
        let blocks = match key.len() {
            16 => Blocks::Aes128(Aes128::new_from_slice(key).expect(length)), // invariant: just matched
            24 => Blocks::Aes192(Aes192::new_from_slice(key).expect(length)), // invariant: just matched
            32 => Blocks::Aes256(Aes256::new_from_slice(key).expect(length)), // invariant: just matched
            bytes => panic!("{length} is not {bytes} bytes"),                 // invariant: documented
        };
        AesKey { blocks, rounds: AesRoundKeys::new(key) }
    }

    /// CTR, with the fastest implementation that the processor supports.
    pub(super) fn ctr(&self, counter: &[u8; BLOCK], text: Text<'_>) {
        #[cfg(target_arch = "x86_64")]
        {
            if aes_vaes512::available() {
                // SAFETY: `available` has checked the processor's features.
                return unsafe { aes_vaes512::ctr(&self.rounds, counter, text) };
            }
            if aes_vaes256::available() {
                // SAFETY: `available` has checked the processor's features.
                return unsafe { aes_vaes256::ctr(&self.rounds, counter, text) };
            }
            if aes_ni::available() {
                // SAFETY: `available` has checked the processor's features.
                return unsafe { aes_ni::ctr(&self.rounds, counter, text) };
            }
        }
        self.ctr_portable(counter, text);
    }

    /// CTR with the block function of the `aes` crate.
    pub(super) fn ctr_portable(&self, counter: &[u8; BLOCK], text: Text<'_>) {
        dispatch!(self, cipher => ctr::apply(cipher, counter, text));
    }

    /// Encrypts blocks in ECB mode.
    pub(super) fn encrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        dispatch!(self, cipher => cipher.encrypt_blocks(Array::cast_slice_from_core_mut(blocks)));
    }

    /// Decrypts blocks in ECB mode.
    pub(super) fn decrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        dispatch!(self, cipher => cipher.decrypt_blocks(Array::cast_slice_from_core_mut(blocks)));
    }
}
