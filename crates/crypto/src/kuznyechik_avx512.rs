//! Kuznyechik with AVX-512 and GFNI: 64 blocks at once, with one vector for each byte of a block.
//!
//! The substitution consists of two lookups in registers (VPERMI2B) and a blend. The linear map is the
//! standard's shift register, but the bytes stay in place and the position moves. Of the fifteen products
//! that a step adds up, those with equal factors share one multiplication, which is an affine map over
//! GF(2). Round keys are added as part of these sums, adjusted so that their contributions to later steps
//! cancel. Constant-time: no branch or address depends on key or text.

use super::{
    ctr::{BLOCK, Text},
    kuznyechik_field::{COEFFICIENTS, PI, PI_INVERSE, feedback, linear, multiply},
    x86::{load_512, put_512, store_512},
};
use std::arch::x86_64::{
    __m512i, _mm512_add_epi8, _mm512_gf2p8affine_epi64_epi8, _mm512_mask_blend_epi8, _mm512_movepi8_mask,
    _mm512_permutex2var_epi8, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_ternarylogic_epi64, _mm512_unpackhi_epi8, _mm512_unpacklo_epi8, _mm512_xor_si512,
};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Number of blocks processed at once.
const BLOCKS: usize = 64;
/// Vector `i` contains byte `i` of every block. Block `4 * i + l` is at byte `16 * l + i` of each vector.
type WidePlanes = [__m512i; 16];
/// A substitution table, in the order of its index.
type SubstitutionTable = [__m512i; 4];

/// Offset of each block from the first one, added to the last byte of the counter block.
const STEPS: [u8; BLOCKS] = {
    let mut steps = [0; BLOCKS];
    let mut at = 0;
    while at < BLOCKS {
        steps[at] = (at % 16 * 4 + at / 16) as u8;
        at += 1;
    }
    steps
};

/// Matrices of the multiplication by the coefficients of the linear map, up to the middle one.
const FACTORS: [i64; 8] = {
    let mut matrices = [0; 8];
    let mut i = 0;
    while i < 8 {
        matrices[i] = multiplication(COEFFICIENTS[i]);
        i += 1;
    }
    matrices
};

/// Contribution of a block's last byte to each byte of L, as matrices.
const LAST_COLUMN: [i64; 16] = {
    let mut block = [0; 16];
    block[15] = 1;
    let column = linear(block, false);
    let mut matrices = [0; 16];
    let mut i = 0;
    while i < 16 {
        matrices[i] = multiplication(column[i]);
        i += 1;
    }
    matrices
};

/// The matrix of the multiplication by `factor`, in the form for GF2P8AFFINEQB: row 0 in the highest byte.
const fn multiplication(factor: u8) -> i64 {
    let mut rows = [0; 8];
    let mut column = 0;
    while column < 8 {
        let product = multiply(factor, 1 << column);
        let mut row = 0;
        while row < 8 {
            rows[row] |= (product >> row & 1) << column;
            row += 1;
        }
        column += 1;
    }
    i64::from_be_bytes(rows)
}

/// Round keys in the form in which they are added. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct WideKeys {
    first: [u8; BLOCK],
    /// The byte for each step of a round, repeated four times.
    encrypt: [[[u8; 4]; 16]; 9],
    decrypt: [[[u8; 4]; 16]; 9],
}

impl WideKeys {
    /// `encrypt` are the round keys of encryption in order of use. `decrypt` are those of decryption: the
    /// inverse of L of all but the last one.
    pub(super) fn new(encrypt: &[[u8; BLOCK]; 10], decrypt: &[[u8; BLOCK]; 10]) -> Self {
        WideKeys {
            first: encrypt[0],
            encrypt: std::array::from_fn(|round| of_steps(&encrypt[round + 1], false)),
            decrypt: std::array::from_fn(|round| of_steps(&decrypt[round], true)),
        }
    }
}

/// The bytes that the steps add, so that after all of them exactly the key has been added.
fn of_steps(key: &[u8; BLOCK], inverse: bool) -> [[u8; 4]; 16] {
    let mut added = [0; BLOCK];
    let mut steps = [[0; 4]; 16];
    for step in 0..16 {
        let slot = if inverse { step } else { 15 - step };
        steps[slot] = [key[slot] ^ feedback(&added, slot); 4];
        added[slot] = key[slot];
    }
    added.zeroize();
    steps
}

/// Whether this processor has the features that the functions here require.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("gfni")
}

/// Replaces the byte at `$slot` of every block: one step of the linear map, or of its inverse.
macro_rules! step {
    ($state:ident, $keys:ident, $slot:literal) => {
        let byte = |i: usize| $state[($slot + 1 + i) % 16];
        // The factors are symmetric.
        let product = |i: usize| {
            let sum = if i == 7 { byte(7) } else { _mm512_xor_si512(byte(i), byte(14 - i)) };
            _mm512_gf2p8affine_epi64_epi8::<0>(sum, _mm512_set1_epi64(FACTORS[i]))
        };
        let key = _mm512_set1_epi32(i32::from_ne_bytes($keys[$slot]));
        let sums = [
            xor3(product(2), product(3), product(4)),
            xor3(product(5), product(7), byte(6)),
            xor3(byte(8), $state[$slot], key),
        ];
        // The previous step computed the input of product 0, so that comes last.
        $state[$slot] = xor3(xor3(sums[0], sums[1], sums[2]), product(1), product(0));
    };
}

