//! Four sponges in 256-bit vectors with the instructions of AVX-512: half the time of eight in 512-bit vectors,
//! where there are no more than four. Constant-time: no branch and no address depends on a state.

use super::{
    lanes::States,
    lanes_avx2::{four, load, store},
};
use crate::crypto::{keccak::Rounds, keccak_lanes::round};
use std::arch::x86_64::{
    __m256i, _mm256_rol_epi64, _mm256_set1_epi64x, _mm256_ternarylogic_epi64, _mm256_xor_si256,
};

/// Whether this processor has what `absorb` is compiled for.
pub(in crate::crypto) fn available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl")
}

/// Each state absorbs the blocks of its message; all have the same number of whole blocks of `rate` bytes.
#[target_feature(enable = "avx512f,avx512vl")]
pub(in crate::crypto) fn absorb(states: &mut States<4>, blocks: [&[u8]; 4], rate: usize, rounds: Rounds) {
    let mut state: [__m256i; 25] = std::array::from_fn(|lane| load(&states[lane]));
    let words = rate / 8;
    for block in 0..blocks[0].len() / rate {
        for first in (0..words).step_by(4) {
            let count = (words - first).min(4);
            let rows = four(blocks, block * rate + 8 * first, count);
            for (lane, row) in state[first..first + count].iter_mut().zip(rows) {
                *lane = _mm256_xor_si256(*lane, row);
            }
        }
        for constant in rounds.constants() {
            let constant = _mm256_set1_epi64x(*constant as i64);
            state = round!(state, constant, xor3, _mm256_xor_si256, _mm256_rol_epi64, chi);
        }
    }
    for (lane, vector) in states.iter_mut().zip(state) {
        store(lane, vector);
    }
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
