//! Four sponges in 256-bit vectors with AVX-512 instructions. For up to four sponges this takes half the
//! time of eight in 512-bit vectors. Constant-time: no branch or address depends on a state.

use super::{
    lanes::States,
    lanes_avx2::{load, store, words},
};
use crate::{
    keccak::Rounds,
    keccak_lanes::{absorb, round},
};
use std::arch::x86_64::{
    __m256i, _mm256_rol_epi64 as rol, _mm256_set1_epi64x as splat, _mm256_ternarylogic_epi64,
    _mm256_xor_si256 as xor,
};

/// Whether this processor has the features that `absorb` requires.
pub(crate) fn available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl")
}

/// Each state absorbs the blocks of its message's pieces. All have the same number of whole blocks
/// of `rate` bytes.
#[target_feature(enable = "avx512f,avx512vl")]
pub(crate) fn absorb(states: &mut States<4>, pieces: &[[&[u8]; 4]], rate: usize, rounds: Rounds) {
    absorb!(4: 0 4 8 12 16 20, states, pieces, rate, rounds, true);
}

/// `a ^ b ^ c`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    _mm256_ternarylogic_epi64::<0x96>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn chi(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    _mm256_ternarylogic_epi64::<0xd2>(a, b, c)
}
