//! Deterministic authenticated encryption of short strings (names, link targets, xattrs, wrapped keys):
//! a Keccak PRF of the plaintext and its context is both the tag and the CTR counter block.

use super::{AuthError, cipher::Cipher, secret::Secret};

/// Keys of one use.
pub struct SivKey {
    _todo: (),
}

impl SivKey {
    /// Sealed text is this much longer than its plaintext.
    pub const OVERHEAD: usize = 16;

    /// Two sub-keys of `key`: one for the PRF (KMAC256), one for `cipher` in CTR mode.
    pub fn new(_cipher: Cipher, _key: &Secret<32>) -> Self {
        todo!()
    }

    /// IV (16 bytes) and ciphertext. `context` is authenticated, not stored; its parts are encoded
    /// unambiguously.
    pub fn seal(&self, _context: &[&[u8]], _plain: &[u8]) -> Vec<u8> {
        todo!()
    }

    /// The plaintext of what `seal` made with the same context.
    ///
    /// # Errors
    /// `AuthError` for anything else.
    pub fn open(&self, _context: &[&[u8]], _sealed: &[u8]) -> Result<Vec<u8>, AuthError> {
        todo!()
    }
}
