//! The sponge construction (FIPS 202, section 4) over `Keccak-p[1600]`, with pad10*1.

use super::keccak::{self, KeccakState, Rounds};
use zeroize::Zeroize;

/// A sponge in its absorbing phase. Wiped on drop.
#[derive(Clone)]
pub struct Sponge {
    state: KeccakState,
    rounds: Rounds,
    /// Number of bytes of the state that take input.
    rate: usize,
    /// Bytes absorbed since the last permutation; below `rate`.
    position: usize,
}

impl Sponge {
    /// An empty sponge with `security` bits (128, 224, 256, 384 or 512). Its capacity is twice that.
    pub fn new(security: usize, rounds: Rounds) -> Self {
        Sponge { state: [0; 25], rounds, rate: 200 - security / 4, position: 0 }
    }

    /// Rate: the number of bytes absorbed per permutation.
    pub fn rate(&self) -> usize {
        self.rate
    }

    /// The state at a block boundary, and the number of rounds.
    pub(super) fn between_blocks(&self) -> (&KeccakState, Rounds) {
        debug_assert_eq!(self.position, 0);
        (&self.state, self.rounds)
    }

    /// The state at a block boundary, for callers that absorb whole blocks by other means.
    pub(super) fn between_blocks_mut(&mut self) -> &mut KeccakState {
        debug_assert_eq!(self.position, 0);
        &mut self.state
    }

    /// Absorbs `data`.
    pub fn absorb(&mut self, data: &[u8]) {
        let free = self.rate - self.position;
        if data.len() < free {
            self.mix(data);
            return;
        }
        let (head, rest) = data.split_at(if self.position == 0 { 0 } else { free });
        if !head.is_empty() {
            self.mix(head);
            self.permute();
        }
        let blocks = rest.chunks_exact(self.rate);
        let tail = blocks.remainder();
        for block in blocks {
            mix_lanes(&mut self.state, block);
            self.permute();
        }
        self.mix(tail);
    }

    /// Fills a partial block with zeros (`bytepad` of SP 800-185).
    pub fn fill_block(&mut self) {
        if self.position > 0 {
            self.permute();
        }
    }

    /// Pads with the domain byte `suffix` (suffix bits and the first bit of pad10*1), and squeezes `out`.
    pub fn finish(mut self, suffix: u8, out: &mut [u8]) {
        self.mix(&[suffix]);
        self.state[self.rate / 8 - 1] ^= 0x80 << 56;
        self.permute();
        let mut parts = out.chunks_mut(self.rate).peekable();
        while let Some(part) = parts.next() {
            for (bytes, lane) in part.chunks_mut(8).zip(&self.state) {
                bytes.copy_from_slice(&lane.to_le_bytes()[..bytes.len()]);
            }
            if parts.peek().is_some() {
                self.permute();
            }
        }
    }

    fn permute(&mut self) {
        keccak::permute(&mut self.state, self.rounds);
        self.position = 0;
    }

    /// XORs `data` onto the state at `position`. It must fit into the block.
    fn mix(&mut self, data: &[u8]) {
        let ragged = (self.position.next_multiple_of(8) - self.position).min(data.len());
        let (head, lanes) = data.split_at(ragged);
        for &byte in head {
            self.state[self.position / 8] ^= u64::from(byte) << (8 * (self.position % 8));
            self.position += 1;
        }
        mix_lanes(&mut self.state[self.position / 8..], lanes);
        self.position += lanes.len();
    }
}

/// XORs `data` onto lanes, little-endian. The last lane may be partial.
fn mix_lanes(lanes: &mut [u64], data: &[u8]) {
    let (whole, rest) = data.as_chunks::<8>();
    for (lane, bytes) in lanes.iter_mut().zip(whole) {
        *lane ^= u64::from_le_bytes(*bytes);
    }
    for (i, &byte) in rest.iter().enumerate() {
        lanes[whole.len()] ^= u64::from(byte) << (8 * i);
    }
}

impl Drop for Sponge {
    fn drop(&mut self) {
        self.state.zeroize();
    }
}