/// Applies L to every block, and adds the key.
macro_rules! linear {
    ($state:ident, $keys:expr) => {{
        let keys = $keys;
        steps!($state, keys, 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0);
    }};
}

/// Applies the inverse of L to every block, and adds the key.
macro_rules! inverse_linear {
    ($state:ident, $keys:expr) => {{
        let keys = $keys;
        steps!($state, keys, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }};
}

macro_rules! steps {
    ($state:ident, $keys:ident, $($slot:literal)*) => { $(step!($state, $keys, $slot);)* };
}

/// XORs the keystream that starts at the counter block `counter` onto `text`.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn ctr(keys: &WideKeys, counter: &[u8; BLOCK], text: Text<'_>) {
    let table = table(&PI);
    let mut before = None;
    let mut constant = [_mm512_setzero_si512(); 16];
    for (first, part) in text.parts(counter, BLOCKS) {
        // For 256 blocks, only the last byte of the counter block changes. The contribution of the others
        // to the first round is the same for all of them.
        let fixed = Some(u128::from_be_bytes(first) >> 8);
        if before != fixed {
            constant = first_round(keys, &first, &table);
            before = fixed;
        }
        let numbers = _mm512_add_epi8(load_512(&STEPS), _mm512_set1_epi8(first[15] as i8));
        let last = substitute(_mm512_xor_si512(numbers, _mm512_set1_epi8(keys.first[15] as i8)), &table);
        let mut state: WidePlanes = std::array::from_fn(|i| {
            let share = _mm512_gf2p8affine_epi64_epi8::<0>(last, _mm512_set1_epi64(LAST_COLUMN[i]));
            _mm512_xor_si512(constant[i], share)
        });
        for round in &keys.encrypt[1..] {
            substitute_all(&mut state, &table);
            linear!(state, round);
        }
        put_512(part, &transpose(state));
    }
}

/// The first round of a block, without the contribution of its last byte; the same for all blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn first_round(keys: &WideKeys, block: &[u8; BLOCK], table: &SubstitutionTable) -> WidePlanes {
    let mut state: WidePlanes =
        std::array::from_fn(|i| substitute(_mm512_set1_epi8((block[i] ^ keys.first[i]) as i8), table));
    state[15] = _mm512_setzero_si512();
    linear!(state, &keys.encrypt[0]);
    state
}

/// Encrypts any number of blocks in ECB mode.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn encrypt_blocks(keys: &WideKeys, blocks: &mut [[u8; BLOCK]]) {
    let table = table(&PI);
    each_group(blocks, |group| {
        let mut state = transpose(std::array::from_fn(|i| load_512(&group[i])));
        add(&mut state, &keys.first);
        for round in &keys.encrypt {
            substitute_all(&mut state, &table);
            linear!(state, round);
        }
        let state = transpose(state);
        for i in 0..16 {
            store_512(&mut group[i], state[i]);
        }
    });
}

/// Decrypts any number of blocks in ECB mode.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(super) fn decrypt_blocks(keys: &WideKeys, blocks: &mut [[u8; BLOCK]]) {
    let table = table(&PI_INVERSE);
    each_group(blocks, |group| {
        let mut state = transpose(std::array::from_fn(|i| load_512(&group[i])));
        for round in &keys.decrypt {
            inverse_linear!(state, round);
            substitute_all(&mut state, &table);
        }
        add(&mut state, &keys.first);
        let state = transpose(state);
        for i in 0..16 {
            store_512(&mut group[i], state[i]);
        }
    });
}

/// Calls `work` for 64 blocks at a time, the last group padded with zeros.
fn each_group(blocks: &mut [[u8; BLOCK]], mut work: impl FnMut(&mut [[u8; 64]; 16])) {
    for group in blocks.chunks_mut(BLOCKS) {
        let bytes = group.as_flattened_mut();
        let mut whole = [[0; 64]; 16];
        whole.as_flattened_mut()[..bytes.len()].copy_from_slice(bytes);
        work(&mut whole);
        bytes.copy_from_slice(&whole.as_flattened()[..bytes.len()]);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn table(substitution: &[u8; 256]) -> SubstitutionTable {
    let (quarters, _) = substitution.as_chunks::<64>();
    std::array::from_fn(|i| load_512(&quarters[i]))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn substitute(bytes: __m512i, table: &SubstitutionTable) -> __m512i {
    let low = _mm512_permutex2var_epi8(table[0], bytes, table[1]);
    let high = _mm512_permutex2var_epi8(table[2], bytes, table[3]);
    _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), low, high)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn substitute_all(state: &mut WidePlanes, table: &SubstitutionTable) {
    for plane in state {
        *plane = substitute(*plane, table);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

/// Adds a key to every block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn add(state: &mut WidePlanes, key: &[u8; BLOCK]) {
    for i in 0..16 {
        state[i] = _mm512_xor_si512(state[i], _mm512_set1_epi8(key[i] as i8));
    }
}

/// Converts blocks to planes of their bytes, and back: in each 128-bit lane, byte `i` of vector `j` becomes
/// byte `j` of vector `i`. Each pass moves one bit of the vector's index into the byte's index.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose(mut state: WidePlanes) -> WidePlanes {
    for _ in 0..4 {
        state = std::array::from_fn(|i| {
            let (a, b) = (state[i / 2], state[i / 2 + 8]);
            if i % 2 == 0 { _mm512_unpacklo_epi8(a, b) } else { _mm512_unpackhi_epi8(a, b) }
        });
    }
    state
}
