//! Kuznyechik (GOST R 34.12-2015, RFC 7801): the key schedule, single blocks, and the dispatch to the
//! implementations for many blocks. All of it is constant-time: no branch or address depends on key or text.

use super::{
    ctr::{BLOCK, Text},
    kuznyechik_field::linear,
    kuznyechik_planes,
    kuznyechik_sbox::{substitute, substitute_inverse},
};
#[cfg(target_arch = "x86_64")]
use super::{kuznyechik_avx2, kuznyechik_avx512};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Up to this number, single blocks take less time than one bit-sliced pass.
const FEW: usize = 8;

/// Round keys in order of use. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct RoundKeys {
    /// K_1 to K_10.
    pub(super) encrypt: [[u8; BLOCK]; 10],
    /// The inverse of L of K_10 to K_2, then K_1 unchanged.
    pub(super) decrypt: [[u8; BLOCK]; 10],
}

/// An expanded key; wiped on drop.
pub struct Kuznyechik {
    keys: RoundKeys,
    /// Keys for AVX-512, if the processor supports it.
    #[cfg(target_arch = "x86_64")]
    wide: Option<kuznyechik_avx512::WideKeys>,
}

impl Kuznyechik {
    /// Like `new`, but takes a slice.
    ///
    /// # Panics
    /// If `key` does not have 32 bytes.
    pub(super) fn from_slice(key: &[u8]) -> Self {
        Self::new(key.try_into().expect("the length of a Kuznyechik key")) // invariant: documented
    }

    /// Expands a key (section 4.3).
    pub fn new(key: &[u8; 32]) -> Self {
        let mut keys = RoundKeys { encrypt: [[0; BLOCK]; 10], decrypt: [[0; BLOCK]; 10] };
        keys.encrypt.as_flattened_mut()[..32].copy_from_slice(key);
        let mut pair = [keys.encrypt[0], keys.encrypt[1]];
        for (step, constant) in (1..).zip(&CONSTANTS) {
            let mixed = substitute_linear(&xor(&pair[0], constant));
            pair = [xor(&mixed, &pair[1]), pair[0]];
            if step % 8 == 0 {
                let at = step / 4;
                keys.encrypt[at..at + 2].copy_from_slice(&pair);
            }
        }
        pair.zeroize();
        for round in 0..9 {
            keys.decrypt[round] = map_linear(&keys.encrypt[9 - round], &INVERSE_COLUMNS);
        }
        keys.decrypt[9] = keys.encrypt[0];
        Kuznyechik {
            #[cfg(target_arch = "x86_64")]
            wide: kuznyechik_avx512::available()
                .then(|| kuznyechik_avx512::WideKeys::new(&keys.encrypt, &keys.decrypt)),
            keys,
        }
    }

    /// The round keys of encryption, K_1 to K_10, for implementations outside this module. As
    /// secret as the key.
    pub fn encryption_keys(&self) -> &[[u8; BLOCK]; 10] {
        &self.keys.encrypt
    }

    /// The round keys of decryption, in order of use: the inverse of L of K_10 to K_2, then K_1. As
    /// secret as the key.
    pub fn decryption_keys(&self) -> &[[u8; BLOCK]; 10] {
        &self.keys.decrypt
    }

