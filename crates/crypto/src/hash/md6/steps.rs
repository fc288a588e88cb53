//! The main loop of MD6's compression function, for words of any width: a feedback shift register of 89
//! words with 16 steps per round. It is a ring buffer, so words are never moved.

/// Number of words in the register, which is also the size of a node's input.
pub(super) const REGISTER: usize = 89;
/// Number of words that a round produces, which is also the size of a result.
pub(super) const ROUND: usize = 16;
/// Number of words in the ring: those of six rounds, so that rounds always start at the same six offsets.
pub(super) const RING: usize = 96;

/// The first round's constant.
pub(super) const FIRST: u64 = 0x0123_4567_89ab_cdef;

/// The constant of the round that follows the one with constant `s`.
pub(super) fn next_constant(s: u64) -> u64 {
    s.rotate_left(1) ^ (s & 0x7311_c281_2425_cfa0)
}

/// Runs `$rounds` rounds on `$ring`, whose last 89 words are the register. Evaluates to the last 16
/// words produced. `$splat` makes a vector from a word, `$and_xor` is `x ^ (a & b)`, `$right` and
/// `$left` shift each word.
macro_rules! run {
    ($ring:expr, $rounds:expr, $splat:expr, $xor3:ident, $and_xor:ident, $right:ident, $left:ident) => {{
        use super::steps::{FIRST, RING, ROUND, next_constant};
        let w: &mut [_; RING] = $ring;
        let (mut left, mut s) = (usize::from($rounds), FIRST);
        macro_rules! step {
            ($c:ident, $phase:literal, $i:literal, $r:literal, $l:literal) => {{
                const AT: usize = RING + ROUND * $phase + $i;
                let x = $xor3($c, w[(AT - 89) % RING], w[(AT - 17) % RING]);
                let x = $and_xor(x, w[(AT - 18) % RING], w[(AT - 21) % RING]);
                let x = $and_xor(x, w[(AT - 31) % RING], w[(AT - 67) % RING]);
                let x = $right::<$r>(x);
                w[AT % RING] = $left::<$l>(x);
            }};
        }
        macro_rules! round {
            ($phase:literal) => {{
                if left == 0 {
                    break;
                }
                left -= 1;
                let c = $splat(s);
                step!(c, $phase, 0, 10, 11);
                step!(c, $phase, 1, 5, 24);
                step!(c, $phase, 2, 13, 9);
                step!(c, $phase, 3, 10, 16);
                step!(c, $phase, 4, 11, 15);
                step!(c, $phase, 5, 12, 9);
                step!(c, $phase, 6, 2, 27);
                step!(c, $phase, 7, 7, 15);
                step!(c, $phase, 8, 14, 6);
                step!(c, $phase, 9, 15, 2);
                step!(c, $phase, 10, 7, 29);
                step!(c, $phase, 11, 13, 8);
                step!(c, $phase, 12, 11, 15);
                step!(c, $phase, 13, 7, 5);
                step!(c, $phase, 14, 6, 31);
                step!(c, $phase, 15, 12, 9);
                s = next_constant(s);
            }};
        }
        loop {
            round!(0);
            round!(1);
            round!(2);
            round!(3);
            round!(4);
            round!(5);
        }
        let end = (ROUND * usize::from($rounds)) % RING;
        let last = &w[(end + RING - ROUND) % RING..][..ROUND];
        *last.first_chunk::<ROUND>().expect("so many") // invariant: rounds begin at multiples of 16 words
    }};
}

pub(super) use run;
