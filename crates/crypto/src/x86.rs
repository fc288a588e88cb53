//! Conversion between bytes and vectors of x86-64 processors, so that the implementations need no pointers.

use super::ctr::Text;
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_storeu_si128, _mm_xor_si128, _mm256_loadu_si256,
    _mm256_storeu_si256, _mm256_xor_si256, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

/// Load, store and keystream application for one width of vectors.
macro_rules! width {
    ($features:literal, $vector:ty, $bytes:literal, $load:ident = $loadu:ident, $store:ident = $storeu:ident,
     $put:ident, $xor:ident) => {
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn $load(bytes: &[u8; $bytes]) -> $vector {
            // SAFETY: the array has as many bytes as are read, and unaligned loads are allowed.
            unsafe { $loadu(bytes.as_ptr().cast()) }
        }

        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn $store(bytes: &mut [u8; $bytes], vector: $vector) {
            // SAFETY: the array has as many bytes as are written, and unaligned stores are allowed.
            unsafe { $storeu(bytes.as_mut_ptr().cast(), vector) }
        }

        /// XORs the keystream onto the text, which must not be longer.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn $put<const N: usize>(text: Text<'_>, stream: &[$vector; N]) {
            let (whole, _) = text.dst.as_chunks_mut::<$bytes>();
            let Ok(dst) = <&mut [[u8; $bytes]; N]>::try_from(whole) else {
                let mut bytes = [[0; $bytes]; N];
                for i in 0..N {
                    $store(&mut bytes[i], stream[i]);
                }
                text.xor(bytes.as_flattened());
                return;
            };
            match text.src.map(|src| <&[[u8; $bytes]; N]>::try_from(src.as_chunks::<$bytes>().0)) {
                Some(Ok(src)) => {
                    for i in 0..N {
                        $store(&mut dst[i], $xor($load(&src[i]), stream[i]));
                    }
                }
                _ => {
                    for i in 0..N {
                        let old = $load(&dst[i]);
                        $store(&mut dst[i], $xor(old, stream[i]));
                    }
                }
            }
        }
    };
}

width!("avx", __m128i, 16, load_128 = _mm_loadu_si128, store_128 = _mm_storeu_si128, put_128, _mm_xor_si128);
width!(
    "avx2",
    __m256i,
    32,
    load_256 = _mm256_loadu_si256,
    store_256 = _mm256_storeu_si256,
    put_256,
    _mm256_xor_si256
);
width!(
    "avx512f",
    __m512i,
    64,
    load_512 = _mm512_loadu_si512,
    store_512 = _mm512_storeu_si512,
    put_512,
    _mm512_xor_si512
);
