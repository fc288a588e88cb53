//! Four Keccak states in 256-bit vectors. Constant-time: no branch and no address depends on a state.

use super::keccak_lanes::{Messages, round};
use std::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm256_andnot_si256, _mm256_extract_epi64, _mm256_or_si256,
    _mm256_set_epi64x, _mm256_set1_epi64x, _mm256_sll_epi64, _mm256_srl_epi64, _mm256_xor_si256,
};

/// Whether this processor has what `absorb` is compiled for.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Absorbs four messages and returns the first 16 bytes of each state.
#[target_feature(enable = "avx2")]
pub(super) fn absorb(messages: &Messages<4>) -> [[u8; 16]; 4] {
    let mut state: [__m256i; 25] =
        std::array::from_fn(|lane| vector(messages.states.map(|state| state[lane] as i64)));
    for block in 0..messages.blocks[0].len() / messages.rate {
        for (word, lane) in state[..messages.rate / 8].iter_mut().enumerate() {
            *lane = _mm256_xor_si256(*lane, vector(messages.words(block * messages.rate + 8 * word)));
        }
        for constant in messages.rounds.constants() {
            state = round!(state, _mm256_set1_epi64x(*constant as i64), xor3, _mm256_xor_si256, rol, chi);
        }
    }
    let (low, high) = (words(state[0]), words(state[1]));
    std::array::from_fn(|i| {
        let mut tag = [0; 16];
        tag[..8].copy_from_slice(&low[i].to_le_bytes());
        tag[8..].copy_from_slice(&high[i].to_le_bytes());
        tag
    })
}

#[inline]
#[target_feature(enable = "avx2")]
fn vector(w: [i64; 4]) -> __m256i {
    _mm256_set_epi64x(w[3], w[2], w[1], w[0])
}

#[inline]
#[target_feature(enable = "avx2")]
fn words(v: __m256i) -> [i64; 4] {
    [
        _mm256_extract_epi64::<0>(v),
        _mm256_extract_epi64::<1>(v),
        _mm256_extract_epi64::<2>(v),
        _mm256_extract_epi64::<3>(v),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    _mm256_xor_si256(_mm256_xor_si256(a, b), c)
}

#[inline]
#[target_feature(enable = "avx2")]
fn rol<const N: i32>(a: __m256i) -> __m256i {
    // The counts are constants: this compiles to shifts by an immediate.
    let (left, right) = (_mm_cvtsi32_si128(N), _mm_cvtsi32_si128(64 - N));
    _mm256_or_si256(_mm256_sll_epi64(a, left), _mm256_srl_epi64(a, right))
}

#[inline]
#[target_feature(enable = "avx2")]
fn chi(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    _mm256_xor_si256(a, _mm256_andnot_si256(b, c))
}
