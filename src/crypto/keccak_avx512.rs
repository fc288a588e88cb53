//! Eight Keccak states in 512-bit vectors: rotations and three-operand logic are one instruction each.
//! Constant-time: no branch and no address depends on a state.

use super::keccak_lanes::{Messages, round};
use std::arch::x86_64::{
    __m512i, _mm256_extract_epi64, _mm512_extracti64x4_epi64, _mm512_rol_epi64, _mm512_set_epi64,
    _mm512_set1_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

/// Whether this processor has what `absorb` is compiled for.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
}

/// Absorbs eight messages and returns the first 16 bytes of each state.
#[target_feature(enable = "avx512f,avx2,avx")]
pub(super) fn absorb(messages: &Messages<8>) -> [[u8; 16]; 8] {
    let mut state: [__m512i; 25] =
        std::array::from_fn(|lane| vector(messages.states.map(|state| state[lane] as i64)));
    for block in 0..messages.blocks[0].len() / messages.rate {
        for (word, lane) in state[..messages.rate / 8].iter_mut().enumerate() {
            *lane = _mm512_xor_si512(*lane, vector(messages.words(block * messages.rate + 8 * word)));
        }
        for constant in messages.rounds.constants() {
            state = round!(
                state,
                _mm512_set1_epi64(*constant as i64),
                xor3,
                _mm512_xor_si512,
                _mm512_rol_epi64,
                chi
            );
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
#[target_feature(enable = "avx512f")]
fn vector(w: [i64; 8]) -> __m512i {
    _mm512_set_epi64(w[7], w[6], w[5], w[4], w[3], w[2], w[1], w[0])
}

#[inline]
#[target_feature(enable = "avx512f,avx2,avx")]
fn words(v: __m512i) -> [i64; 8] {
    let (low, high) = (_mm512_extracti64x4_epi64::<0>(v), _mm512_extracti64x4_epi64::<1>(v));
    [
        _mm256_extract_epi64::<0>(low),
        _mm256_extract_epi64::<1>(low),
        _mm256_extract_epi64::<2>(low),
        _mm256_extract_epi64::<3>(low),
        _mm256_extract_epi64::<0>(high),
        _mm256_extract_epi64::<1>(high),
        _mm256_extract_epi64::<2>(high),
        _mm256_extract_epi64::<3>(high),
    ]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn chi(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0xd2>(a, b, c)
}
