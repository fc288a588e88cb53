//! Four sponges in 256-bit vectors, and loads that MD6 uses as well: words of four messages side by side.
//! Constant-time: no branch or address depends on a state.

use super::lanes::States;
use crate::{
    keccak::Rounds,
    keccak_lanes::{absorb, round},
};
use std::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm256_andnot_si256, _mm256_cmpgt_epi64, _mm256_loadu_si256,
    _mm256_maskload_epi64, _mm256_or_si256, _mm256_permute2x128_si256, _mm256_set_epi64x,
    _mm256_set1_epi64x as splat, _mm256_setzero_si256, _mm256_sll_epi64, _mm256_srl_epi64,
    _mm256_storeu_si256, _mm256_unpackhi_epi64, _mm256_unpacklo_epi64, _mm256_xor_si256 as xor,
};

/// Whether this processor has the features that the functions here require.
pub(crate) fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Each state absorbs the blocks of its message's pieces. All have the same number of whole blocks
/// of `rate` bytes.
#[target_feature(enable = "avx2")]
pub(crate) fn absorb(states: &mut States<4>, pieces: &[[&[u8]; 4]], rate: usize, rounds: Rounds) {
    absorb!(4: 0 4 8 12 16 20, states, pieces, rate, rounds, true);
}

/// `count` words (1 to 4) of each message from byte `at` on: word i of all messages is in vector i. Further
/// vectors are zero.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn words(messages: [&[u8]; 4], at: usize, count: usize) -> [__m256i; 4] {
    let mask = _mm256_cmpgt_epi64(splat(count as i64), _mm256_set_epi64x(3, 2, 1, 0));
    // Not `map`: its closure would lack the target features, and so would not be inlined.
    let mut r = [_mm256_setzero_si256(); 4];
    for (row, message) in r.iter_mut().zip(messages) {
        let words = &message[at..at + 8 * count];
        // SAFETY: reads only the `count` words of the slice.
        *row = unsafe { _mm256_maskload_epi64(words.as_ptr().cast(), mask) };
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

/// Stores the elements of a vector.
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
    xor(xor(a, b), c)
}

#[inline]
#[target_feature(enable = "avx2")]
fn rol<const N: i32>(a: __m256i) -> __m256i {
    // The counts are constants, so this compiles to shifts by an immediate.
    let (left, right) = (_mm_cvtsi32_si128(N), _mm_cvtsi32_si128(64 - N));
    _mm256_or_si256(_mm256_sll_epi64(a, left), _mm256_srl_epi64(a, right))
}

#[inline]
#[target_feature(enable = "avx2")]
fn chi(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    xor(a, _mm256_andnot_si256(b, c))
}
