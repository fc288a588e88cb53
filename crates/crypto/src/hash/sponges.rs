//! SHA-3 and SHAKE over many messages at once.

use super::{
    digest::Digest,
    lanes::{self, Job},
};
use crate::keccak::{KeccakState, Rounds};

/// A hash function that consists of a single sponge, with a digest not longer than its rate.
#[derive(Debug, Clone)]
pub(super) struct LaneSponge {
    /// Rate in bytes.
    rate: usize,
    /// Domain byte.
    end: &'static [u8],
    bits: u16,
}

impl LaneSponge {
    /// SHA-3 with a digest of `bits` bits.
    pub(super) fn sha3(bits: u16) -> Self {
        LaneSponge { rate: 200 - usize::from(bits) / 4, end: &[0x06], bits }
    }

    /// SHAKE with a security of 128 or 256 bits, and a digest of `bits` bits, at most its rate.
    pub(super) fn shake(security: u16, bits: u16) -> Self {
        LaneSponge { rate: 200 - usize::from(security) / 4, end: &[0x1f], bits }
    }

    fn digest(&self, state: &KeccakState) -> Digest {
        squeeze(state, self.bits)
    }
}

/// The first `bits` bits of a state: at most 512, and at most its rate.
pub(super) fn squeeze(state: &KeccakState, bits: u16) -> Digest {
    let mut bytes = [0; 64];
    for (bytes, lane) in bytes.chunks_mut(8).zip(state) {
        bytes.copy_from_slice(&lane.to_le_bytes());
    }
    Digest::new(bits, &bytes)
}

/// The digest of each message.
pub(super) fn digests(sponge: &LaneSponge, messages: &[&[u8]]) -> Vec<Digest> {
    let mut states = vec![[0; 25]; messages.len()];
    let job = |(state, &data)| Job { state, data, end: sponge.end };
    let mut jobs: Vec<Job> = states.iter_mut().zip(messages).map(job).collect();
    lanes::absorb(&mut jobs, sponge.rate, Rounds::TwentyFour);
    states.iter().map(|state| sponge.digest(state)).collect()
}

/// A message that is hashed sequentially, part by part.
#[derive(Clone)]
pub struct Serial {
    sponge: LaneSponge,
    state: KeccakState,
}

/// The next part of a message.
pub struct Piece<'a> {
    /// The message that the part belongs to.
    pub serial: &'a mut Serial,
    /// Content of the part: a multiple of `Serial::block` in length, unless it is the last one.
    pub data: &'a [u8],
    /// Whether the message ends here.
    pub last: bool,
}

impl Serial {
    pub(super) fn new(sponge: LaneSponge) -> Self {
        Serial { sponge, state: [0; 25] }
    }

    /// The length of a part must be a multiple of this many bytes, except for the last one.
    pub fn block(&self) -> usize {
        self.sponge.rate
    }

    /// Absorbs the next parts of several messages, which must use the same function.
    pub fn advance(pieces: &mut [Piece]) {
        let Some(first) = pieces.first() else { return };
        let (rate, end) = (first.serial.sponge.rate, first.serial.sponge.end);
        let mut jobs: Vec<Job> = pieces
            .iter_mut()
            .map(|piece| {
                let end: &[u8] = if piece.last { end } else { &[] };
                Job { state: &mut piece.serial.state, data: piece.data, end }
            })
            .collect();
        lanes::absorb(&mut jobs, rate, Rounds::TwentyFour);
    }

    /// The digest, after the last part was absorbed.
    pub fn digest(&self) -> Digest {
        self.sponge.digest(&self.state)
    }
}
