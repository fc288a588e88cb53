//! The functions that compute all tags and digests of a vault.
//!
//! The input consists of a head, whose length depends only on the use, and data of any length. KMAC takes
//! head and data in one piece. `turboshake128x4` splits the data into lanes, which vectors and threads
//! process side by side. docs/format.md defines it and explains why it is secure.

use super::{
    hash::lanes::{self, Absorb},
    mac::{Mac, MacKey, MacUse, absorb_keys},
};
use crate::listed;
use std::sync::Arc;

/// Size of a lane in bytes: six blocks, including the end of the input.
pub const LANE: usize = 1000;
/// Maximum number of lanes. The rest of the data belongs to the final input.
pub const LANES: usize = 4;
/// Customisation string of the values of lanes.
const LANE_CUSTOM: &[u8] = b"warpcrypt v2 lane";

listed! {
    /// The integrity function of a vault.
    pub enum Integrity {
        /// KMAC128 (SP 800-185).
        Kmac128,
        /// KMAC256 (SP 800-185).
        Kmac256,
        /// Keyed TurboSHAKE128 (RFC 9861) over up to four lanes.
        TurboShake128x4,
    }
}

impl Integrity {
    /// The integrity function of new vaults: the fastest one.
    pub const DEFAULT: Integrity = Integrity::TurboShake128x4;

    /// Its name in a configuration, on the command line, and in the names of CUDA kernels.
    pub fn name(self) -> &'static str {
        match self {
            Integrity::Kmac128 => "kmac128",
            Integrity::Kmac256 => "kmac256",
            Integrity::TurboShake128x4 => "turboshake128x4",
        }
    }

    /// Looks up an integrity function by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|integrity| integrity.name() == name)
    }

    fn mac(self) -> Mac {
        match self {
            Integrity::Kmac128 => Mac::Kmac128,
            Integrity::Kmac256 => Mac::Kmac256,
            Integrity::TurboShake128x4 => Mac::TurboShake128,
        }
    }

    fn has_lanes(self) -> bool {
        match self {
            Integrity::Kmac128 | Integrity::Kmac256 => false,
            Integrity::TurboShake128x4 => true,
        }
    }
}

/// An integrity function with the customisation strings of its uses absorbed. Contains no secret.
pub struct IntegrityUses<const N: usize> {
    uses: [MacUse; N],
    lane: Option<MacUse>,
}

impl<const N: usize> IntegrityUses<N> {
    /// Absorbs the customisation strings.
    pub fn new(integrity: Integrity, customs: [&[u8]; N]) -> Self {
        let lane = integrity.has_lanes().then(|| MacUse::new(integrity.mac(), LANE_CUSTOM));
        IntegrityUses { uses: customs.map(|custom| MacUse::new(integrity.mac(), custom)), lane }
    }

    /// Absorbs two keys side by side: the first `FIRST` uses get the first key, all others the second one.
    pub fn keys<const FIRST: usize>(&self, [first, second]: [&[u8; 32]; 2]) -> [IntegrityKey; N] {
        let mut lanes =
            [first, second].map(|key| (self.lane.as_ref().map(|lane| Arc::new(lane.keyless())), key));
        let mut wholes = self.uses.each_ref().map(MacUse::keyless);
        let key_of = |place: usize| if place < FIRST { first } else { second };
        let of_wholes = wholes.iter_mut().enumerate().map(|(place, whole)| (whole, key_of(place)));
        let of_lanes = lanes.iter_mut().filter_map(|(lane, key)| Some((Arc::get_mut(lane.as_mut()?)?, *key)));
        absorb_keys(&mut of_wholes.chain(of_lanes).collect::<Vec<_>>());
        let mut place = 0;
        wholes.map(|whole| {
            let lane = lanes[usize::from(place >= FIRST)].0.clone();
            place += 1;
            IntegrityKey { whole, lane }
        })
    }
}

