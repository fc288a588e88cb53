//! One separately allocated chunk of plaintext.

use crypto::chunk::CHUNK;
use zeroize::Zeroize;

/// One chunk of plaintext; zeros past the end of the file. Wiped when freed.
pub(crate) struct PlainBuffer(Box<[u8; CHUNK]>);

impl PlainBuffer {
    pub(crate) fn zeros() -> Self {
        PlainBuffer(Box::new([0; CHUNK]))
    }
}

impl std::ops::Deref for PlainBuffer {
    type Target = [u8; CHUNK];
    fn deref(&self) -> &[u8; CHUNK] {
        &self.0
    }
}

impl std::ops::DerefMut for PlainBuffer {
    fn deref_mut(&mut self) -> &mut [u8; CHUNK] {
        &mut self.0
    }
}

impl Drop for PlainBuffer {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
