//! Kuznyechik (GOST R 34.12-2015, RFC 7801): the portable implementation, by table look-ups.
//!
//! Not constant-time: the 64 KiB tables are indexed by secret bytes, so a process that shares a
//! core's cache with this one may learn about the key from its own timings.

#[cfg(target_arch = "x86_64")]
use super::kuznyechik_avx512;
use super::{
    ctr::{self, BLOCK, Text},
    kuznyechik_field::{PI, PI_INVERSE},
    kuznyechik_tables::{DECRYPT, ENCRYPT, Fused},
};
use aes::cipher::{
    Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InOut, ParBlocks,
    ParBlocksSizeUser,
    consts::{U4, U16},
};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Blocks that are worked on at once, so that the look-ups of one hide the latency of another's.
type Width = U4;

/// An expanded key; wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Kuznyechik {
    /// K_1 to K_10.
    encrypt: [u128; 10],
    /// In the order of their use: the inverse of L of K_10 to K_2, then K_1 itself.
    decrypt: [u128; 10],
    /// Where the processor can work with it.
    #[cfg(target_arch = "x86_64")]
    wide: Option<kuznyechik_avx512::Keys>,
}

impl Kuznyechik {
    /// Expands a key (section 4.3).
    pub fn new(key: &[u8; 32]) -> Self {
        let (high, low) = key.split_at(16);
        let mut pair = [block(high), block(low)];
        let mut encrypt = [pair[0], pair[1], 0, 0, 0, 0, 0, 0, 0, 0];
        for constant in 1..=32 {
            let mixed = substitute_linear(pair[0] ^ round_constant(constant));
            pair = [mixed ^ pair[1], pair[0]];
            if constant % 8 == 0 {
                let at = usize::from(constant / 4);
                encrypt[at..at + 2].copy_from_slice(&pair);
            }
        }
        let mut decrypt = encrypt;
        decrypt.reverse();
        decrypt[..9].iter_mut().for_each(|key| *key = inverse_linear(*key));
        pair.zeroize();
        Kuznyechik {
            #[cfg(target_arch = "x86_64")]
            wide: kuznyechik_avx512::available().then(|| {
                kuznyechik_avx512::Keys::new(&encrypt.map(u128::to_le_bytes), &decrypt.map(u128::to_le_bytes))
            }),
            encrypt,
            decrypt,
        }
    }

    /// The round keys of encryption, K_1 to K_10, as little-endian numbers: what another implementation
    /// works with. As secret as the key.
    pub fn encryption_keys(&self) -> &[u128; 10] {
        &self.encrypt
    }

    /// The round keys of decryption in the order of their use: the inverse of L of K_10 to K_2, then K_1.
    /// As secret as the key.
    pub fn decryption_keys(&self) -> &[u128; 10] {
        &self.decrypt
    }

    /// CTR, with the implementation that suits this machine.
    pub(super) fn ctr(&self, counter: &[u8; BLOCK], text: Text<'_>) {
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = &self.wide {
            // SAFETY: there are such keys only where the processor has the features.
            return unsafe { kuznyechik_avx512::ctr(keys, counter, text) };
        }
        self.ctr_portable(counter, text);
    }

    /// CTR with the tables.
    pub(super) fn ctr_portable(&self, counter: &[u8; BLOCK], text: Text<'_>) {
        ctr::apply(self, counter, text);
    }

    /// ECB, with the implementation that suits this machine.
    pub(super) fn encrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = &self.wide {
            // SAFETY: there are such keys only where the processor has the features.
            return unsafe { kuznyechik_avx512::encrypt_blocks(keys, blocks) };
        }
        self.encrypt_blocks_portable(blocks);
    }

    /// ECB, with the implementation that suits this machine.
    pub(super) fn decrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = &self.wide {
            // SAFETY: there are such keys only where the processor has the features.
            return unsafe { kuznyechik_avx512::decrypt_blocks(keys, blocks) };
        }
        self.decrypt_blocks_portable(blocks);
    }

    /// ECB with the tables.
    pub(super) fn encrypt_blocks_portable(&self, blocks: &mut [[u8; BLOCK]]) {
        for block in blocks {
            let [out] = self.encrypt_all([u128::from_le_bytes(*block)]);
            *block = out.to_le_bytes();
        }
    }

    /// ECB with the tables.
    pub(super) fn decrypt_blocks_portable(&self, blocks: &mut [[u8; BLOCK]]) {
        for block in blocks {
            let [out] = self.decrypt_all([u128::from_le_bytes(*block)]);
            *block = out.to_le_bytes();
        }
    }

    #[inline(always)]
    fn encrypt_all<const N: usize>(&self, mut state: [u128; N]) -> [u128; N] {
        for key in &self.encrypt[..9] {
            state = state.map(|x| substitute_linear(x ^ key));
        }
        state.map(|x| x ^ self.encrypt[9])
    }

    /// The rounds backwards. The inverse of L moves ahead of the key addition, into the key, so that
    /// each round is one pass over the table of both inverses.
    #[inline(always)]
    fn decrypt_all<const N: usize>(&self, state: [u128; N]) -> [u128; N] {
        let mut state = state.map(|x| inverse_linear(x) ^ self.decrypt[0]);
        for key in &self.decrypt[1..9] {
            state = state.map(|x| look_up(&DECRYPT, x) ^ key);
        }
        state.map(|x| substitute(&PI_INVERSE, x) ^ self.decrypt[9])
    }
}

/// C_i of the key schedule: L of the block that holds the number i.
fn round_constant(i: u8) -> u128 {
    let number = block(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, i]);
    substitute_linear(substitute(&PI_INVERSE, number))
}

/// A block as the tables count it.
fn block(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |x, &byte| x << 8 | u128::from(byte))
}

/// S, then L.
#[inline(always)]
fn substitute_linear(x: u128) -> u128 {
    look_up(&ENCRYPT, x)
}

/// The inverse of L alone: S cancels the inverse of S in the table.
#[inline(always)]
fn inverse_linear(x: u128) -> u128 {
    look_up(&DECRYPT, substitute(&PI, x))
}

#[inline(always)]
fn look_up(table: &Fused, x: u128) -> u128 {
    let bytes = x.to_le_bytes();
    (0..16).fold(0, |sum, i| sum ^ table[i][usize::from(bytes[i])])
}

#[inline(always)]
fn substitute(table: &[u8; 256], x: u128) -> u128 {
    u128::from_le_bytes(x.to_le_bytes().map(|byte| table[usize::from(byte)]))
}

impl BlockSizeUser for Kuznyechik {
    type BlockSize = U16;
}

impl ParBlocksSizeUser for Kuznyechik {
    type ParBlocksSize = Width;
}

impl BlockCipherEncrypt for Kuznyechik {
    fn encrypt_with_backend(&self, f: impl BlockCipherEncClosure<BlockSize = U16>) {
        f.call(self);
    }
}

impl BlockCipherEncBackend for Kuznyechik {
    #[inline(always)]
    fn encrypt_block(&self, mut block: InOut<'_, '_, Block<Self>>) {
        let [out] = self.encrypt_all([u128::from_le_bytes(block.get_in().0)]);
        block.get_out().0 = out.to_le_bytes();
    }

    #[inline(always)]
    fn encrypt_par_blocks(&self, mut blocks: InOut<'_, '_, ParBlocks<Self>>) {
        let out = self.encrypt_all(blocks.get_in().0.map(|block| u128::from_le_bytes(block.0)));
        blocks.get_out().0 = out.map(|x| Block::<Self>::from(x.to_le_bytes()));
    }
}
