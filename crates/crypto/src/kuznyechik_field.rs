//! The constants of Kuznyechik (GOST R 34.12-2015, RFC 7801) and its arithmetic in GF(2^8). Constant-time.

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

/// The inverse of `PI`.
pub(super) const PI_INVERSE: [u8; 256] = {
    let mut inverse = [0; 256];
    let mut i = 0;
    while i < 256 {
        inverse[PI[i] as usize] = i as u8;
        i += 1;
    }
    inverse
};

/// Coefficients of the linear function l (section 4.1.2), for a_15 down to a_1; that of a_0 is 1. The
/// sequence is symmetric.
pub(super) const COEFFICIENTS: [u8; 15] = [148, 32, 133, 16, 194, 192, 1, 251, 1, 192, 194, 16, 133, 32, 148];

/// Product in GF(2^8) modulo x^8 + x^7 + x^6 + x + 1.
pub(super) const fn multiply(mut a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 8 {
        product ^= a & 0u8.wrapping_sub(b >> bit & 1);
        a = (a << 1) ^ (0xc3 & 0u8.wrapping_sub(a >> 7));
        bit += 1;
    }
    product
}

/// The value that one step of the shift register XORs onto the byte at `slot` of a block (byte 0 is a_15).
///
/// The register is not shifted here. The standard's step R (section 4.2) moves every byte by one position
/// and puts l of all bytes into the position that becomes free. After sixteen steps every byte would be
/// back in its position. Therefore each step can replace one byte in place, from the last one to the first,
/// and in the opposite order for the inverse.
pub(super) const fn feedback(block: &[u8; 16], slot: usize) -> u8 {
    let mut sum = 0;
    let mut i = 0;
    while i < 15 {
        sum ^= multiply(COEFFICIENTS[i], block[(slot + 1 + i) % 16]);
        i += 1;
    }
    sum
}

/// L of a block, or its inverse.
pub(super) const fn linear(mut block: [u8; 16], inverse: bool) -> [u8; 16] {
    let mut step = 0;
    while step < 16 {
        let slot = if inverse { step } else { 15 - step };
        block[slot] ^= feedback(&block, slot);
        step += 1;
    }
    block
}
