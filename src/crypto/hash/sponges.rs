//! SHA-3 and SHAKE of many messages at once.

use super::{
    digest::Digest,
    lanes::{self, Job},
};
use crate::crypto::keccak::{Rounds, State};

/// A hash by one sponge, whose digest is squeezed at once.
#[derive(Debug, Clone)]
pub(super) struct Sponge {
    /// Bytes absorbed by one permutation.
    rate: usize,
    /// The domain byte.
    end: &'static [u8],
    bits: u16,
}

impl Sponge {
    /// SHA-3 with a digest of `bits`.
    pub(super) fn sha3(bits: u16) -> Self {
        Sponge { rate: 200 - usize::from(bits) / 4, end: &[0x06], bits }
    }

    /// SHAKE of a security of 128 or 256 bits with a digest of `bits`, at most its rate.
    pub(super) fn shake(security: u16, bits: u16) -> Self {
        Sponge { rate: 200 - usize::from(security) / 4, end: &[0x1f], bits }
    }

    fn digest(&self, state: &State) -> Digest {
        squeeze(state, self.bits)
    }
}

/// The first `bits` of a state, at most 512 and at most its rate.
pub(super) fn squeeze(state: &State, bits: u16) -> Digest {
    let mut bytes = [0; 64];
    for (bytes, lane) in bytes.chunks_mut(8).zip(state) {
        bytes.copy_from_slice(&lane.to_le_bytes());
    }
    Digest::new(bits, &bytes)
}

/// The digests of these messages.
pub(super) fn digests(sponge: &Sponge, messages: &[&[u8]]) -> Vec<Digest> {
    let mut states = vec![[0; 25]; messages.len()];
    let job = |(state, &data)| Job { state, data, end: sponge.end };
    let mut jobs: Vec<Job> = states.iter_mut().zip(messages).map(job).collect();
    lanes::absorb(&mut jobs, sponge.rate, Rounds::TwentyFour);
    states.iter().map(|state| sponge.digest(state)).collect()
}

/// A message that is hashed one part after the other.
#[derive(Clone)]
pub struct Serial {
    sponge: Sponge,
    state: State,
}

/// The next part of a message.
pub struct Piece<'a> {
    /// Whose.
    pub serial: &'a mut Serial,
    /// Its bytes: a multiple of `Serial::block`, unless it is the last part.
    pub data: &'a [u8],
    /// Whether the message ends here.
    pub last: bool,
}

impl Serial {
    pub(super) fn new(sponge: Sponge) -> Self {
        Serial { sponge, state: [0; 25] }
    }

    /// Parts have a multiple of so many bytes, but for the last one.
    pub fn block(&self) -> usize {
        self.sponge.rate
    }

    /// Takes the next parts of several messages of the same function at once.
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

    /// The digest, once the last part is in.
    pub fn digest(&self) -> Digest {
        self.sponge.digest(&self.state)
    }
}
