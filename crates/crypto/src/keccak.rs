//! `Keccak-p[1600]` (FIPS 202, section 3): the permutation, and the dispatch to its implementations.

#[cfg(target_arch = "x86_64")]
use super::{keccak_bmi, keccak_vl};

/// The state: 25 lanes, with lane (x, y) at index `x + 5 * y`.
pub type KeccakState = [u64; 25];

/// The number of rounds of a permutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounds {
    /// The last 12 rounds, `Keccak-p[1600, 12]`, for TurboSHAKE.
    Twelve,
    /// All 24 rounds, `Keccak-f[1600]`, for SHA-3 and SP 800-185.
    TwentyFour,
}

impl Rounds {
    /// The round constants.
    #[inline(always)]
    pub(super) fn constants(self) -> &'static [u64] {
        match self {
            Rounds::Twelve => &ROUND_CONSTANTS[12..],
            Rounds::TwentyFour => &ROUND_CONSTANTS,
        }
    }
}

/// Round constants of iota.
const ROUND_CONSTANTS: [u64; 24] = [
    0x0000_0000_0000_0001,
    0x0000_0000_0000_8082,
    0x8000_0000_0000_808a,
    0x8000_0000_8000_8000,
    0x0000_0000_0000_808b,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8009,
    0x0000_0000_0000_008a,
    0x0000_0000_0000_0088,
    0x0000_0000_8000_8009,
    0x0000_0000_8000_000a,
    0x0000_0000_8000_808b,
    0x8000_0000_0000_008b,
    0x8000_0000_0000_8089,
    0x8000_0000_0000_8003,
    0x8000_0000_0000_8002,
    0x8000_0000_0000_0080,
    0x0000_0000_0000_800a,
    0x8000_0000_8000_000a,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8080,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8008,
];

/// Permutes `state` with the fastest implementation for this machine.
pub fn permute(state: &mut KeccakState, rounds: Rounds) {
    #[cfg(target_arch = "x86_64")]
    {
        if keccak_vl::available() {
            // SAFETY: the required CPU features were just checked.
            return unsafe { keccak_vl::permute(state, rounds) };
        }
        if keccak_bmi::available() {
            // SAFETY: the required CPU features were just checked.
            return unsafe { keccak_bmi::permute(state, rounds) };
        }
    }
    permute_portable(state, rounds);
}

/// The portable implementation. Constant-time: no branch or address depends on the state.
pub fn permute_portable(state: &mut KeccakState, rounds: Rounds) {
    rounds_of(state, rounds);
}

/// The rounds, inlined so that every variant compiles them for its instruction set.
#[inline(always)]
pub(super) fn rounds_of(state: &mut KeccakState, rounds: Rounds) {
    for pair in rounds.constants().chunks_exact(2) {
        *state = round(&round(state, pair[0]), pair[1]);
    }
}

/// One round with the five step mappings merged: each output row takes its five lanes, XORed by theta,
/// rotated by rho and moved by pi, and applies chi to them.
#[inline(always)]
fn round(a: &KeccakState, constant: u64) -> KeccakState {
    let c = [
        a[0] ^ a[5] ^ a[10] ^ a[15] ^ a[20],
        a[1] ^ a[6] ^ a[11] ^ a[16] ^ a[21],
        a[2] ^ a[7] ^ a[12] ^ a[17] ^ a[22],
        a[3] ^ a[8] ^ a[13] ^ a[18] ^ a[23],
        a[4] ^ a[9] ^ a[14] ^ a[19] ^ a[24],
    ];
    let d = [
        c[4] ^ c[1].rotate_left(1),
        c[0] ^ c[2].rotate_left(1),
        c[1] ^ c[3].rotate_left(1),
        c[2] ^ c[4].rotate_left(1),
        c[3] ^ c[0].rotate_left(1),
    ];
    let lane = |x: usize, y: usize, offset: u32| (a[x + 5 * y] ^ d[x]).rotate_left(offset);
    let rows = [
        [lane(0, 0, 0), lane(1, 1, 44), lane(2, 2, 43), lane(3, 3, 21), lane(4, 4, 14)],
        [lane(3, 0, 28), lane(4, 1, 20), lane(0, 2, 3), lane(1, 3, 45), lane(2, 4, 61)],
        [lane(1, 0, 1), lane(2, 1, 6), lane(3, 2, 25), lane(4, 3, 8), lane(0, 4, 18)],
        [lane(4, 0, 27), lane(0, 1, 36), lane(1, 2, 10), lane(2, 3, 15), lane(3, 4, 56)],
        [lane(2, 0, 62), lane(3, 1, 55), lane(4, 2, 39), lane(0, 3, 41), lane(1, 4, 2)],
    ];
    let mut out = [0; 25];
    for y in 0..5 {
        let b = rows[y];
        out[5 * y] = b[0] ^ (!b[1] & b[2]);
        out[5 * y + 1] = b[1] ^ (!b[2] & b[3]);
        out[5 * y + 2] = b[2] ^ (!b[3] & b[4]);
        out[5 * y + 3] = b[3] ^ (!b[4] & b[0]);
        out[5 * y + 4] = b[4] ^ (!b[0] & b[1]);
    }
    out[0] ^= constant;
    out
}
