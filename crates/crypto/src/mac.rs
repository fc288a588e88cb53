//! Keyed Keccak: the MACs of the format, with their keyed state computed once.

use super::{
    hash::lanes::{self, Absorb, Job},
    keccak::{KeccakState, Rounds},
    sp800_185::{CSHAKE_SUFFIX, absorb_padded, left_encode, right_encode},
    sponge::Sponge,
    traces,
};
use zeroize::Zeroizing;

/// Domain byte of keyed TurboSHAKE128. No other use of TurboSHAKE here or in RFC 9861 has it.
const TURBOSHAKE_MAC_DOMAIN: u8 = 0x4d;

/// First string in the prefix of keyed TurboSHAKE128.
const TURBOSHAKE_MAC_NAME: &[u8] = b"warpcrypt TurboSHAKE MAC";

/// Bytes of stack that computing the MAC of one message uses, including the registers that the permutation
/// spills. The test in `traces` found parts of the key up to 600 bytes below the caller's frame.
const ALONE_STACK: usize = 2 << 10;
/// Bytes of stack that computing the MACs of several messages side by side uses. The test found parts of the
/// keys up to 8,300 bytes below.
pub(super) const ABSORB_STACK: usize = 12 << 10;

/// A MAC function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mac {
    /// KMAC128 (SP 800-185).
    Kmac128,
    /// KMAC256 (SP 800-185).
    Kmac256,
    /// TurboSHAKE128 (RFC 9861), keyed as [`MacKey`] defines.
    TurboShake128,
}

/// A MAC function with the customisation string of one use absorbed. MAC keys for that use start from it.
/// Contains no secret.
#[derive(Clone)]
pub struct MacUse {
    begun: Sponge,
    suffix: u8,
}

/// Maximum rate in bytes.
const RATE_MAX: usize = 168;

impl MacUse {
    /// Absorbs the customisation string `custom`.
    pub fn new(mac: Mac, custom: &[u8]) -> Self {
        let (security, rounds, name, suffix) = match mac {
            Mac::Kmac128 => (128, Rounds::TwentyFour, &b"KMAC"[..], CSHAKE_SUFFIX),
            Mac::Kmac256 => (256, Rounds::TwentyFour, &b"KMAC"[..], CSHAKE_SUFFIX),
            Mac::TurboShake128 => (128, Rounds::Twelve, TURBOSHAKE_MAC_NAME, TURBOSHAKE_MAC_DOMAIN),
        };
        let mut begun = Sponge::new(security, rounds);
        absorb_padded(&mut begun, &[name, custom]);
        MacUse { begun, suffix }
    }

    /// Absorbs `key`.
    pub fn key(&self, key: &[u8]) -> MacKey {
        let mut keyed = self.begun.clone();
        absorb_padded(&mut keyed, &[key]);
        MacKey { keyed, suffix: self.suffix }
    }

    /// A key that has absorbed only the customisation string. `absorb_keys` absorbs the key.
    pub(super) fn keyless(&self) -> MacKey {
        MacKey { keyed: self.begun.clone(), suffix: self.suffix }
    }
}

/// Absorbs a key into each `MacKey`, all side by side. They must share a function. Works in place, because
/// moving a key leaves a copy behind that is not wiped.
pub(super) fn absorb_keys(made: &mut [(&mut MacKey, &[u8; 32])]) {
    let Some((first, _)) = made.first() else { return };
    let (rate, rounds) = first.shape();
    debug_assert!(made.iter().all(|(one, _)| one.shape() == (rate, rounds)));
    let mut blocks = Zeroizing::new(vec![[0; RATE_MAX]; made.len()].into_boxed_slice());
    blocks.iter_mut().zip(&*made).for_each(|(block, (_, key))| pad_key(block, rate, key));
    let mut jobs: Vec<Job> = made
        .iter_mut()
        .zip(&*blocks)
        .map(|((key, _), block)| Job {
            state: key.keyed.between_blocks_mut(),
            data: &block[..rate],
            end: &[],
        })
        .collect();
    lanes::absorb(&mut jobs, rate, rounds);
}

