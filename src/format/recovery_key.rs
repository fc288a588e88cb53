//! The printed recovery key: 256 random bits, written so that people can copy it from paper.

use super::printed::{self, PrintedError};
use crate::crypto::{random, secret::Secret};
use std::io;
use zeroize::Zeroizing;

/// Bytes of the key.
const KEY: usize = 32;

/// A recovery key; wiped on drop.
pub struct RecoveryKey(Secret<KEY>);

impl RecoveryKey {
    /// A new random one.
    ///
    /// # Errors
    /// When the kernel has no random bytes.
    pub fn generate() -> io::Result<Self> {
        let mut filled = Ok(());
        let key = Secret::new_with(|bytes| filled = random::fill(bytes));
        filled.map(|()| RecoveryKey(key))
    }

    /// The key's bytes.
    pub fn expose(&self) -> &[u8; KEY] {
        self.0.expose()
    }

    /// The text to print.
    pub fn to_text(&self) -> Zeroizing<String> {
        printed::to_text(self.0.expose())
    }

    /// The key of a text.
    ///
    /// # Errors
    /// `PrintedError` with the first group that cannot be right.
    pub fn parse(text: &str) -> Result<Self, PrintedError> {
        let bytes = printed::parse::<KEY>(text)?;
        Ok(RecoveryKey(Secret::new_with(|key| key.copy_from_slice(&*bytes))))
    }

    #[cfg(test)]
    pub(super) fn of(key: Secret<KEY>) -> Self {
        RecoveryKey(key)
    }
}
