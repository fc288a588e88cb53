//! Bit-sliced Kuznyechik with AVX2: 256 blocks at once. Constant-time: no branch or address depends
//! on key or text.

use super::{
    ctr::{BLOCK, Text},
    kuznyechik::RoundKeys,
    kuznyechik_planes::{self, Wide},
    kuznyechik_sbox::Word,
};
use std::{
    arch::x86_64::{
        __m256i, _mm_cvtsi32_si128, _mm256_and_si256, _mm256_or_si256, _mm256_set1_epi8, _mm256_sll_epi64,
        _mm256_srl_epi64, _mm256_xor_si256,
    },
    mem::transmute,
    ops::{BitAnd, BitOr, BitXor, Not},
};

/// A vector. Only functions compiled for AVX2 may create or use one.
#[derive(Clone, Copy)]
struct Vector(__m256i);

/// Implements an operator by one instruction.
macro_rules! operator {
    ($trait:ident, $name:ident, $instruction:ident) => {
        impl $trait for Vector {
            type Output = Vector;

            #[inline(always)]
            fn $name(self, other: Vector) -> Vector {
                // SAFETY: vectors exist only if the processor has AVX2.
                Vector(unsafe { $instruction(self.0, other.0) })
            }
        }
    };
}

operator!(BitXor, bitxor, _mm256_xor_si256);
operator!(BitAnd, bitand, _mm256_and_si256);
operator!(BitOr, bitor, _mm256_or_si256);

impl Not for Vector {
    type Output = Vector;

    #[inline(always)]
    fn not(self) -> Vector {
        // SAFETY: vectors exist only if the processor has AVX2.
        Vector(unsafe { _mm256_xor_si256(self.0, _mm256_set1_epi8(-1)) })
    }
}

impl Word for Vector {}

impl Wide for Vector {
    const LANES: usize = 4;

    #[inline(always)]
    fn of(lanes: [u64; 4]) -> Vector {
        // SAFETY: both types have 32 bytes, and every bit pattern is valid for them.
        Vector(unsafe { transmute::<[u64; 4], __m256i>(lanes) })
    }

    #[inline(always)]
    fn lanes(self) -> [u64; 4] {
        // SAFETY: both types have 32 bytes, and every bit pattern is valid for them.
        unsafe { transmute::<__m256i, [u64; 4]>(self.0) }
    }

    #[inline(always)]
    fn shl<const N: i32>(self) -> Vector {
        // SAFETY: vectors exist only if the processor has AVX2.
        Vector(unsafe { _mm256_sll_epi64(self.0, _mm_cvtsi32_si128(N)) })
    }

    #[inline(always)]
    fn shr<const N: i32>(self) -> Vector {
        // SAFETY: vectors exist only if the processor has AVX2.
        Vector(unsafe { _mm256_srl_epi64(self.0, _mm_cvtsi32_si128(N)) })
    }
}

/// Whether this processor has the features that the functions here require.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// XORs the keystream that starts at the counter block `counter` onto `text`.
#[target_feature(enable = "avx2")]
pub(super) fn ctr(keys: &RoundKeys, counter: &[u8; BLOCK], text: Text<'_>) {
    kuznyechik_planes::ctr::<Vector>(keys, counter, text);
}

/// Encrypts any number of blocks in ECB mode.
#[target_feature(enable = "avx2")]
pub(super) fn encrypt_blocks(keys: &RoundKeys, blocks: &mut [[u8; BLOCK]]) {
    kuznyechik_planes::encrypt_blocks::<Vector>(keys, blocks);
}

/// Decrypts any number of blocks in ECB mode.
#[target_feature(enable = "avx2")]
pub(super) fn decrypt_blocks(keys: &RoundKeys, blocks: &mut [[u8; BLOCK]]) {
    kuznyechik_planes::decrypt_blocks::<Vector>(keys, blocks);
}
