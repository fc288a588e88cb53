//! Eight sponges in 512-bit vectors, and loads that MD6 uses as well: words of eight messages side by side.
//! Constant-time: no branch or address depends on a state.

use super::lanes::States;
use crate::{
    keccak::Rounds,
    keccak_lanes::{absorb, round},
};
use std::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_maskz_loadu_epi64, _mm512_permutex2var_epi64,
    _mm512_rol_epi64 as rol, _mm512_set_epi64, _mm512_set1_epi64 as splat, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_unpackhi_epi64, _mm512_unpacklo_epi64,
    _mm512_xor_si512 as xor,
};

/// Whether this processor has the features that the functions here require.
pub(crate) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
}

/// Each state absorbs the blocks of its message's pieces. All have the same number of whole blocks
/// of `rate` bytes.
#[target_feature(enable = "avx512f")]
pub(crate) fn absorb(states: &mut States<8>, pieces: &[[&[u8]; 8]], rate: usize, rounds: Rounds) {
    // SSE4a identifies AMD: no other processors in use have it.
    if is_x86_feature_detected!("sse4a") {
        absorb_by::<true>(states, pieces, rate, rounds);
    } else {
        absorb_by::<false>(states, pieces, rate, rounds);
    }
}

/// Like `absorb`, with or without the sums of theta; `round!` documents which is faster where. These are two
/// separate functions, because spilled vectors were unaligned when both were in one.
#[inline(never)]
#[target_feature(enable = "avx512f")]
pub(super) fn absorb_by<const SUMS: bool>(
    states: &mut States<8>,
    pieces: &[[&[u8]; 8]],
    rate: usize,
    rounds: Rounds,
) {
    absorb!(8: 0 8 16, states, pieces, rate, rounds, SUMS);
}

/// `count` words (1 to 8) of each message from byte `at` on: word i of all messages is in vector i. Further
/// vectors are zero.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn words(messages: [&[u8]; 8], at: usize, count: usize) -> [__m512i; 8] {
    let mask = (0xff_u16 >> (8 - count)) as u8;
    // Not `map`: its closure would lack the target features, and so would not be inlined.
    let mut r = [_mm512_setzero_si512(); 8];
    for (row, message) in r.iter_mut().zip(messages) {
        let words = &message[at..at + 8 * count];
        // SAFETY: reads only the `count` words of the slice.
        *row = unsafe { _mm512_maskz_loadu_epi64(mask, words.as_ptr().cast()) };
    }
    // Transpose pairs of words, then pairs of pairs, then groups of four.
    let (a, b) = (_mm512_unpacklo_epi64(r[0], r[1]), _mm512_unpackhi_epi64(r[0], r[1]));
    let (c, d) = (_mm512_unpacklo_epi64(r[2], r[3]), _mm512_unpackhi_epi64(r[2], r[3]));
    let (e, f) = (_mm512_unpacklo_epi64(r[4], r[5]), _mm512_unpackhi_epi64(r[4], r[5]));
    let (g, h) = (_mm512_unpacklo_epi64(r[6], r[7]), _mm512_unpackhi_epi64(r[6], r[7]));
    let low = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0);
    let high = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    let (ac0, ac1) = (_mm512_permutex2var_epi64(a, low, c), _mm512_permutex2var_epi64(a, high, c));
    let (bd0, bd1) = (_mm512_permutex2var_epi64(b, low, d), _mm512_permutex2var_epi64(b, high, d));
    let (eg0, eg1) = (_mm512_permutex2var_epi64(e, low, g), _mm512_permutex2var_epi64(e, high, g));
    let (fh0, fh1) = (_mm512_permutex2var_epi64(f, low, h), _mm512_permutex2var_epi64(f, high, h));
    let first = _mm512_set_epi64(11, 10, 9, 8, 3, 2, 1, 0);
    let second = _mm512_set_epi64(15, 14, 13, 12, 7, 6, 5, 4);
    [
        _mm512_permutex2var_epi64(ac0, first, eg0),
        _mm512_permutex2var_epi64(bd0, first, fh0),
        _mm512_permutex2var_epi64(ac1, first, eg1),
        _mm512_permutex2var_epi64(bd1, first, fh1),
        _mm512_permutex2var_epi64(ac0, second, eg0),
        _mm512_permutex2var_epi64(bd0, second, fh0),
        _mm512_permutex2var_epi64(ac1, second, eg1),
        _mm512_permutex2var_epi64(bd1, second, fh1),
    ]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[u64; 8]) -> __m512i {
    // SAFETY: reads the 64 bytes of the array.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// Stores the elements of a vector.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn store(words: &mut [u64; 8], vector: __m512i) {
    // SAFETY: writes the 64 bytes of the array.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), vector) }
}

/// `a ^ b ^ c`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn chi(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0xd2>(a, b, c)
}