    /// CTR, with the fastest implementation for this machine.
    pub(super) fn ctr(&self, counter: &[u8; BLOCK], text: Text<'_>) {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(keys) = &self.wide {
                // SAFETY: such keys exist only if the processor has the features.
                return unsafe { kuznyechik_avx512::ctr(keys, counter, text) };
            }
            if text.dst.len() > FEW * BLOCK && kuznyechik_avx2::available() {
                // SAFETY: the required CPU features were just checked.
                return unsafe { kuznyechik_avx2::ctr(&self.keys, counter, text) };
            }
        }
        self.ctr_portable(counter, text);
    }

    /// CTR with portable code.
    pub(super) fn ctr_portable(&self, counter: &[u8; BLOCK], text: Text<'_>) {
        if text.dst.len() > FEW * BLOCK {
            return kuznyechik_planes::ctr::<u64>(&self.keys, counter, text);
        }
        for (mut block, part) in text.parts(counter, 1) {
            self.encrypt_block(&mut block);
            part.xor(&block);
        }
    }

    /// Encrypts in ECB mode, with the fastest implementation for this machine.
    pub(super) fn encrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(keys) = &self.wide {
                // SAFETY: such keys exist only if the processor has the features.
                return unsafe { kuznyechik_avx512::encrypt_blocks(keys, blocks) };
            }
            if blocks.len() > FEW && kuznyechik_avx2::available() {
                // SAFETY: the required CPU features were just checked.
                return unsafe { kuznyechik_avx2::encrypt_blocks(&self.keys, blocks) };
            }
        }
        self.encrypt_blocks_portable(blocks);
    }

    /// Decrypts in ECB mode, with the fastest implementation for this machine.
    pub(super) fn decrypt_blocks(&self, blocks: &mut [[u8; BLOCK]]) {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(keys) = &self.wide {
                // SAFETY: such keys exist only if the processor has the features.
                return unsafe { kuznyechik_avx512::decrypt_blocks(keys, blocks) };
            }
            if blocks.len() > FEW && kuznyechik_avx2::available() {
                // SAFETY: the required CPU features were just checked.
                return unsafe { kuznyechik_avx2::decrypt_blocks(&self.keys, blocks) };
            }
        }
        self.decrypt_blocks_portable(blocks);
    }

    /// Encrypts in ECB mode, with portable code.
    pub(super) fn encrypt_blocks_portable(&self, blocks: &mut [[u8; BLOCK]]) {
        if blocks.len() > FEW {
            return kuznyechik_planes::encrypt_blocks::<u64>(&self.keys, blocks);
        }
        blocks.iter_mut().for_each(|block| self.encrypt_block(block));
    }

    /// Decrypts in ECB mode, with portable code.
    pub(super) fn decrypt_blocks_portable(&self, blocks: &mut [[u8; BLOCK]]) {
        if blocks.len() > FEW {
            return kuznyechik_planes::decrypt_blocks::<u64>(&self.keys, blocks);
        }
        blocks.iter_mut().for_each(|block| self.decrypt_block(block));
    }

    fn encrypt_block(&self, block: &mut [u8; BLOCK]) {
        *block = xor(block, &self.keys.encrypt[0]);
        for key in &self.keys.encrypt[1..] {
            *block = xor(&substitute_linear(block), key);
        }
    }

    fn decrypt_block(&self, block: &mut [u8; BLOCK]) {
        for key in &self.keys.decrypt[..9] {
            *block = xor(&map_linear(block, &INVERSE_COLUMNS), key);
            *block = from_planes(substitute_inverse(to_planes(block)));
        }
        *block = xor(block, &self.keys.decrypt[9]);
    }

    /// Round keys for the implementations that use them unmodified.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn round_keys(&self) -> &RoundKeys {
        &self.keys
    }
}

/// C_1 to C_32 of the key schedule (section 4.3): L of the block with that number.
static CONSTANTS: [[u8; BLOCK]; 32] = {
    let mut constants = [[0; BLOCK]; 32];
    let mut i = 0;
    while i < 32 {
        constants[i][BLOCK - 1] = i as u8 + 1;
        constants[i] = linear(constants[i], false);
        i += 1;
    }
    constants
};

/// Applies S, then L, to a block.
pub(super) fn substitute_linear(block: &[u8; BLOCK]) -> [u8; BLOCK] {
    map_linear(&from_planes(substitute(to_planes(block))), &COLUMNS)
}

fn xor(a: &[u8; BLOCK], b: &[u8; BLOCK]) -> [u8; BLOCK] {
    std::array::from_fn(|i| a[i] ^ b[i])
}

/// L, and its inverse, of every block with a single bit set. Both are linear over bits.
static COLUMNS: [u128; 128] = columns(false);
static INVERSE_COLUMNS: [u128; 128] = columns(true);

const fn columns(inverse: bool) -> [u128; 128] {
    let mut columns = [0; 128];
    let mut bit = 0;
    while bit < 128 {
        columns[bit] = u128::from_le_bytes(linear((1_u128 << bit).to_le_bytes(), inverse));
        bit += 1;
    }
    columns
}

/// The XOR of the columns selected by the bits of `block`.
fn map_linear(block: &[u8; BLOCK], columns: &[u128; 128]) -> [u8; BLOCK] {
    let bits = u128::from_le_bytes(*block);
    let chosen = |(bit, column): (usize, &u128)| column & 0_u128.wrapping_sub(bits >> bit & 1);
    columns.iter().enumerate().map(chosen).fold(0, |sum, column| sum ^ column).to_le_bytes()
}

/// Word `k` contains bit `k` of each byte of the block.
fn to_planes(block: &[u8; BLOCK]) -> [u16; 8] {
    let (low, high) = halves(u128::from_le_bytes(*block));
    let (low, high) = (transpose(low).to_le_bytes(), transpose(high).to_le_bytes());
    std::array::from_fn(|k| u16::from_le_bytes([low[k], high[k]]))
}

/// Inverse of `to_planes`.
fn from_planes(planes: [u16; 8]) -> [u8; BLOCK] {
    let byte = |k: usize, half: usize| planes[k].to_le_bytes()[half];
    let [low, high] = [0, 1].map(|half| u64::from_le_bytes(std::array::from_fn(|k| byte(k, half))));
    (u128::from(transpose(low)) | u128::from(transpose(high)) << 64).to_le_bytes()
}

fn halves(block: u128) -> (u64, u64) {
    (block as u64, (block >> 64) as u64)
}

/// Transposes a matrix of 8 by 8 bits: bit `i` of byte `j` becomes bit `j` of byte `i`.
fn transpose(mut x: u64) -> u64 {
    for (distance, mask) in
        [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)]
    {
        let difference = (x ^ x >> distance) & mask;
        x ^= difference ^ difference << distance;
    }
    x
}
