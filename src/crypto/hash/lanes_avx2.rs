//! Four sponges in 256-bit vectors, and the loads that MD6 shares: four messages' words side by side.
//! Constant-time: no branch and no address depends on a state.

use super::lanes::States;
use crate::crypto::{keccak::Rounds, keccak_lanes::round};
use std::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm256_andnot_si256, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_permute2x128_si256, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_sll_epi64, _mm256_srl_epi64,
    _mm256_storeu_si256, _mm256_unpackhi_epi64, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

/// Whether this processor has what the functions here are compiled for.
pub(in crate::crypto) fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Each state absorbs the blocks of its message; all have the same number of whole blocks of `rate` bytes.
#[target_feature(enable = "avx2")]
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
            state = round!(state, _mm256_set1_epi64x(*constant as i64), xor3, _mm256_xor_si256, rol, chi);
        }
    }
    for (lane, vector) in states.iter_mut().zip(state) {
        store(lane, vector);
    }
}

/// `count` words (1 to 4) of each message from byte `at` on, word i of all of them in vector i.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn four(messages: [&[u8]; 4], at: usize, count: usize) -> [__m256i; 4] {
    // A closure for `map` would be called, and not inlined: it lacks the features.
    let mut r = [_mm256_setzero_si256(); 4];
    for (row, message) in r.iter_mut().zip(messages) {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(message[at..at + 8 * count].as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        *row = load(&words);
    }
    let (a, b) = (_mm256_unpacklo_epi64(r[0], r[1]), _mm256_unpackhi_epi64(r[0], r[1]));
    let (c, d) = (_mm256_unpacklo_epi64(r[2], r[3]), _mm256_unpackhi_epi64(r[2], r[3]));
    [
        _mm256_permute2x128_si256::<0x20>(a, c),
        _mm256_permute2x128_si256::<0x20>(b, d),
        _mm256_permute2x128_si256::<0x31>(a, c),
        _mm256_permute2x128_si256::<0x31>(b, d),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(words: &[u64; 4]) -> __m256i {
    // SAFETY: reads the 32 bytes of the array.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

/// The elements of a vector.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(words: &mut [u64; 4], vector: __m256i) {
    // SAFETY: writes the 32 bytes of the array.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), vector) }
}

/// `a ^ b ^ c`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
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
