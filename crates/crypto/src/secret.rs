//! Secrets that are wiped on drop, never printed, and kept out of swap.

use super::mlock;
use std::fmt;
use zeroize::Zeroize;

/// Occupies whole pages, because unlocking one secret must not unlock another in the same page.
#[repr(C, align(4096))]
struct Page<const N: usize>([u8; N]);

/// `N` secret bytes. Wiped on drop; locked in memory if the system allows it.
pub struct Secret<const N: usize> {
    page: Box<Page<N>>,
    locked: bool,
}

impl<const N: usize> Secret<N> {
    /// Creates a secret that `fill` initializes. It starts as zeros.
    pub fn new_with(fill: impl FnOnce(&mut [u8; N])) -> Self {
        let page = Box::new(Page([0; N]));
        let locked = mlock::lock(&*page);
        let mut secret = Secret { page, locked };
        fill(&mut secret.page.0);
        secret
    }

    /// The secret bytes.
    pub fn expose(&self) -> &[u8; N] {
        &self.page.0
    }
}

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.page.0.zeroize();
        if self.locked {
            mlock::unlock(&*self.page);
        }
    }
}

impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Compares two byte strings in time that depends only on their lengths.
pub fn ct_eq(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    // The barrier keeps the compiler from leaving the loop at the first difference.
    let difference = a.iter().zip(b).fold(0, |acc, (x, y)| std::hint::black_box(acc | (x ^ y)));
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_holds_no_byte_of_the_secret() {
        let secret = Secret::<32>::new_with(|bytes| bytes.fill(0xa7));
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_eq!(secret.expose(), &[0xa7; 32]);
    }

    #[test]
    fn each_secret_has_whole_pages() {
        assert_eq!(align_of::<Page<32>>(), 4096);
        assert_eq!(size_of::<Page<32>>(), 4096);
        assert_eq!(size_of::<Page<4097>>(), 8192);
    }

    #[test]
    fn comparison_sees_every_bit_and_the_length() {
        let a = [0x5a; 33];
        assert!(ct_eq(&a, &a) && ct_eq(&[], &[]));
        assert!(!ct_eq(&a, &a[..32]));
        for bit in 0..a.len() * 8 {
            let mut b = a;
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(!ct_eq(&a, &b), "bit {bit}");
        }
    }
}
