//! Symbolic link targets: encrypted, authenticated, and of a length that arithmetic alone tells.

use super::{
    bytes::{base64_len, from_base64, to_base64},
    keys,
    name::RESERVED,
};
use crate::crypto::{AuthError, cipher::Cipher, kdf::subkey, random, secret::Secret, siv::SivKey};
use std::io;

/// Bytes of the random nonce in front: equal targets must not look equal.
pub const NONCE: usize = 16;
/// The longest stored target that Linux takes.
pub const STORED_MAX: usize = 4095;

/// What encryption adds before base64.
const OVERHEAD: usize = NONCE + SivKey::OVERHEAD;

/// Why a target cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Longer than `target_len(STORED_MAX)`.
    #[error("link target of {0} bytes is too long to be stored encrypted")]
    TooLong(usize),
    /// The kernel has no random bytes.
    #[error("no random bytes: {0}")]
    Random(#[from] io::Error),
}

/// Length of the stored text of a target of `len` bytes.
pub const fn stored_len(len: usize) -> usize {
    base64_len(len + OVERHEAD)
}

/// Length of the target whose stored text has `stored` bytes; 0 for what is too short to be one.
pub const fn target_len(stored: usize) -> usize {
    (stored / 4 * 3 + stored % 4 * 3 / 4).saturating_sub(OVERHEAD)
}

/// Whether a stored text is in a form that a later version may have for targets that are too long for this one.
pub fn is_reserved(stored: &[u8]) -> bool {
    stored.starts_with(RESERVED.as_bytes())
}

/// Encrypts targets.
pub struct LinkKey(SivKey);

impl LinkKey {
    /// The vault's.
    pub fn derive(master: &Secret<32>, cipher: Cipher) -> Self {
        LinkKey(SivKey::new(cipher, &subkey(master, keys::LINKS)))
    }

    /// The text to store: base64url of a fresh nonce and the sealed target.
    ///
    /// # Errors
    /// `LinkError`.
    pub fn encode(&self, target: &[u8]) -> Result<String, LinkError> {
        if stored_len(target.len()) > STORED_MAX {
            return Err(LinkError::TooLong(target.len()));
        }
        let mut raw = vec![0; NONCE];
        random::fill(&mut raw)?;
        let sealed = self.0.seal(&[&raw], target);
        raw.extend_from_slice(&sealed);
        Ok(to_base64(&raw))
    }

    /// The target in a stored text.
    ///
    /// # Errors
    /// `AuthError` if `encode` did not make it.
    pub fn decode(&self, stored: &[u8]) -> Result<Vec<u8>, AuthError> {
        let raw = from_base64(stored).ok_or(AuthError)?;
        let (nonce, sealed) = raw.split_first_chunk::<NONCE>().ok_or(AuthError)?;
        self.0.open(&[nonce], sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> LinkKey {
        LinkKey::derive(&Secret::new_with(|k| k.fill(1)), Cipher::Aes256)
    }

    #[test]
    fn targets_survive_and_lengths_agree() {
        for len in (0..200).chain([target_len(STORED_MAX)]) {
            let target = vec![b'x'; len];
            let stored = key().encode(&target).unwrap();
            assert_eq!(stored.len(), stored_len(len));
            assert_eq!(target_len(stored.len()), len);
            assert_eq!(key().decode(stored.as_bytes()), Ok(target));
        }
    }

    #[test]
    fn the_longest_target_fits_and_one_more_byte_does_not() {
        let longest = target_len(STORED_MAX);
        assert_eq!(longest, 3039);
        assert!(matches!(key().encode(&vec![b'x'; longest + 1]), Err(LinkError::TooLong(3040))));
    }

    #[test]
    fn no_target_looks_reserved() {
        let stored = key().encode(b"warpcrypt.link.x").unwrap();
        assert!(!is_reserved(stored.as_bytes()) && is_reserved(b"warpcrypt.link.x"));
        assert_eq!(key().decode(b"warpcrypt.link.x"), Err(AuthError));
    }

    #[test]
    fn equal_targets_look_different() {
        assert_ne!(key().encode(b"same").unwrap(), key().encode(b"same").unwrap());
    }

    #[test]
    fn every_changed_byte_is_refused() {
        let stored = key().encode(b"../some/where").unwrap().into_bytes();
        for at in 0..stored.len() {
            for byte in (0..=255).filter(|b| *b != stored[at]) {
                let mut changed = stored.clone();
                changed[at] = byte;
                assert_eq!(key().decode(&changed), Err(AuthError), "byte {at}");
            }
        }
        for len in 0..stored.len() {
            assert_eq!(key().decode(&stored[..len]), Err(AuthError));
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), len in any::<usize>()) {
            prop_assert!(key().decode(&bytes).is_err());
            prop_assert!(key().decode(to_base64(&bytes).as_bytes()).is_err());
            target_len(len);
        }
    }
}
