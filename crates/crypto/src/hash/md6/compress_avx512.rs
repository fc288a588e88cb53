//! Eight nodes in 512-bit vectors. Constant-time: no branch or address depends on a node's content.

use super::{
    super::lanes_avx512::{store, words, xor3},
    Md6,
    compress::{BLOCK, Node, VALUE, Value, prefix},
    steps::{REGISTER, RING, run},
};
use std::arch::x86_64::{
    __m512i, _mm512_set_epi64, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_slli_epi64, _mm512_srli_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

/// Whether this processor has the features that `compress` requires.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Compresses eight nodes.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn compress(md6: &Md6, nodes: &[Node; 8]) -> [Value; 8] {
    let mut ring = [_mm512_setzero_si512(); RING];
    let register = &mut ring[RING - REGISTER..];
    for (word, value) in register.iter_mut().zip(prefix(md6)) {
        *word = _mm512_set1_epi64(value as i64);
    }
    register[23] = vector(nodes.map(|node| node.id));
    register[24] = vector(nodes.map(|node| node.control));
    let swap =
        _mm512_set_epi64(SWAP_HIGH, SWAP_LOW, SWAP_HIGH, SWAP_LOW, SWAP_HIGH, SWAP_LOW, SWAP_HIGH, SWAP_LOW);
    let data = nodes.map(|node| &node.data[..]);
    for group in 0..BLOCK / 64 {
        for (word, row) in register[25 + 8 * group..].iter_mut().zip(words(data, 64 * group, 8)) {
            *word = _mm512_shuffle_epi8(row, swap);
        }
    }
    let splat = |s: u64| _mm512_set1_epi64(s as i64);
    let last: [__m512i; 16] = run!(&mut ring, md6.rounds, splat, xor3, and_xor, right, left);
    let mut values = [[0; VALUE]; 8];
    for (at, vector) in last.into_iter().enumerate() {
        let mut words = [0; 8];
        store(&mut words, vector);
        for (value, word) in values.iter_mut().zip(words) {
            value[8 * at..8 * at + 8].copy_from_slice(&word.to_be_bytes());
        }
    }
    values
}

/// Shuffle that reverses the bytes of each of two words.
const SWAP_LOW: i64 = 0x0001_0203_0405_0607;
const SWAP_HIGH: i64 = 0x0809_0a0b_0c0d_0e0f;

#[inline]
#[target_feature(enable = "avx512f")]
fn vector(w: [u64; 8]) -> __m512i {
    let w = w.map(|word| word as i64);
    _mm512_set_epi64(w[7], w[6], w[5], w[4], w[3], w[2], w[1], w[0])
}

#[inline]
#[target_feature(enable = "avx512f")]
fn and_xor(x: __m512i, a: __m512i, b: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x78>(x, a, b)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn right<const N: u32>(x: __m512i) -> __m512i {
    _mm512_xor_si512(x, _mm512_srli_epi64::<N>(x))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn left<const N: u32>(x: __m512i) -> __m512i {
    _mm512_xor_si512(x, _mm512_slli_epi64::<N>(x))
}
