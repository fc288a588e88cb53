//! The printed recovery key: 256 random bits in a form that people can copy from paper.

use super::printed::{self, PrintedError};
use crypto::{random, secret::Secret};
use std::io;
use zeroize::Zeroizing;

/// Size of the key in bytes.
const KEY: usize = 32;

/// A recovery key; wiped on drop.
pub struct RecoveryKey(Secret<KEY>);

impl RecoveryKey {
    /// Generates a random key.
    ///
    /// # Errors
    /// If the kernel provides no random bytes.
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

    /// Parses a printed key.
    ///
    /// # Errors
    /// `Length`, or `Typo` with the first incorrect group.
    pub fn parse(text: &str) -> Result<Self, PrintedError> {
        let bytes = printed::parse::<KEY>(text)?;
        Ok(RecoveryKey(Secret::new_with(|key| key.copy_from_slice(&*bytes))))
    }

    #[cfg(test)]
    pub(super) fn of(key: Secret<KEY>) -> Self {
        RecoveryKey(key)
    }
}
