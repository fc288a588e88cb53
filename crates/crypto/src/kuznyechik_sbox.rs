//! The substitution pi of Kuznyechik and its inverse as circuits. They process as many bytes at once as a
//! word has bits; word `k` contains bit `k` of all bytes. There are no tables and no branches.
//!
//! Over GF(2^4), pi has a short description (Biryukov, Perrin, Udovenko, "Reverse-Engineering the S-Box of
//! Streebog, Kuznyechik and STRIBOBr1", 2016; Perrin, "Partitions in the S-Box of Streebog and Kuznyechik",
//! 2019). Write x = u + v θ in GF(2^8), as a plane over GF(2^4), modulo x^8 + x^4 + x^3 + x^2 + 1. The
//! result is an affine map of two nibbles:
//!
//! ```text
//! a = pole(u) if v = 0, else point(u / v)        b = turn(v * scale(u / v))
//! ```
//!
//! That is, a is the number of the point on the projective line that x belongs to, and b is the position on
//! it. GF(2^4) is taken modulo x^4 + x + 1; bit `i` of a nibble is the coefficient of x^i.

use std::ops::{BitAnd, BitOr, BitXor, Not};

/// A word with one bit of each of many bytes.
pub(super) trait Word:
    Copy + BitXor<Output = Self> + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self>
{
}

impl Word for u16 {}
impl Word for u64 {}

/// Applies pi to every byte.
#[inline(always)]
pub(super) fn substitute<W: Word>(x: [W; 8]) -> [W; 8] {
    let x15 = x[1] ^ x[5];
    let u = [x15 ^ x[0] ^ x[3], x[7] ^ x[4] ^ x[1], x[7], x[6] ^ x[1]];
    let v = [x[7] ^ x[3] ^ x[1], x[6] ^ x[5] ^ x[2], x[5], x[7] ^ x[4]];
    let ratio = multiply(u, invert(v));
    let at_pole = !(v[0] | v[1] | v[2] | v[3]);
    let (pole, point) = (pole(u), point(ratio));
    let a = choose(at_pole, pole, point);
    let b = turn(multiply(v, scale(ratio)));
    [
        b[0] ^ b[2],
        a[0] ^ a[1] ^ b[1],
        !(a[1] ^ a[2] ^ b[1] ^ b[3]),
        !(b[1] ^ b[2]),
        !(a[0] ^ a[3] ^ b[2]),
        !(a[1] ^ a[2] ^ a[3]),
        !(b[1] ^ b[3]),
        !b[2],
    ]
}

/// Applies the inverse of pi to every byte.
#[inline(always)]
pub(super) fn substitute_inverse<W: Word>(y: [W; 8]) -> [W; 8] {
    let (y45, y67, y37) = (y[4] ^ y[5], y[6] ^ y[7], y[3] ^ y[7]);
    let a = [
        !(y[2] ^ y45 ^ y67),
        !(y[1] ^ y[2] ^ y[3] ^ y45 ^ y[6]),
        !(y[1] ^ y[3] ^ y45),
        !(y[2] ^ y[5] ^ y[6]),
    ];
    let b = [!(y[0] ^ y[7]), y37, !y[7], !(y37 ^ y[6])];
    let v = multiply(turn_back(b), scale_back(a));
    let at_pole = !(b[0] | b[1] | b[2] | b[3]);
    let (pole, other) = (pole_back(a), multiply(point_back(a), v));
    let u = choose(at_pole, pole, other);
    let u1v3 = u[1] ^ v[3];
    [
        u[0] ^ u[2] ^ v[0] ^ v[2],
        u1v3,
        u1v3 ^ u[3] ^ v[1] ^ v[2],
        u1v3 ^ u[2] ^ v[0],
        u[2] ^ v[3],
        v[2],
        u1v3 ^ u[3],
        u[2],
    ]
}

/// Selects `a` where `first` is set, otherwise `b`.
#[inline(always)]
fn choose<W: Word>(first: W, a: [W; 4], b: [W; 4]) -> [W; 4] {
    [
        b[0] ^ ((a[0] ^ b[0]) & first),
        b[1] ^ ((a[1] ^ b[1]) & first),
        b[2] ^ ((a[2] ^ b[2]) & first),
        b[3] ^ ((a[3] ^ b[3]) & first),
    ]
}

