//! Keyed Keccak: the MACs of the format, their keyed state computed once.

use super::{
    hash::lanes::{self, Job},
    keccak::{Rounds, State},
    listed::listed,
    sp800_185::{CSHAKE_SUFFIX, absorb_padded, left_encode, right_encode},
    sponge::Sponge,
};
use zeroize::Zeroizing;

/// Domain byte of the keyed TurboSHAKE128; no other use of TurboSHAKE here or in RFC 9861 has it.
const TURBOSHAKE_MAC_DOMAIN: u8 = 0x4d;

/// First string of the keyed TurboSHAKE128's prefix.
const TURBOSHAKE_MAC_NAME: &[u8] = b"warpcrypt TurboSHAKE MAC";

listed! {
    /// The function behind every tag and digest of a vault.
    pub enum Integrity {
        /// KMAC128 (SP 800-185).
        Kmac128,
        /// KMAC256 (SP 800-185).
        Kmac256,
        /// TurboSHAKE128 (RFC 9861), keyed as `MacKey` defines.
        TurboShake128,
    }
}

impl Integrity {
    /// Its name in a vault's configuration, on the command line and in the names of CUDA kernels.
    pub fn name(self) -> &'static str {
        match self {
            Integrity::Kmac128 => "kmac128",
            Integrity::Kmac256 => "kmac256",
            Integrity::TurboShake128 => "turboshake128",
        }
    }

    /// The function of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|integrity| integrity.name() == name)
    }
}

/// A function and a customisation string, absorbed: where the MAC keys of one use begin. Holds no secret.
#[derive(Clone)]
pub struct MacUse {
    begun: Sponge,
    suffix: u8,
}

/// Bytes of the longest block.
const RATE_MAX: usize = 168;

