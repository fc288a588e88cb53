//! The main loop of MD6's compression function, for words of any width: a feedback shift register of 89
//! words with 16 steps a round.

/// Words that the register holds: what one node begins with.
pub(super) const REGISTER: usize = 89;
/// Words that a round makes, and that a compression leaves.
pub(super) const ROUND: usize = 16;
/// Rounds between two moves of the register to the front of its buffer.
pub(super) const STRIDE: usize = 11;
/// Words of the buffer in which the register moves.
pub(super) const BUFFER: usize = REGISTER + STRIDE * ROUND;

/// The first round's constant.
pub(super) const FIRST: u64 = 0x0123_4567_89ab_cdef;

/// The constant of the round after the one with this constant.
pub(super) fn next_constant(s: u64) -> u64 {
    s.rotate_left(1) ^ (s & 0x7311_c281_2425_cfa0)
}

/// `$rounds` rounds on `$buffer`, whose first 89 words are the register; evaluates to its last 16 words.
/// `$splat` makes a vector of one word, `$and_xor` is `x ^ (a & b)`, `$right` and `$left` shift each word.
macro_rules! run {
    ($buffer:expr, $rounds:expr, $splat:expr, $xor3:ident, $and_xor:ident, $right:ident, $left:ident) => {{
        use super::steps::{BUFFER, FIRST, REGISTER, ROUND, STRIDE, next_constant};
        macro_rules! step {
            ($w:ident, $s:ident, $i:literal, $r:literal, $l:literal) => {{
                let x = $xor3($s, $w[$i], $w[$i + 89 - 17]);
                let x = $and_xor(x, $w[$i + 89 - 18], $w[$i + 89 - 21]);
                let x = $and_xor(x, $w[$i + 89 - 31], $w[$i + 89 - 67]);
                let x = $right::<$r>(x);
                $w[$i + 89] = $left::<$l>(x);
            }};
        }
        let buffer: &mut [_; BUFFER] = $buffer;
        let (mut left, mut s) = (usize::from($rounds), FIRST);
        loop {
            let now = left.min(STRIDE);
            for round in 0..now {
                let at = ROUND * round;
                let (w, _) = buffer[at..].split_first_chunk_mut::<{ REGISTER + ROUND }>().expect("in range"); // invariant: `at` is at most STRIDE - 1 rounds
                let c = $splat(s);
                step!(w, c, 0, 10, 11);
                step!(w, c, 1, 5, 24);
                step!(w, c, 2, 13, 9);
                step!(w, c, 3, 10, 16);
                step!(w, c, 4, 11, 15);
                step!(w, c, 5, 12, 9);
                step!(w, c, 6, 2, 27);
                step!(w, c, 7, 7, 15);
                step!(w, c, 8, 14, 6);
                step!(w, c, 9, 15, 2);
                step!(w, c, 10, 7, 29);
                step!(w, c, 11, 13, 8);
                step!(w, c, 12, 11, 15);
                step!(w, c, 13, 7, 5);
                step!(w, c, 14, 6, 31);
                step!(w, c, 15, 12, 9);
                s = next_constant(s);
            }
            left -= now;
            buffer.copy_within(ROUND * now..ROUND * now + REGISTER, 0);
            if left == 0 {
                break;
            }
        }
        let (_, last) = buffer[..REGISTER].split_last_chunk::<ROUND>().expect("in range"); // invariant: 16 is below 89
        *last
    }};
}

pub(super) use run;