/// A key for one use of a vault's integrity function. Wiped on drop.
#[derive(Clone)]
pub struct IntegrityKey {
    /// Key of the final input.
    whole: MacKey,
    /// Key of the lanes, if the function has any.
    lane: Option<Arc<MacKey>>,
}

/// The input of a tag or digest.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The key for the use.
    pub key: &'a IntegrityKey,
    /// Its length depends only on the use.
    pub head: &'a [u8],
    /// Data of any length.
    pub data: &'a [u8],
}

impl IntegrityKey {
    /// Absorbs `key` and the customisation string `custom`.
    pub fn new(integrity: Integrity, key: &[u8; 32], custom: &[u8]) -> Self {
        let lane = integrity.has_lanes().then(|| Arc::new(MacKey::new(integrity.mac(), key, LANE_CUSTOM)));
        IntegrityKey { whole: MacKey::new(integrity.mac(), key, custom), lane }
    }

    /// The key of the final input, which is the whole input for a function without lanes.
    pub fn whole(&self) -> &MacKey {
        &self.whole
    }

    /// The key of the lanes, if the function has any.
    pub fn lane(&self) -> Option<&MacKey> {
        self.lane.as_deref()
    }

    /// Computes a 128-bit tag.
    pub fn tag(&self, head: &[u8], data: &[u8]) -> [u8; 16] {
        self.one(head, data)
    }

    /// Computes a 256-bit digest.
    pub fn digest(&self, head: &[u8], data: &[u8]) -> [u8; 32] {
        self.one(head, data)
    }

    /// Computes the 256-bit digests of several inputs (head and data), side by side.
    pub fn digests(&self, inputs: &[(&[u8], &[u8])]) -> Vec<[u8; 32]> {
        let inputs: Vec<Input> = inputs.iter().map(|(head, data)| Input { key: self, head, data }).collect();
        several(&inputs, lanes::absorb)
    }

    fn one<const N: usize>(&self, head: &[u8], data: &[u8]) -> [u8; N] {
        if self.lane.is_some() && data.len() >= LANE {
            return several(&[Input { key: self, head, data }], lanes::absorb)[0];
        }
        let mut out = [0; N];
        match self.lane {
            None => self.whole.mac(&[head, data], &mut out),
            Some(_) => self.whole.mac(&[data, head, &[0]], &mut out),
        }
        out
    }
}

/// Tags (`N` = 16) or digests (`N` = 32) of several inputs of the same function, side by side.
pub(super) fn several<const N: usize>(inputs: &[Input], absorb: Absorb) -> Vec<[u8; N]> {
    let cut: Vec<_> = inputs.iter().flat_map(Input::lanes).collect();
    let values: Vec<[u8; 32]> = MacKey::macs(&cut, absorb);
    let mut values = values.iter();
    let finals: Vec<_> = inputs.iter().map(|input| (&input.key.whole, input.last(&mut values))).collect();
    MacKey::macs(&finals, absorb)
}