impl MacUse {
    /// Absorbs the customisation string `custom`.
    pub fn new(integrity: Integrity, custom: &[u8]) -> Self {
        let (security, rounds, name, suffix) = match integrity {
            Integrity::Kmac128 => (128, Rounds::TwentyFour, &b"KMAC"[..], CSHAKE_SUFFIX),
            Integrity::Kmac256 => (256, Rounds::TwentyFour, &b"KMAC"[..], CSHAKE_SUFFIX),
            Integrity::TurboShake128 => (128, Rounds::Twelve, TURBOSHAKE_MAC_NAME, TURBOSHAKE_MAC_DOMAIN),
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

    /// Absorbs a key for each of some uses of one function, all at once.
    pub fn keys<const N: usize>(uses: &[MacUse; N], keys: [&[u8; 32]; N]) -> [MacKey; N] {
        let (rate, rounds) = (uses[0].begun.rate(), uses[0].begun.between_blocks().1);
        debug_assert!(
            uses.iter().all(|one| one.begun.rate() == rate && one.begun.between_blocks().1 == rounds)
        );
        let mut made = uses.each_ref().map(|one| MacKey { keyed: one.begun.clone(), suffix: one.suffix });
        let mut blocks = Zeroizing::new([[0; RATE_MAX]; N]);
        blocks.iter_mut().zip(keys).for_each(|(block, key)| pad_key(block, rate, key));
        let mut jobs: [Job; N] = {
            let mut states = made.iter_mut().map(|key| key.keyed.between_blocks_mut()).zip(&*blocks);
            std::array::from_fn(|_| {
                let (state, block) = states.next().expect("one a use"); // invariant: there are N of each
                Job { state, data: &block[..rate], end: &[] }
            })
        };
        lanes::absorb(&mut jobs, rate, rounds);
        made
    }
}

/// `bytepad(encode_string(key), rate)`, which is one block; `block` is zeros.
fn pad_key(block: &mut [u8], rate: usize, key: &[u8; 32]) {
    let mut end = 0;
    for part in [left_encode(rate as u64).as_ref(), left_encode(256).as_ref(), key] {
        block[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
}

/// A key and a customisation string, absorbed: each MAC starts from the saved sponge state. Wiped on drop.
///
/// KMAC128 and KMAC256 are those of SP 800-185, section 4; the saved state is the one after
/// `bytepad(encode_string("KMAC") || encode_string(custom), rate) || bytepad(encode_string(key), rate)`.
///
/// Keyed TurboSHAKE128 has the same shape. With the encodings of SP 800-185, a key K, a customisation
/// string S, an input X and an output of L bits, it is the first L bits of `TurboSHAKE128(M, D)` with
/// the domain byte D = 0x4d and
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
    pub fn new(integrity: Integrity, key: &[u8], custom: &[u8]) -> Self {
        MacUse::new(integrity, custom).key(key)
    }

    /// MAC of the concatenated `parts`, `out.len()` bytes long (the length is part of the input, as in KMAC).
    pub fn mac(&self, parts: &[&[u8]], out: &mut [u8]) {
        let mut sponge = self.keyed.clone();
        parts.iter().for_each(|part| sponge.absorb(part));
        sponge.absorb(right_encode(out.len() as u64 * 8).as_ref());
        sponge.finish(self.suffix, out);
    }

    /// Whether the two differ in nothing but their keys.
    pub(super) fn is_like(&self, other: &MacKey) -> bool {
        self.shape() == other.shape() && self.suffix == other.suffix
    }

    /// Rate in bytes, and the permutation.
    pub(super) fn shape(&self) -> (usize, Rounds) {
        (self.keyed.rate(), self.keyed.between_blocks().1)
    }

    /// The keyed state, at the start of a block: what another implementation goes on from. As secret as
    /// the key.
    pub fn state(&self) -> &State {
        self.keyed.between_blocks().0
    }

    /// What follows a message that a 128-bit tag is made of, before the padding: the encoded tag length and the
    /// domain byte.
    pub(super) fn end(&self) -> [u8; 3] {
        let mut end = [0, 0, self.suffix];
        end[..2].copy_from_slice(right_encode(128).as_ref());
        end
    }

    /// Completes a message of `len` bytes, zeros behind it, for a 128-bit tag: the encoded tag length, the
    /// domain byte and the padding. Returns the length, a multiple of the rate.
    pub(super) fn pad(&self, message: &mut [u8], len: usize) -> usize {
        let end = self.end();
        message[len..len + end.len()].copy_from_slice(&end);
        let padded = (len + end.len()).next_multiple_of(self.keyed.rate());
        message[padded - 1] ^= 0x80;
        padded
    }

    /// 128-bit tag.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut out = [0; 16];
        self.mac(parts, &mut out);
        out
    }

    /// 256-bit digests of several messages, computed side by side.
    pub fn digests(&self, messages: &[impl AsRef<[u8]>]) -> Vec<[u8; 32]> {
        let (rate, rounds) = self.shape();
        let mut end = [self.suffix; 4];
        end[..3].copy_from_slice(right_encode(256).as_ref());
        let mut states = Zeroizing::new(vec![*self.state(); messages.len()]);
        let states_and_messages = states.iter_mut().zip(messages);
        let mut jobs: Vec<Job> = states_and_messages
            .map(|(state, message)| Job { state, data: message.as_ref(), end: &end })
            .collect();
        lanes::absorb(&mut jobs, rate, rounds);
        let digest = |state: &State| std::array::from_fn(|i| state[i / 8].to_le_bytes()[i % 8]);
        states.iter().map(digest).collect()
    }

    /// 256-bit digest.
    pub fn digest(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut out = [0; 32];
        self.mac(parts, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_several_messages_are_those_of_each() {
        for integrity in Integrity::ALL {
            let key = MacKey::new(integrity, &[5; 32], b"test");
            for count in [0, 1, 2, 5, 9] {
                let messages: Vec<Vec<u8>> = (0..count).map(|n| vec![n as u8; 700 * n + 1]).collect();
                let each: Vec<[u8; 32]> = messages.iter().map(|message| key.digest(&[message])).collect();
                assert_eq!(key.digests(&messages), each);
            }
        }
    }

    /// Keys that are absorbed side by side are those that are absorbed one by one, any number of them.
    #[test]
    fn keys_of_several_uses_are_those_of_each() {
        fn check<const N: usize>(integrity: Integrity) {
            let customs: [String; N] = std::array::from_fn(|n| format!("use {n}"));
            let keys: [[u8; 32]; N] = std::array::from_fn(|n| std::array::from_fn(|i| (7 * n + i) as u8));
            let uses = customs.each_ref().map(|custom| MacUse::new(integrity, custom.as_bytes()));
            for ((made, key), custom) in MacUse::keys(&uses, keys.each_ref()).iter().zip(&keys).zip(&customs)
            {
                let alone = MacKey::new(integrity, key, custom.as_bytes());
                assert_eq!(made.state(), alone.state());
                assert_eq!(made.tag(&[b"message"]), alone.tag(&[b"message"]));
            }
        }
        for integrity in Integrity::ALL {
            check::<1>(integrity);
            check::<5>(integrity);
            check::<9>(integrity);
        }
    }
}
