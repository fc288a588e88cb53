//! KangarooTwelve: KT128 of RFC 9861 without customisation, 32 bytes of output.
//!
//! The message, followed by the customisation's length (one zero byte), is cut in chunks of 8 KiB. Every
//! chunk but the first is a leaf, hashed to 32 bytes; the final node is the first chunk and all of those.

use super::{
    digest::Digest,
    lanes::{self, Job},
    sponges::squeeze,
};
use crate::crypto::{
    keccak::{Rounds, State},
    sp800_185::right_encode,
};

/// Bytes of a chunk.
const CHUNK: usize = 8192;
/// Bytes of a leaf's hash.
const CV: usize = 32;
/// Rate of TurboSHAKE128 in bytes.
const RATE: usize = 168;
/// Bytes of a part.
pub(super) const PART: usize = 128 * CHUNK;
/// Between the first chunk and the leaves.
const AFTER_FIRST: [u8; 8] = [3, 0, 0, 0, 0, 0, 0, 0];

/// The domain bytes of RFC 9861, section 3.2; where a message ends, its customisation's length comes before.
const LEAF: &[u8] = &[0x0b];
const LAST_LEAF: &[u8] = &[0x00, 0x0b];
const FINAL: &[u8] = &[0x06];
const ONLY: &[u8] = &[0x00, 0x07];

/// The digests of these messages.
pub(super) fn digests(messages: &[&[u8]]) -> Vec<Digest> {
    // A message and its end of one byte that fit into one chunk have no node.
    let long: Vec<&[u8]> = messages.iter().copied().filter(|message| message.len() >= CHUNK).collect();
    let cvs = leaves(&long.iter().map(|message| (&message[CHUNK..], true)).collect::<Vec<_>>());
    let node = |(message, cvs): (&&[u8], &Vec<u8>)| {
        let mut node = [&message[..CHUNK], &AFTER_FIRST, cvs].concat();
        append_count(&mut node, cvs.len() as u64);
        node
    };
    let nodes: Vec<Vec<u8>> = long.iter().zip(&cvs).map(node).collect();
    let mut node = nodes.iter();
    let mut states: Vec<State> = vec![[0; 25]; messages.len()];
    let mut jobs = Vec::with_capacity(messages.len());
    for (state, message) in states.iter_mut().zip(messages) {
        let long = if message.len() >= CHUNK { node.next() } else { None };
        jobs.push(match long {
            Some(node) => Job { state, data: node, end: FINAL },
            None => Job { state, data: message, end: ONLY },
        });
    }
    lanes::absorb(&mut jobs, RATE, Rounds::Twelve);
    states.iter().map(|state| squeeze(state, 256)).collect()
}

/// The hashes of each message's leaves, joined. A message that ends has the byte of its end in its last
/// leaf, which may hold nothing else; another has whole leaves.
fn leaves(messages: &[(&[u8], bool)]) -> Vec<Vec<u8>> {
    let count = |&(data, ends): &(&[u8], bool)| data.len() / CHUNK + usize::from(ends);
    let mut states: Vec<State> = vec![[0; 25]; messages.iter().map(count).sum()];
    let mut state = states.iter_mut();
    let mut jobs = Vec::with_capacity(state.len());
    for message in messages {
        for (leaf, state) in state.by_ref().take(count(message)).enumerate() {
            let rest = &message.0[leaf * CHUNK..];
            let end = if rest.len() < CHUNK { LAST_LEAF } else { LEAF };
            jobs.push(Job { state, data: &rest[..rest.len().min(CHUNK)], end });
        }
    }
    lanes::absorb(&mut jobs, RATE, Rounds::Twelve);
    let mut hashes = states.iter().map(|state| squeeze(state, 256));
    let of = |message| hashes.by_ref().take(count(message)).flat_map(|h| h.bytes().to_vec()).collect();
    messages.iter().map(of).collect()
}

/// Ends a node whose leaves' hashes have `len` bytes.
fn append_count(node: &mut Vec<u8>, len: u64) {
    node.extend_from_slice(right_encode(len / CV as u64).as_ref());
    node.extend_from_slice(&[0xff, 0xff]);
}

/// The piece of the final node that comes from part number `index` of a message of at least two parts.
pub(super) fn part(index: u64, data: &[u8], last: bool) -> Vec<u8> {
    let begin = if index == 0 { CHUNK.min(data.len()) } else { 0 };
    let mut piece = if index == 0 { [&data[..begin], &AFTER_FIRST].concat() } else { Vec::new() };
    for cvs in leaves(&[(&data[begin..], last)]) {
        piece.extend_from_slice(&cvs);
    }
    piece
}

/// The final node of a message in parts, as far as it is known.
pub struct Join {
    state: State,
    /// What is not absorbed yet: less than a block.
    pending: Vec<u8>,
    /// Bytes taken.
    len: u64,
}

impl Join {
    pub(super) fn new() -> Self {
        Join { state: [0; 25], pending: Vec::new(), len: 0 }
    }

    /// Takes the piece of the next part.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.len += piece.len() as u64;
        self.pending.extend_from_slice(piece);
        let whole = self.pending.len() - self.pending.len() % RATE;
        self.absorb(whole, &[]);
    }

    /// The digest.
    pub(super) fn finish(mut self) -> Digest {
        append_count(&mut self.pending, self.len - (CHUNK + AFTER_FIRST.len()) as u64);
        self.absorb(self.pending.len(), FINAL);
        squeeze(&self.state, 256)
    }

    fn absorb(&mut self, len: usize, end: &'static [u8]) {
        let job = Job { state: &mut self.state, data: &self.pending[..len], end };
        lanes::absorb(&mut [job], RATE, Rounds::Twelve);
        self.pending.drain(..len);
    }
}
