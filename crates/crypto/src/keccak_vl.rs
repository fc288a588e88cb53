//! Keccak for x86-64 processors with AVX-512, which has enough registers for one lane of the state in
//! each, three-way logic, and rotation in one instruction. Constant-time: no branch or address
//! depends on the state.

use super::{
    keccak::{KeccakState, Rounds},
    keccak_lanes::round,
};
use std::arch::x86_64::{
    __m128i, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_rol_epi64 as rol, _mm_ternarylogic_epi64,
    _mm_xor_si128 as xor,
};

/// Whether this processor has the features that `permute` requires.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl")
}

/// As `keccak::permute_portable`.
#[target_feature(enable = "avx512f,avx512vl")]
pub(super) fn permute(state: &mut KeccakState, rounds: Rounds) {
    let mut lanes: [__m128i; 25] = std::array::from_fn(|lane| _mm_cvtsi64_si128(state[lane] as i64));
    for constant in rounds.constants() {
        lanes = round!(lanes, _mm_cvtsi64_si128(*constant as i64), true);
    }
    for (word, lane) in state.iter_mut().zip(lanes) {
        *word = _mm_cvtsi128_si64(lane) as u64;
    }
}

/// `a ^ b ^ c`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn xor3(a: __m128i, b: __m128i, c: __m128i) -> __m128i {
    _mm_ternarylogic_epi64::<0x96>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn chi(a: __m128i, b: __m128i, c: __m128i) -> __m128i {
    _mm_ternarylogic_epi64::<0xd2>(a, b, c)
}
