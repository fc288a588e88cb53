//! KangarooTwelve: KT128 of RFC 9861 without customisation, with 32 bytes of output.
//!
//! The message, followed by the length of the customisation (one zero byte), is split into chunks of 8 KiB.
//! Every chunk except the first is a leaf, hashed to 32 bytes. The final node consists of the first chunk
//! and these hashes.

use super::{
    digest::Digest,
    lanes::{self, Job},
    sponges::squeeze,
};
use crate::{
    keccak::{KeccakState, Rounds},
    sp800_185::right_encode,
};

/// Size of a chunk in bytes.
const CHUNK: usize = 8192;
/// Size of a leaf's hash (chaining value) in bytes.
const CV: usize = 32;
/// Rate of TurboSHAKE128 in bytes.
const RATE: usize = 168;
/// Size of a part in bytes.
pub(super) const PART: usize = 128 * CHUNK;
/// Separator between the first chunk and the leaves.
const AFTER_FIRST: [u8; 8] = [3, 0, 0, 0, 0, 0, 0, 0];

/// Domain bytes of RFC 9861, section 3.2. At the end of a message they follow the length of the
/// customisation.
const LEAF: &[u8] = &[0x0b];
const LAST_LEAF: &[u8] = &[0x00, 0x0b];
const FINAL: &[u8] = &[0x06];
const ONLY: &[u8] = &[0x00, 0x07];

/// The digest of each message.
pub(super) fn digests(messages: &[&[u8]]) -> Vec<Digest> {
    // A message that fits into one chunk together with its end byte has no tree.
    let long: Vec<&[u8]> = messages.iter().copied().filter(|message| message.len() >= CHUNK).collect();
    let cvs = leaves(&long.iter().map(|message| (&message[CHUNK..], true)).collect::<Vec<_>>());
    let node = |(message, cvs): (&&[u8], &Vec<u8>)| {
        let mut node = [&message[..CHUNK], &AFTER_FIRST, cvs].concat();
        append_count(&mut node, cvs.len() as u64);
        node
    };
    let nodes: Vec<Vec<u8>> = long.iter().zip(&cvs).map(node).collect();
    let mut node = nodes.iter();
    let mut states: Vec<KeccakState> = vec![[0; 25]; messages.len()];
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

/// The concatenated leaf hashes of each message. If the message ends here, its end byte is part of the last
/// leaf, which may contain nothing else. Otherwise all leaves are whole.
fn leaves(messages: &[(&[u8], bool)]) -> Vec<Vec<u8>> {
    let count = |&(data, ends): &(&[u8], bool)| data.len() / CHUNK + usize::from(ends);
    let mut states: Vec<KeccakState> = vec![[0; 25]; messages.iter().map(count).sum()];
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

/// Completes a final node whose leaf hashes have `len` bytes in total.
fn append_count(node: &mut Vec<u8>, len: u64) {
    node.extend_from_slice(right_encode(len / CV as u64).as_ref());
    node.extend_from_slice(&[0xff, 0xff]);
}

/// The piece of the final node from part number `index` of a message with at least two parts.
pub(super) fn part(index: u64, data: &[u8], last: bool) -> Vec<u8> {
    let begin = if index == 0 { CHUNK.min(data.len()) } else { 0 };
    let mut piece = if index == 0 { [&data[..begin], &AFTER_FIRST].concat() } else { Vec::new() };
    for cvs in leaves(&[(&data[begin..], last)]) {
        piece.extend_from_slice(&cvs);
    }
    piece
}

/// The final node of a message in parts, absorbed as far as it is known.
pub struct K12Join {
    state: KeccakState,
    /// Bytes not yet absorbed: less than a block.
    pending: Vec<u8>,
    /// Number of bytes taken so far.
    len: u64,
}

impl K12Join {
    pub(super) fn new() -> Self {
        K12Join { state: [0; 25], pending: Vec::new(), len: 0 }
    }

    /// Adds the piece of the next part.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.len += piece.len() as u64;
        self.pending.extend_from_slice(piece);
        let whole = self.pending.len() - self.pending.len() % RATE;
        self.absorb(whole, &[]);
    }

    /// The digest of the message.
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
