//! AES in CTR mode with VAES on 256-bit vectors. Constant-time: no branch or address depends on key or text.

use super::{
    aes_keys::{AesRoundKeys, Schedule},
    ctr::Text,
    x86::{load_128, load_256, put_256},
};
use std::arch::x86_64::{
    __m256i, _mm256_add_epi8, _mm256_aesenc_epi128, _mm256_aesenclast_epi128, _mm256_broadcastsi128_si256,
    _mm256_xor_si256,
};

/// Number of vectors processed at once, to hide the latency of the rounds.
const AT_ONCE: usize = 8;
/// Number of blocks in these vectors.
const BLOCKS: usize = 2 * AT_ONCE;

/// Offset of each block from the first one, added to the last byte of the counter block.
const STEPS: [[u8; 32]; AT_ONCE] = {
    let mut steps = [[0; 32]; AT_ONCE];
    let mut block = 0;
    while block < BLOCKS {
        steps[block / 2][block % 2 * 16 + 15] = block as u8;
        block += 1;
    }
    steps
};

/// Whether this processor has the features that `ctr` requires.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vaes")
}

/// XORs the keystream that starts at the counter block `counter` onto `text`.
#[target_feature(enable = "avx2,vaes")]
pub(super) fn ctr(keys: &AesRoundKeys, counter: &[u8; 16], text: Text<'_>) {
    match keys.schedule() {
        Schedule::Aes128(keys) => apply(keys, counter, text),
        Schedule::Aes192(keys) => apply(keys, counter, text),
        Schedule::Aes256(keys) => apply(keys, counter, text),
    }
}

#[inline]
#[target_feature(enable = "avx2,vaes")]
fn apply<const N: usize>(keys: &[[u8; 16]; N], counter: &[u8; 16], text: Text<'_>) {
    let keys: [__m256i; N] = std::array::from_fn(|i| _mm256_broadcastsi128_si256(load_128(&keys[i])));
    for (first, part) in text.parts(counter, BLOCKS) {
        let first = _mm256_broadcastsi128_si256(load_128(&first));
        let mut state: [__m256i; AT_ONCE] =
            std::array::from_fn(|i| _mm256_xor_si256(_mm256_add_epi8(first, load_256(&STEPS[i])), keys[0]));
        for key in &keys[1..N - 1] {
            for block in &mut state {
                *block = _mm256_aesenc_epi128(*block, *key);
            }
        }
        for block in &mut state {
            *block = _mm256_aesenclast_epi128(*block, keys[N - 1]);
        }
        put_256(part, &state);
    }
}
