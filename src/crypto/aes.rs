//! AES (FIPS 197), all key sizes: the `aes` crate's block functions, which choose the processor's own AES
//! instructions (VAES, AES-NI, ARMv8) at run time and a bit-sliced constant-time code without them; and CTR
//! over an implementation of our own where the processor has one of these instruction sets of x86-64.

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

/// The crate's expanded key.
enum Blocks {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

/// Runs the same expression over whichever size the key is of.
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
            16 => Blocks::Aes128(Aes128::new_from_slice(key).expect(length)), // invariant: just seen
            24 => Blocks::Aes192(Aes192::new_from_slice(key).expect(length)), // invariant: just seen
            32 => Blocks::Aes256(Aes256::new_from_slice(key).expect(length)), // invariant: just seen
            bytes => panic!("{length} is not {bytes} bytes"),                 // invariant: documented
        };
        AesKey { blocks, rounds: AesRoundKeys::new(key) }
    }

    /// CTR, with the implementation that suits this machine.
    pub(super) fn ctr(&self, counter: &[u8; BLOCK], text: Text<'_>) {
        #[cfg(target_arch = "x86_64")]
        {
            if aes_vaes512::available() {
                // SAFETY: the processor has the features, as was just seen.
                return unsafe { aes_vaes512::ctr(&self.rounds, counter, text) };
            }
            if aes_vaes256::available() {
                // SAFETY: the processor has the features, as was just seen.
                return unsafe { aes_vaes256::ctr(&self.rounds, counter, text) };
            }
            if aes_ni::available() {
                // SAFETY: the processor has the features, as was just seen.
                return unsafe { aes_ni::ctr(&self.rounds, counter, text) };
            }
        }
        self.ctr_portable(counter, text);
    }

    /// CTR over the crate's block function.
    pub(super) fn ctr_portable(&self, counter: &[u8; BLOCK], text: Text<'_>) {
        dispatch!(self, cipher => ctr::apply(cipher, counter, text));
    }

    /// ECB.
    pub(super) fn encrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        dispatch!(self, cipher => cipher.encrypt_blocks(Array::cast_slice_from_core_mut(blocks)));
    }

    /// ECB.
    pub(super) fn decrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        dispatch!(self, cipher => cipher.decrypt_blocks(Array::cast_slice_from_core_mut(blocks)));
    }
}
