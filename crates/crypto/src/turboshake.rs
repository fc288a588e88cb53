//! TurboSHAKE (RFC 9861): SHAKE with twelve rounds and a selectable domain byte.

use super::{keccak::Rounds, sponge::Sponge};

/// TurboSHAKE128 of the concatenated `parts`, `out.len()` bytes; `domain` is 0x01 to 0x7f.
pub fn turboshake128(parts: &[&[u8]], domain: u8, out: &mut [u8]) {
    turboshake(128, parts, domain, out);
}

/// TurboSHAKE256 of the concatenated `parts`, `out.len()` bytes; `domain` is 0x01 to 0x7f.
pub fn turboshake256(parts: &[&[u8]], domain: u8, out: &mut [u8]) {
    turboshake(256, parts, domain, out);
}

fn turboshake(security: usize, parts: &[&[u8]], domain: u8, out: &mut [u8]) {
    let mut sponge = Sponge::new(security, Rounds::Twelve);
    parts.iter().for_each(|part| sponge.absorb(part));
    sponge.finish(domain, out);
}