/// Writes `bytepad(encode_string(key), rate)`, which is one block. `block` must be zeros.
fn pad_key(block: &mut [u8], rate: usize, key: &[u8; 32]) {
    let mut end = 0;
    for part in [left_encode(rate as u64).as_ref(), left_encode(256).as_ref(), key] {
        block[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
}

/// A key and a customisation string, absorbed: each MAC starts from the saved state of the sponge.
/// Wiped on drop.
///
/// KMAC128 and KMAC256 are those of SP 800-185, section 4. The saved state is the one after
/// `bytepad(encode_string("KMAC") || encode_string(custom), rate) || bytepad(encode_string(key), rate)`.
///
/// Keyed TurboSHAKE128 has the same structure. With the encodings of SP 800-185, a key K, a customisation
/// string S, an input X and an output of L bits, it is the first L bits of `TurboSHAKE128(M, D)` with the
/// domain byte D = 0x4d and
///
/// ```text
/// M = bytepad(encode_string("warpcrypt TurboSHAKE MAC") || encode_string(S), 168)
///     || bytepad(encode_string(K), 168) || X || right_encode(L)
/// ```
#[derive(Clone)]
pub struct MacKey {
    keyed: Sponge,
    suffix: u8,
}

impl MacKey {
    /// Absorbs `key` and the customisation string `custom`.
    pub fn new(mac: Mac, key: &[u8], custom: &[u8]) -> Self {
        MacUse::new(mac, custom).key(key)
    }

    /// Computes the MAC of the concatenated `parts`, `out.len()` bytes long. As in KMAC, the length is
    /// part of the input.
    pub fn mac(&self, parts: &[&[u8]], out: &mut [u8]) {
        self.mac_alone(parts, out);
        traces::wipe_stack::<ALONE_STACK>();
    }

    #[inline(never)] // its frame has copies of the state, so it must be below the caller's
    fn mac_alone(&self, parts: &[&[u8]], out: &mut [u8]) {
        let mut sponge = self.keyed.clone();
        parts.iter().for_each(|part| sponge.absorb(part));
        sponge.absorb(right_encode(out.len() as u64 * 8).as_ref());
        sponge.finish(self.suffix, out);
    }

    /// Whether the two use the same function, and so can be computed side by side.
    pub(super) fn is_like(&self, other: &MacKey) -> bool {
        self.shape() == other.shape() && self.suffix == other.suffix
    }

    /// Rate in bytes, and number of rounds.
    pub(super) fn shape(&self) -> (usize, Rounds) {
        (self.keyed.rate(), self.keyed.between_blocks().1)
    }

    /// The keyed state, at a block boundary, from which implementations outside this module continue. As
    /// secret as the key.
    pub fn state(&self) -> &KeccakState {
        self.keyed.between_blocks().0
    }

    /// The end of a message, before the padding, for a MAC of `bytes` bytes: the encoded length and the
    /// domain byte. The second value is its length.
    pub(super) fn end(&self, bytes: usize) -> ([u8; 4], usize) {
        let encoded = right_encode(bytes as u64 * 8);
        let len = encoded.as_ref().len();
        let mut end = [self.suffix; 4];
        end[..len].copy_from_slice(encoded.as_ref());
        (end, len + 1)
    }

    /// Completes a message of `len` bytes, followed by zeros, for a 128-bit tag: appends the encoded tag
    /// length, the domain byte and the padding. Returns the length, a multiple of the rate.
    pub(super) fn pad(&self, message: &mut [u8], len: usize) -> usize {
        let (end, end_len) = self.end(16);
        message[len..len + end_len].copy_from_slice(&end[..end_len]);
        let padded = (len + end_len).next_multiple_of(self.keyed.rate());
        message[padded - 1] ^= 0x80;
        padded
    }

    /// Computes a 128-bit tag.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut out = [0; 16];
        self.mac(parts, &mut out);
        out
    }

    /// MACs of `N` bytes (16 or 32) of several messages, side by side. The keys must use the same function;
    /// keys and customisation strings may differ.
    pub(super) fn macs<const N: usize>(
        messages: &[(&MacKey, impl AsRef<[u8]>)],
        absorb: Absorb,
    ) -> Vec<[u8; N]> {
        let Some((first, _)) = messages.first() else { return Vec::new() };
        debug_assert!(messages.iter().all(|(key, _)| key.is_like(first)));
        let ((rate, rounds), (end, end_len)) = (first.shape(), first.end(N));
        // A boxed slice, because wiping a `Vec` goes over its memory twice, the second time byte by byte.
        let mut states: Zeroizing<Box<[KeccakState]>> =
            Zeroizing::new(messages.iter().map(|(key, _)| *key.state()).collect());
        let mut jobs: Vec<Job> = states
            .iter_mut()
            .zip(messages)
            .map(|(state, (_, message))| Job { state, data: message.as_ref(), end: &end[..end_len] })
            .collect();
        absorb(&mut jobs, rate, rounds);
        traces::wipe_stack::<ABSORB_STACK>();
        let mac = |state: &KeccakState| {
            let mut bytes = [0; N];
            bytes
                .as_chunks_mut()
                .0
                .iter_mut()
                .zip(state)
                .for_each(|(eight, lane)| *eight = lane.to_le_bytes());
            bytes
        };
        states.iter().map(mac).collect()
    }

    /// Computes a 256-bit digest.
    pub fn digest(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut out = [0; 32];
        self.mac(parts, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any number of keys absorbed side by side equal those absorbed one by one.
    #[test]
    fn keys_of_several_uses_are_those_of_each() {
        for mac in [Mac::Kmac128, Mac::Kmac256, Mac::TurboShake128] {
            for count in [0, 1, 5, 9] {
                let customs: Vec<String> = (0..count).map(|n| format!("use {n}")).collect();
                let keys: Vec<[u8; 32]> =
                    (0..count).map(|n| std::array::from_fn(|i| (7 * n + i) as u8)).collect();
                let uses: Vec<MacUse> = customs.iter().map(|c| MacUse::new(mac, c.as_bytes())).collect();
                let mut made: Vec<MacKey> = uses.iter().map(MacUse::keyless).collect();
                absorb_keys(&mut made.iter_mut().zip(&keys).collect::<Vec<_>>());
                for ((made, key), custom) in made.iter().zip(&keys).zip(&customs) {
                    let alone = MacKey::new(mac, key, custom.as_bytes());
                    assert_eq!(made.state(), alone.state());
                    assert_eq!(made.tag(&[b"message"]), alone.tag(&[b"message"]));
                }
            }
        }
    }
}