impl<'a> Input<'a> {
    /// The input's lanes, each with its key.
    fn lanes(&self) -> impl Iterator<Item = (&'a MacKey, &'a [u8])> + use<'a> {
        let (key, data) = (self.key, self.data);
        key.lane.iter().flat_map(|key| data.chunks_exact(LANE).take(LANES).map(|lane| (&**key, lane)))
    }

    /// The final input. Takes the values of the input's lanes from `values`.
    fn last<'v>(&self, values: &mut impl Iterator<Item = &'v [u8; 32]>) -> Vec<u8> {
        if self.key.lane.is_none() {
            return [self.head, self.data].concat();
        }
        let count = (self.data.len() / LANE).min(LANES);
        let rest = &self.data[count * LANE..];
        let mut input = Vec::with_capacity(rest.len() + 32 * count + self.head.len() + 1);
        input.extend_from_slice(rest);
        values.take(count).for_each(|value| input.extend_from_slice(value));
        input.extend_from_slice(self.head);
        input.push(count as u8);
        input
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: [u8; 30] = [7; 30];

    fn data(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 89 + i / 256) as u8).collect()
    }

    /// The definition of docs/format.md, using only MACs over whole messages.
    fn by_definition(
        integrity: Integrity,
        key: &[u8; 32],
        custom: &[u8],
        head: &[u8],
        data: &[u8],
    ) -> [u8; 32] {
        let mac = |custom: &[u8]| MacKey::new(integrity.mac(), key, custom);
        match integrity {
            Integrity::Kmac128 | Integrity::Kmac256 => mac(custom).digest(&[head, data]),
            Integrity::TurboShake128x4 => {
                let count = (data.len() / 1000).min(4);
                let (lanes, rest) = data.split_at(1000 * count);
                let values: Vec<u8> =
                    lanes.chunks(1000).flat_map(|lane| mac(b"warpcrypt v2 lane").digest(&[lane])).collect();
                mac(custom).digest(&[rest, &values, head, &[count as u8]])
            }
        }
    }

    #[test]
    fn digests_are_those_of_the_definition_at_every_edge() {
        let edges = (0..6).flat_map(|n| [1000 * n, 1000 * n + 1, 1000 * n + 96]);
        let lengths: Vec<usize> = edges.chain([31, 999, 1999, 2048, 2999, 3999, 4095, 8192]).collect();
        for integrity in Integrity::ALL {
            let key = IntegrityKey::new(integrity, &[5; 32], b"test");
            let messages: Vec<Vec<u8>> = lengths.iter().map(|len| data(*len)).collect();
            let each: Vec<[u8; 32]> = messages
                .iter()
                .map(|data| by_definition(integrity, &[5; 32], b"test", &HEAD, data))
                .collect();
            for (message, digest) in messages.iter().zip(&each) {
                assert_eq!(key.digest(&HEAD, message), *digest, "{integrity:?}, {}", message.len());
            }
            for count in [0, 1, 2, 5, 9, messages.len()] {
                let inputs: Vec<(&[u8], &[u8])> =
                    messages[..count].iter().map(|message| (&HEAD[..], &message[..])).collect();
                assert_eq!(key.digests(&inputs), each[..count]);
            }
        }
    }

    #[test]
    fn keys_of_several_uses_are_those_of_each() {
        for integrity in Integrity::ALL {
            let uses = IntegrityUses::new(integrity, [b"one", b"two", b"three"]);
            let made = uses.keys::<2>([&[1; 32], &[2; 32]]);
            let alone = [(b"one" as &[u8], 1), (b"two", 1), (b"three", 2)]
                .map(|(custom, byte)| IntegrityKey::new(integrity, &[byte; 32], custom));
            for (made, alone) in made.iter().zip(&alone) {
                assert_eq!(made.digest(&HEAD, &data(2500)), alone.digest(&HEAD, &data(2500)));
            }
        }
    }

    /// Digests differ if bytes move between lanes, rest and head, and if values of lanes take the
    /// place of data.
    #[test]
    fn no_two_ways_of_cutting_meet() {
        let key = IntegrityKey::new(Integrity::TurboShake128x4, &[5; 32], b"test");
        let lane = key.lane().expect("has lanes");
        let message = data(2000);
        let values: Vec<u8> = message.chunks(LANE).flat_map(|part| lane.digest(&[part])).collect();
        let swapped = [&message[LANE..], &message[..LANE]].concat();
        let digests = [
            key.digest(&HEAD, &message),
            key.digest(&HEAD, &values),
            key.digest(&HEAD, &swapped),
            key.digest(&HEAD, &[&message[..], &[0]].concat()),
            key.digest(&HEAD, &message[..LANE]),
            key.digest(&HEAD, &values[..32]),
        ];
        for (at, digest) in digests.iter().enumerate() {
            assert!(!digests[..at].contains(digest), "{at}");
        }
    }
}
