//! Random bytes straight from the kernel: no buffering, a resumed VM would repeat a buffer.

/// Fills `out` from getrandom(2).
///
/// # Errors
/// The kernel's error, if it has no generator.
pub fn fill(out: &mut [u8]) -> std::io::Result<()> {
    getrandom::fill(out).map_err(std::io::Error::other)
}
