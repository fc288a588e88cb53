//! Wiping a lot of memory.

/// Overwrites what may be read by nobody else. As `zeroize`, but with the widest stores there are: it writes byte by byte.
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    zeroize::optimization_barrier(bytes);
}
