//! MD6's compression function for many nodes: the dispatcher over the vector widths, and the portable
//! implementation. Constant-time: no branch or address depends on a node's content.

use super::{
    Md6,
    steps::{REGISTER, RING, run},
};
#[cfg(target_arch = "x86_64")]
use super::{compress_avx2, compress_avx512};

/// Size of a node's data in bytes: 64 words, big-endian.
pub const BLOCK: usize = 512;
/// Size of a node's result in bytes: 16 words, big-endian.
pub const VALUE: usize = 128;

/// The constant words of every node: the fractional part of the square root of six.
pub const Q: [u64; 15] = [
    0x7311_c281_2425_cfa0,
    0x6432_2864_34aa_c8e7,
    0xb604_50e9_ef68_b7c1,
    0xe8fb_2390_8d9f_06f1,
    0xdd2e_76cb_a691_e5bf,
    0x0cd0_d63b_2c30_bc41,
    0x1f8c_cf68_2305_8f8a,
    0x54e5_ed5b_88e3_775d,
    0x4ad1_2aae_0a6d_6031,
    0x3e7f_16bb_8822_2e0d,
    0x8af8_671d_3fb5_0c2c,
    0x995a_d117_8bd2_5c31,
    0xc878_c1dd_04c4_b633,
    0x3b72_066c_7a15_52ac,
    0x0d6f_3522_631e_ffcb,
];

/// A node to compress.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub data: &'a [u8; BLOCK],
    /// Level and index.
    pub id: u64,
    pub control: u64,
}

/// The result of a node.
pub type Value = [u8; VALUE];

/// The words at the start of every node of a hash: constant and key.
pub(super) fn prefix(md6: &Md6) -> [u64; 23] {
    std::array::from_fn(|i| if i < Q.len() { Q[i] } else { md6.key[i - Q.len()] })
}

/// Compresses the nodes with the fastest implementation for this machine.
pub(super) fn compress(md6: &Md6, nodes: &[Node]) -> Vec<Value> {
    let mut values = Vec::with_capacity(nodes.len());
    let mut nodes = nodes;
    #[cfg(target_arch = "x86_64")]
    {
        if compress_avx512::available() {
            nodes = groups::<8>(nodes, &mut values, |n| {
                // SAFETY: the required CPU features were just checked.
                unsafe { compress_avx512::compress(md6, n) }
            });
        } else if compress_avx2::available() {
            nodes = groups::<4>(nodes, &mut values, |n| {
                // SAFETY: the required CPU features were just checked.
                unsafe { compress_avx2::compress(md6, n) }
            });
        }
    }
    values.extend(nodes.iter().map(|node| compress_portable(md6, node)));
    values
}

/// Compresses `N` nodes at a time. The last group is filled up with copies of its last node, but a single
/// remaining node is returned instead.
#[cfg(target_arch = "x86_64")]
pub(super) fn groups<'a, 'b, const N: usize>(
    nodes: &'a [Node<'b>],
    values: &mut Vec<Value>,
    compress: impl Fn(&[Node<'b>; N]) -> [Value; N],
) -> &'a [Node<'b>] {
    let (groups, rest) = nodes.as_chunks::<N>();
    for group in groups {
        values.extend(compress(group));
    }
    if rest.len() < 2 {
        return rest;
    }
    let filled: [Node; N] = std::array::from_fn(|i| rest[i.min(rest.len() - 1)]);
    values.extend(compress(&filled).into_iter().take(rest.len()));
    &[]
}

/// The portable implementation.
pub(super) fn compress_portable(md6: &Md6, node: &Node) -> Value {
    let mut ring = [0; RING];
    let register = &mut ring[RING - REGISTER..];
    register[..23].copy_from_slice(&prefix(md6));
    register[23] = node.id;
    register[24] = node.control;
    for (word, bytes) in register[25..].iter_mut().zip(node.data.as_chunks::<8>().0) {
        *word = u64::from_be_bytes(*bytes);
    }
    let words: [u64; 16] = run!(&mut ring, md6.rounds, |s| s, xor3, and_xor, right, left);
    let mut value = [0; VALUE];
    for (bytes, word) in value.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
    value
}

fn xor3(a: u64, b: u64, c: u64) -> u64 {
    a ^ b ^ c
}

fn and_xor(x: u64, a: u64, b: u64) -> u64 {
    x ^ (a & b)
}

fn right<const N: u32>(x: u64) -> u64 {
    x ^ (x >> N)
}

fn left<const N: u32>(x: u64) -> u64 {
    x ^ (x << N)
}
