//! Four nodes in 256-bit vectors. Constant-time: no branch or address depends on a node's content.

use super::{
    super::lanes_avx2::{store, words, xor3},
    Md6,
    compress::{BLOCK, Node, VALUE, Value, prefix},
    steps::{REGISTER, RING, run},
};
use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_set_epi64x, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_slli_epi64, _mm256_srli_epi64, _mm256_xor_si256,
};

/// Whether this processor has the features that `compress` requires.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Compresses four nodes.
#[target_feature(enable = "avx2")]
pub(super) fn compress(md6: &Md6, nodes: &[Node; 4]) -> [Value; 4] {
    let mut ring = [_mm256_setzero_si256(); RING];
    let register = &mut ring[RING - REGISTER..];
    for (word, value) in register.iter_mut().zip(prefix(md6)) {
        *word = _mm256_set1_epi64x(value as i64);
    }
    register[23] = vector(nodes.map(|node| node.id));
    register[24] = vector(nodes.map(|node| node.control));
    let swap = _mm256_set_epi64x(SWAP_HIGH, SWAP_LOW, SWAP_HIGH, SWAP_LOW);
    let data = nodes.map(|node| &node.data[..]);
    for group in 0..BLOCK / 32 {
        for (word, row) in register[25 + 4 * group..].iter_mut().zip(words(data, 32 * group, 4)) {
            *word = _mm256_shuffle_epi8(row, swap);
        }
    }
    let splat = |s: u64| _mm256_set1_epi64x(s as i64);
    let last: [__m256i; 16] = run!(&mut ring, md6.rounds, splat, xor3, and_xor, right, left);
    let mut values = [[0; VALUE]; 4];
    for (at, vector) in last.into_iter().enumerate() {
        let mut words = [0; 4];
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
#[target_feature(enable = "avx2")]
fn vector(w: [u64; 4]) -> __m256i {
    let w = w.map(|word| word as i64);
    _mm256_set_epi64x(w[3], w[2], w[1], w[0])
}

#[inline]
#[target_feature(enable = "avx2")]
fn and_xor(x: __m256i, a: __m256i, b: __m256i) -> __m256i {
    _mm256_xor_si256(x, _mm256_and_si256(a, b))
}

#[inline]
#[target_feature(enable = "avx2")]
fn right<const N: i32>(x: __m256i) -> __m256i {
    _mm256_xor_si256(x, _mm256_srli_epi64::<N>(x))
}

#[inline]
#[target_feature(enable = "avx2")]
fn left<const N: i32>(x: __m256i) -> __m256i {
    _mm256_xor_si256(x, _mm256_slli_epi64::<N>(x))
}
