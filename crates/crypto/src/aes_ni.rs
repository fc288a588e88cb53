//! AES in CTR mode with VEX-encoded AES-NI. Constant-time: no branch or address depends on key or text.

use super::{
    aes_keys::{AesRoundKeys, Schedule},
    ctr::Text,
    x86::{load_128, put_128},
};
use std::arch::x86_64::{__m128i, _mm_add_epi8, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_xor_si128};

/// Number of blocks processed at once, to hide the latency of the rounds.
const AT_ONCE: usize = 8;
/// Offset of each block from the first one, added to the last byte of the counter block.
const STEPS: [[u8; 16]; AT_ONCE] = {
    let mut steps = [[0; 16]; AT_ONCE];
    let mut block = 0;
    while block < AT_ONCE {
        steps[block][15] = block as u8;
        block += 1;
    }
    steps
};

/// Whether this processor has the features that `ctr` requires.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx") && is_x86_feature_detected!("aes")
}

/// XORs the keystream that starts at the counter block `counter` onto `text`.
#[target_feature(enable = "avx,aes")]
pub(super) fn ctr(keys: &AesRoundKeys, counter: &[u8; 16], text: Text<'_>) {
    match keys.schedule() {
        Schedule::Aes128(keys) => apply(keys, counter, text),
        Schedule::Aes192(keys) => apply(keys, counter, text),
        Schedule::Aes256(keys) => apply(keys, counter, text),
    }
}

#[inline]
#[target_feature(enable = "avx,aes")]
fn apply<const N: usize>(keys: &[[u8; 16]; N], counter: &[u8; 16], text: Text<'_>) {
    let keys: [__m128i; N] = std::array::from_fn(|i| load_128(&keys[i]));
    for (first, part) in text.parts(counter, AT_ONCE) {
        let first = load_128(&first);
        let mut state: [__m128i; AT_ONCE] =
            std::array::from_fn(|i| _mm_xor_si128(_mm_add_epi8(first, load_128(&STEPS[i])), keys[0]));
        for key in &keys[1..N - 1] {
            for block in &mut state {
                *block = _mm_aesenc_si128(*block, *key);
            }
        }
        for block in &mut state {
            *block = _mm_aesenclast_si128(*block, keys[N - 1]);
        }
        put_128(part, &state);
    }
}