/// Multiplies in GF(2^4).
#[inline(always)]
fn multiply<W: Word>(a: [W; 4], b: [W; 4]) -> [W; 4] {
    let x4 = (a[1] & b[3]) ^ (a[2] & b[2]) ^ (a[3] & b[1]);
    let x5 = (a[2] & b[3]) ^ (a[3] & b[2]);
    let x6 = a[3] & b[3];
    [
        (a[0] & b[0]) ^ x4,
        (a[0] & b[1]) ^ (a[1] & b[0]) ^ x4 ^ x5,
        (a[0] & b[2]) ^ (a[1] & b[1]) ^ (a[2] & b[0]) ^ x5 ^ x6,
        (a[0] & b[3]) ^ (a[1] & b[2]) ^ (a[2] & b[1]) ^ (a[3] & b[0]) ^ x6,
    ]
}

/// Inverts in GF(2^4); 0 becomes 0.
#[inline(always)]
fn invert<W: Word>([x0, x1, x2, x3]: [W; 4]) -> [W; 4] {
    let t0 = x3 | x2;
    let t1 = x1 ^ t0;
    let t2 = x0 & t1;
    let t3 = x2 ^ t2;
    let t4 = x3 ^ t3;
    let t5 = t1 | x2;
    let t6 = x0 ^ t5;
    let t7 = x3 & !t6;
    let t8 = t1 ^ t7;
    let t9 = x1 | t4;
    let t10 = t8 & !t9;
    let t11 = t6 ^ t10;
    let t12 = t8 & !t4;
    let t13 = x2 ^ t12;
    let t14 = t1 ^ t13;
    [t11, t14, t4, t8]
}

/// Number of the point that u belongs to if v = 0.
#[inline(always)]
fn pole<W: Word>([x0, x1, x2, x3]: [W; 4]) -> [W; 4] {
    let t0 = x2 & !x3;
    let t1 = x0 ^ t0;
    let t2 = x1 & !t1;
    let t3 = x2 ^ t2;
    let t4 = x3 & t2;
    let t5 = x1 & !x2;
    let t6 = x0 & !t5;
    let t7 = t4 | t6;
    let t8 = x1 ^ t6;
    let t9 = t1 & !t8;
    let t10 = t3 | x2;
    let t11 = x3 ^ t10;
    let t12 = t9 ^ t11;
    let t13 = t12 | t7;
    let t14 = t1 ^ t13;
    [t7, t12, t3, t14]
}

/// Number of the point with the ratio u / v.
#[inline(always)]
fn point<W: Word>([x0, x1, x2, x3]: [W; 4]) -> [W; 4] {
    let t0 = !x0;
    let t1 = x3 & x2;
    let t2 = t0 & !t1;
    let t3 = x1 ^ t2;
    let t4 = t3 ^ x3;
    let t5 = x0 & !x2;
    let t6 = t4 ^ t5;
    let t7 = t1 ^ t6;
    let t8 = t0 ^ t7;
    let t9 = t8 ^ x2;
    let t10 = t0 & !x3;
    let t11 = t9 ^ t10;
    [t8, t3, t11, t6]
}

/// The factor for v, as a function of u / v; never 0.
#[inline(always)]
fn scale<W: Word>([x0, x1, x2, x3]: [W; 4]) -> [W; 4] {
    let t0 = x0 ^ x2;
    let t1 = x1 & x3;
    let t2 = x2 | t1;
    let t3 = t2 & !t0;
    let t4 = x3 & !x0;
    let t5 = x1 ^ t4;
    let t6 = t3 | t5;
    let t7 = t1 ^ t6;
    let t8 = t7 ^ t0;
    let t9 = !t5;
    let t10 = t8 | t9;
    let t11 = t2 ^ t8;
    let t12 = t9 | t4;
    let t13 = t11 ^ t12;
    [t10, t7, t3, t13]
}

/// A permutation that maps 0 to 0.
#[inline(always)]
fn turn<W: Word>([x0, x1, x2, x3]: [W; 4]) -> [W; 4] {
    let t0 = x3 | x0;
    let t1 = x0 | x2;
    let t2 = x3 ^ t1;
    let t3 = x1 | t2;
    let t4 = x2 ^ t3;
    let t5 = t2 & !x2;
    let t6 = x0 ^ t5;
    let t7 = x1 & !t6;
    let t8 = x2 ^ t7;
    let t9 = t6 & !x1;
    let t10 = t8 | t5;
    let t11 = t0 ^ t10;
    let t12 = t9 | t11;
    let t13 = t3 & x3;
    let t14 = t11 | t7;
    let t15 = t13 ^ t14;
    [t4, t15, t8, t12]
}

