//! Wipes large areas of memory.

/// Overwrites secret bytes with zeros. As `zeroize`, which writes byte by byte, but with the widest stores
/// available.
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    zeroize::optimization_barrier(bytes);
}
