//! Tables of Kuznyechik, built at compile time.

use super::kuznyechik_field::{PI, PI_INVERSE, linear};

/// Entry `[i][b]` is a whole block: what byte `b` at place `i` of the input becomes. Blocks are
/// little-endian numbers, so that byte 0 of the block (a_15 in the RFC) is the lowest.
pub(super) type Fused = [[u128; 256]; 16];

/// L after S.
pub(super) static ENCRYPT: Fused = fuse(&linear_columns(false), &PI);
/// The inverse of L after the inverse of S.
pub(super) static DECRYPT: Fused = fuse(&linear_columns(true), &PI_INVERSE);

/// L, or its inverse, of every block with a single bit: L is linear over bits.
const fn linear_columns(inverse: bool) -> [[u128; 8]; 16] {
    let mut columns = [[0; 8]; 16];
    let mut bit = 0;
    while bit < 128 {
        let mut block = [0; 16];
        block[bit / 8] = 1 << (bit % 8);
        columns[bit / 8][bit % 8] = u128::from_le_bytes(linear(block, inverse));
        bit += 1;
    }
    columns
}

const fn fuse(columns: &[[u128; 8]; 16], substitution: &[u8; 256]) -> Fused {
    let mut table = [[0; 256]; 16];
    let mut i = 0;
    while i < 16 * 256 {
        let value = substitution[i % 256];
        let mut bit = 0;
        while bit < 8 {
            if value >> bit & 1 == 1 {
                table[i / 256][i % 256] ^= columns[i / 256][bit];
            }
            bit += 1;
        }
        i += 1;
    }
    table
}
