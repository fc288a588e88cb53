//! Tables of Kuznyechik, built at compile time from the constants of RFC 7801.

/// Entry `[i][b]` is a whole block: what byte `b` at place `i` of the input becomes. Blocks are
/// little-endian numbers, so that byte 0 of the block (a_15 in the RFC) is the lowest.
pub(super) type Fused = [[u128; 256]; 16];

/// The substitution pi (section 4.1.1).
#[rustfmt::skip]
pub(super) const PI: [u8; 256] = [
    252, 238, 221, 17, 207, 110, 49, 22, 251, 196, 250, 218, 35, 197, 4, 77,
    233, 119, 240, 219, 147, 46, 153, 186, 23, 54, 241, 187, 20, 205, 95, 193,
    249, 24, 101, 90, 226, 92, 239, 33, 129, 28, 60, 66, 139, 1, 142, 79,
    5, 132, 2, 174, 227, 106, 143, 160, 6, 11, 237, 152, 127, 212, 211, 31,
    235, 52, 44, 81, 234, 200, 72, 171, 242, 42, 104, 162, 253, 58, 206, 204,
    181, 112, 14, 86, 8, 12, 118, 18, 191, 114, 19, 71, 156, 183, 93, 135,
    21, 161, 150, 41, 16, 123, 154, 199, 243, 145, 120, 111, 157, 158, 178, 177,
    50, 117, 25, 61, 255, 53, 138, 126, 109, 84, 198, 128, 195, 189, 13, 87,
    223, 245, 36, 169, 62, 168, 67, 201, 215, 121, 214, 246, 124, 34, 185, 3,
    224, 15, 236, 222, 122, 148, 176, 188, 220, 232, 40, 80, 78, 51, 10, 74,
    167, 151, 96, 115, 30, 0, 98, 68, 26, 184, 56, 130, 100, 159, 38, 65,
    173, 69, 70, 146, 39, 94, 85, 47, 140, 163, 165, 125, 105, 213, 149, 59,
    7, 88, 179, 64, 134, 172, 29, 247, 48, 55, 107, 228, 136, 217, 231, 137,
    225, 27, 131, 73, 76, 63, 248, 254, 141, 83, 170, 144, 202, 216, 133, 97,
    32, 113, 103, 164, 45, 43, 9, 91, 203, 155, 37, 208, 190, 229, 108, 82,
    89, 166, 116, 210, 230, 244, 180, 192, 209, 102, 175, 194, 57, 75, 99, 182,
];

/// Its inverse.
pub(super) const PI_INVERSE: [u8; 256] = {
    let mut inverse = [0; 256];
    let mut i = 0;
    while i < 256 {
        inverse[PI[i] as usize] = i as u8;
        i += 1;
    }
    inverse
};

/// L after S.
pub(super) static ENCRYPT: Fused = fuse(&linear_columns(false), &PI);
/// The inverse of L after the inverse of S.
pub(super) static DECRYPT: Fused = fuse(&linear_columns(true), &PI_INVERSE);

/// Coefficients of the linear function l (section 4.1.2), for a_15 down to a_0.
const COEFFICIENTS: [u8; 16] = [148, 32, 133, 16, 194, 192, 1, 251, 1, 192, 194, 16, 133, 32, 148, 1];

/// Product in GF(2^8) modulo x^8 + x^7 + x^6 + x + 1.
const fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b > 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = (a << 1) ^ if a & 0x80 == 0 { 0 } else { 0xc3 };
        b >>= 1;
    }
    product
}

/// The linear function l of a block.
const fn combine(block: &[u8; 16]) -> u8 {
    let mut sum = 0;
    let mut i = 0;
    while i < 16 {
        sum ^= multiply(COEFFICIENTS[i], block[i]);
        i += 1;
    }
    sum
}

/// L, or its inverse, of a block: sixteen steps R, or of its inverse (section 4.2).
const fn linear(mut block: [u8; 16], inverse: bool) -> [u8; 16] {
    let mut step = 0;
    while step < 16 {
        if inverse {
            // R moved a_15 .. a_1 down by one place and put l(a) on top: turn back, then l gives a_0.
            let top = block[0];
            let mut i = 0;
            while i < 15 {
                block[i] = block[i + 1];
                i += 1;
            }
            block[15] = top;
            block[15] = combine(&block);
        } else {
            let top = combine(&block);
            let mut i = 15;
            while i > 0 {
                block[i] = block[i - 1];
                i -= 1;
            }
            block[0] = top;
        }
        step += 1;
    }
    block
}

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
