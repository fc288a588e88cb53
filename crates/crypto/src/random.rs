//! Random bytes from the kernel, without buffering: a virtual machine resumed twice would use a buffer twice.

/// Fills `out` by getrandom(2).
///
/// # Errors
/// If the kernel provides no random bytes.
pub fn fill(out: &mut [u8]) -> std::io::Result<()> {
    getrandom::fill(out).map_err(std::io::Error::other)
}