/// Inverse of `pole`.
#[inline(always)]
fn pole_back<W: Word>([x0, x1, x2, x3]: [W; 4]) -> [W; 4] {
    let t0 = x2 & x1;
    let t1 = x0 ^ t0;
    let t2 = x3 & t1;
    let t3 = x2 ^ t2;
    let t4 = x2 & !x0;
    let t5 = x1 & t1;
    let t6 = x3 ^ t5;
    let t7 = t6 & !t4;
    let t8 = x1 ^ t7;
    let t9 = t8 & !t0;
    let t10 = t9 & !t5;
    let t11 = x0 ^ t10;
    let t12 = t8 & !x2;
    let t13 = t6 ^ t3;
    let t14 = t12 ^ t13;
    [t11, t8, t3, t14]
}

/// Inverse of `point`.
#[inline(always)]
fn point_back<W: Word>([x0, x1, x2, x3]: [W; 4]) -> [W; 4] {
    let t0 = x1 ^ x2;
    let t1 = x3 ^ x1;
    let t2 = x0 ^ x1;
    let t3 = t1 & t2;
    let t4 = t0 ^ t3;
    let t5 = t1 & !t4;
    let t6 = t2 ^ t5;
    let t7 = !t6;
    let t8 = t7 & !t4;
    let t9 = t1 ^ t8;
    let t10 = t6 & !t3;
    let t11 = x1 ^ t10;
    [t7, t11, t4, t9]
}

/// The inverse in GF(2^4) of `scale(point_back(a))`.
#[inline(always)]
fn scale_back<W: Word>([x0, x1, x2, x3]: [W; 4]) -> [W; 4] {
    let t0 = x0 | x1;
    let t1 = x2 & !t0;
    let t2 = x2 | x1;
    let t3 = x3 ^ t2;
    let t4 = t1 | t3;
    let t5 = x0 | x2;
    let t6 = t4 ^ x2;
    let t7 = t0 & !t6;
    let t8 = t5 & t7;
    let t9 = x1 | t6;
    let t10 = x3 ^ x0;
    let t11 = t6 & !t10;
    let t12 = t9 & !t11;
    let t13 = !t2;
    let t14 = t11 | t13;
    [t14, t12, t8, t4]
}

/// Inverse of `turn`.
#[inline(always)]
fn turn_back<W: Word>([x0, x1, x2, x3]: [W; 4]) -> [W; 4] {
    let t0 = x1 ^ x3;
    let t1 = x0 | t0;
    let t2 = x3 ^ t1;
    let t3 = x2 & !t2;
    let t4 = t0 ^ t3;
    let t5 = x2 & !t4;
    let t6 = t4 & !x0;
    let t7 = t5 ^ t6;
    let t8 = x2 ^ t4;
    let t9 = t6 | t2;
    let t10 = t8 ^ t9;
    let t11 = x3 & !x2;
    let t12 = t1 & !t8;
    let t13 = x0 ^ t12;
    let t14 = t11 | t13;
    [t10, t4, t7, t14]
}

#[cfg(test)]
mod tests {
    use super::{
        super::kuznyechik_field::{PI, PI_INVERSE},
        *,
    };

    /// All 256 bytes, 64 at a time.
    #[test]
    fn circuits_are_the_table_of_the_standard() {
        for first in (0..256).step_by(64) {
            let bytes: [usize; 64] = std::array::from_fn(|i| first + i);
            let planes = |bytes: &[u64; 64]| -> [u64; 8] {
                std::array::from_fn(|k| (0..64).fold(0, |plane, i| plane | (bytes[i] >> k & 1) << i))
            };
            let plain = planes(&bytes.map(|byte| byte as u64));
            assert_eq!(substitute(plain), planes(&bytes.map(|byte| u64::from(PI[byte]))));
            assert_eq!(substitute_inverse(plain), planes(&bytes.map(|byte| u64::from(PI_INVERSE[byte]))));
        }
    }
}
