//! AES in CTR mode with VAES on 512-bit vectors. Constant-time: no branch or address depends on key or text.

use super::{
    aes_keys::{AesRoundKeys, Schedule},
    ctr::Text,
    x86::{load_128, load_512, put_512},
};
use std::arch::x86_64::{
    __m512i, _mm512_add_epi8, _mm512_aesenc_epi128, _mm512_aesenclast_epi128, _mm512_broadcast_i32x4,
    _mm512_xor_si512,
};

/// Number of vectors processed at once, to hide the latency of the rounds.
const AT_ONCE: usize = 8;
/// Number of blocks in these vectors.
const BLOCKS: usize = 4 * AT_ONCE;

/// Offset of each block from the first one, added to the last byte of the counter block.
const STEPS: [[u8; 64]; AT_ONCE] = {
    let mut steps = [[0; 64]; AT_ONCE];
    let mut block = 0;
    while block < BLOCKS {
        steps[block / 4][block % 4 * 16 + 15] = block as u8;
        block += 1;
    }
    steps
};

/// Whether this processor has the features that `ctr` requires.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("vaes")
}

/// XORs the keystream that starts at the counter block `counter` onto `text`.
#[target_feature(enable = "avx512f,avx512bw,vaes")]
pub(super) fn ctr(keys: &AesRoundKeys, counter: &[u8; 16], text: Text<'_>) {
    match keys.schedule() {
        Schedule::Aes128(keys) => apply(keys, counter, text),
        Schedule::Aes192(keys) => apply(keys, counter, text),
        Schedule::Aes256(keys) => apply(keys, counter, text),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn apply<const N: usize>(keys: &[[u8; 16]; N], counter: &[u8; 16], text: Text<'_>) {
    let keys: [__m512i; N] = std::array::from_fn(|i| _mm512_broadcast_i32x4(load_128(&keys[i])));
    for (first, part) in text.parts(counter, BLOCKS) {
        let first = _mm512_broadcast_i32x4(load_128(&first));
        let mut state: [__m512i; AT_ONCE] =
            std::array::from_fn(|i| _mm512_xor_si512(_mm512_add_epi8(first, load_512(&STEPS[i])), keys[0]));
        for key in &keys[1..N - 1] {
            for block in &mut state {
                *block = _mm512_aesenc_epi128(*block, *key);
            }
        }
        for block in &mut state {
            *block = _mm512_aesenclast_epi128(*block, keys[N - 1]);
        }
        put_512(part, &state);
    }
}
