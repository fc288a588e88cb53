//! cSHAKE and the encodings of SP 800-185. KMAC is in `mac`, which saves its keyed state.

use super::{keccak::Rounds, sha3, sponge::Sponge};

/// Domain byte of cSHAKE: bits 00, then the first bit of the padding.
pub(super) const CSHAKE_SUFFIX: u8 = 0x04;

/// cSHAKE128 of the concatenated `parts` with function name `name` and customisation `custom`.
pub fn cshake128(parts: &[&[u8]], name: &[u8], custom: &[u8], out: &mut [u8]) {
    cshake(128, parts, name, custom, out);
}

/// cSHAKE256 of the concatenated `parts` with function name `name` and customisation `custom`.
pub fn cshake256(parts: &[&[u8]], name: &[u8], custom: &[u8], out: &mut [u8]) {
    cshake(256, parts, name, custom, out);
}

fn cshake(security: usize, parts: &[&[u8]], name: &[u8], custom: &[u8], out: &mut [u8]) {
    let mut sponge = Sponge::new(security, Rounds::TwentyFour);
    // With empty name and customisation, cSHAKE is SHAKE (section 3.3).
    let plain = name.is_empty() && custom.is_empty();
    if !plain {
        absorb_padded(&mut sponge, &[name, custom]);
    }
    parts.iter().for_each(|part| sponge.absorb(part));
    sponge.finish(if plain { sha3::SHAKE_SUFFIX } else { CSHAKE_SUFFIX }, out);
}

/// An encoded integer: a buffer, with the start and end of the encoding.
pub(super) struct EncodedLength([u8; 9], usize, usize);

impl AsRef<[u8]> for EncodedLength {
    fn as_ref(&self) -> &[u8] {
        &self.0[self.1..self.2]
    }
}

/// `left_encode(x)`: the length of x in bytes (at least 1), then x, big-endian.
pub(super) fn left_encode(x: u64) -> EncodedLength {
    let mut bytes = [0; 9];
    bytes[1..].copy_from_slice(&x.to_be_bytes());
    let start = 8 - significant_bytes(x);
    bytes[start] = significant_bytes(x) as u8;
    EncodedLength(bytes, start, 9)
}

/// `right_encode(x)`: x, big-endian, then its length in bytes (at least 1).
pub(super) fn right_encode(x: u64) -> EncodedLength {
    let mut bytes = [0; 9];
    bytes[..8].copy_from_slice(&x.to_be_bytes());
    bytes[8] = significant_bytes(x) as u8;
    EncodedLength(bytes, 8 - significant_bytes(x), 9)
}

fn significant_bytes(x: u64) -> usize {
    (8 - x.leading_zeros() as usize / 8).max(1)
}

/// Absorbs `encode_string(s)`: the length of s in bits, then s.
pub(super) fn absorb_string(sponge: &mut Sponge, s: &[u8]) {
    sponge.absorb(left_encode(s.len() as u64 * 8).as_ref());
    sponge.absorb(s);
}

/// Absorbs `bytepad(encode_string(s1) || encode_string(s2) || ..., rate)`, starting at a block boundary.
pub(super) fn absorb_padded(sponge: &mut Sponge, strings: &[&[u8]]) {
    sponge.absorb(left_encode(sponge.rate() as u64).as_ref());
    strings.iter().for_each(|s| absorb_string(sponge, s));
    sponge.fill_block();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_encoded_as_in_section_2_3_1() {
        for (x, left, right) in [
            (0, &[1, 0][..], &[0, 1][..]),
            (168, &[1, 168], &[168, 1]),
            (255, &[1, 255], &[255, 1]),
            (256, &[2, 1, 0], &[1, 0, 2]),
            (0x01_0203, &[3, 1, 2, 3], &[1, 2, 3, 3]),
            (
                u64::MAX,
                &[8, 255, 255, 255, 255, 255, 255, 255, 255],
                &[255, 255, 255, 255, 255, 255, 255, 255, 8],
            ),
        ] {
            assert_eq!(left_encode(x).as_ref(), left, "{x}");
            assert_eq!(right_encode(x).as_ref(), right, "{x}");
        }
    }
}
