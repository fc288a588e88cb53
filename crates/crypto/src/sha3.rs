//! SHA-3 and SHAKE (FIPS 202).

use super::{keccak::Rounds, sponge::Sponge};

/// Domain byte of SHA-3: bits 01, then the first bit of the padding.
const SHA3_SUFFIX: u8 = 0x06;
/// Domain byte of SHAKE: bits 1111, then the first bit of the padding.
pub(super) const SHAKE_SUFFIX: u8 = 0x1f;

/// SHA3-224 of the concatenated `parts`.
pub fn sha3_224(parts: &[&[u8]]) -> [u8; 28] {
    hash(224, parts)
}

/// SHA3-256 of the concatenated `parts`.
pub fn sha3_256(parts: &[&[u8]]) -> [u8; 32] {
    hash(256, parts)
}

/// SHA3-384 of the concatenated `parts`.
pub fn sha3_384(parts: &[&[u8]]) -> [u8; 48] {
    hash(384, parts)
}

/// SHA3-512 of the concatenated `parts`.
pub fn sha3_512(parts: &[&[u8]]) -> [u8; 64] {
    hash(512, parts)
}

/// SHAKE128 of the concatenated `parts`, `out.len()` bytes.
pub fn shake128(parts: &[&[u8]], out: &mut [u8]) {
    sponge(128, parts).finish(SHAKE_SUFFIX, out);
}

/// SHAKE256 of the concatenated `parts`, `out.len()` bytes.
pub fn shake256(parts: &[&[u8]], out: &mut [u8]) {
    sponge(256, parts).finish(SHAKE_SUFFIX, out);
}

fn hash<const N: usize>(security: usize, parts: &[&[u8]]) -> [u8; N] {
    let mut out = [0; N];
    sponge(security, parts).finish(SHA3_SUFFIX, &mut out);
    out
}

fn sponge(security: usize, parts: &[&[u8]]) -> Sponge {
    let mut sponge = Sponge::new(security, Rounds::TwentyFour);
    parts.iter().for_each(|part| sponge.absorb(part));
    sponge
}
