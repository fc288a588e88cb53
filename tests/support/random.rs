//! Random numbers from a printed seed, so that a failure can be repeated (`SEED=…`).

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Seeded from the environment variable `SEED`, or from the clock. `what` names the test in the output.
    pub fn new(what: &str) -> Random {
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
        let seed = super::setting("SEED").unwrap_or_else(clock);
        super::say(format_args!("{what}: SEED={seed}"));
        super::failure::note_seed(seed);
        Random(seed)
    }

    /// Seeded with a number.
    pub fn from_seed(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `limit` - 1; 0 for a limit of 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// One of the elements.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// True with probability 1 in `n`.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for piece in out.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            piece.copy_from_slice(&bytes[..piece.len()]);
        }
    }

    /// Random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.fill(&mut out);
        out
    }
}
