//! Symbolic link targets: encrypted and authenticated. The length of a target follows from the
//! stored link alone.
//!
//! A target that is too long for a link is stored in a file, which the stored link names.

use super::{
    bytes::{base64_len, from_base64, to_base64},
    keys,
    name::RESERVED,
};
use crypto::{AuthError, cipher::Cipher, kdf::subkey, random, secret::Secret, siv::SivKey};
use std::{ffi::OsString, io};

/// Size in bytes of the random nonce in front. It makes equal targets look different.
pub const NONCE: usize = 16;
/// Maximum length in bytes of a stored target on Linux.
pub const STORED_MAX: usize = 4095;
/// Maximum length in bytes of a target on Linux.
pub const TARGET_MAX: usize = 4095;
/// Maximum size in bytes of a file that holds a target.
pub const LONG_MAX: usize = TARGET_MAX + SivKey::OVERHEAD;

/// Bytes that encryption adds before base64 encoding.
const OVERHEAD: usize = NONCE + SivKey::OVERHEAD;

/// Prefix of the stored text of a long target.
const LONG: &str = "warpcrypt.link.";
/// Size of a long target's id in bytes.
const ID: usize = 16;

/// Content of a stored link whose target is in a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LongLink {
    id: [u8; ID],
    len: u16,
}

impl LongLink {
    /// Parses a stored text; `None` if it has another form.
    pub fn parse(stored: &[u8]) -> Option<LongLink> {
        let raw = from_base64(stored.strip_prefix(LONG.as_bytes())?)?;
        let (id, len) = raw.split_first_chunk::<ID>()?;
        Some(LongLink { id: *id, len: u16::from_be_bytes(len.try_into().ok()?) })
    }

    /// The text to store in the link.
    pub fn text(&self) -> String {
        LONG.to_owned() + &to_base64(&[&self.id[..], &self.len.to_be_bytes()].concat())
    }

    /// Name of the file that holds the target.
    pub fn file_name(&self) -> OsString {
        to_base64(&self.id).into()
    }

    /// Length of the target.
    pub fn target_len(&self) -> usize {
        self.len.into()
    }
}

/// Why a target cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Longer than `target_len(STORED_MAX)`, or longer than `TARGET_MAX` in the long form.
    #[error("link target of {0} bytes is too long to be stored encrypted")]
    TooLong(usize),
    /// The kernel provided no random bytes.
    #[error("no random bytes: {0}")]
    Random(#[from] io::Error),
}

/// Length of the stored text for a target of `len` bytes.
pub const fn stored_len(len: usize) -> usize {
    base64_len(len + OVERHEAD)
}

/// Length of the target whose stored text has `stored` bytes; 0 if that is too short.
pub const fn target_len(stored: usize) -> usize {
    (stored / 4 * 3 + stored % 4 * 3 / 4).saturating_sub(OVERHEAD)
}

/// Whether a stored text is not in the usual form: it is in that of a long target, or in one reserved
/// for later versions.
pub fn is_reserved(stored: &[u8]) -> bool {
    stored.starts_with(RESERVED.as_bytes())
}

/// Encrypts targets.
pub struct LinkKey(SivKey);

impl LinkKey {
    /// Derives the key from the vault's master key.
    pub fn derive(master: &Secret<32>, cipher: Cipher) -> Self {
        LinkKey(SivKey::new(cipher, &subkey(master, keys::LINKS)))
    }

    /// Encrypts a target. Returns the text to store: base64url of a fresh nonce and the sealed target.
    ///
    /// # Errors
    /// `TooLong` or `Random`.
    pub fn encode(&self, target: &[u8]) -> Result<String, LinkError> {
        let mut nonce = [0; NONCE];
        random::fill(&mut nonce)?;
        self.encode_under(nonce, target)
    }

    /// Like `encode`, but takes the nonce, which the caller has derived from the link's place and its target.
    ///
    /// # Errors
    /// `TooLong`.
    pub fn encode_under(&self, nonce: [u8; NONCE], target: &[u8]) -> Result<String, LinkError> {
        if stored_len(target.len()) > STORED_MAX {
            return Err(LinkError::TooLong(target.len()));
        }
        let sealed = self.0.seal(&[&nonce], target);
        Ok(to_base64(&[&nonce[..], &sealed].concat()))
    }

    /// Decrypts a stored text.
    ///
    /// # Errors
    /// `AuthError` if the text was not made by `encode` or `encode_under` with this key.
    pub fn decode(&self, stored: &[u8]) -> Result<Vec<u8>, AuthError> {
        let raw = from_base64(stored).ok_or(AuthError)?;
        let (nonce, sealed) = raw.split_first_chunk::<NONCE>().ok_or(AuthError)?;
        self.0.open(&[nonce], sealed)
    }

    /// Encrypts a target of any length up to `TARGET_MAX`. Returns the link to store and the
    /// content of its file.
    ///
    /// # Errors
    /// `TooLong` or `Random`.
    pub fn encode_long(&self, target: &[u8]) -> Result<(LongLink, Vec<u8>), LinkError> {
        let len = u16::try_from(target.len()).ok().filter(|len| usize::from(*len) <= TARGET_MAX);
        let mut link = LongLink { id: [0; ID], len: len.ok_or(LinkError::TooLong(target.len()))? };
        random::fill(&mut link.id)?;
        let sealed = self.0.seal(&[b"long", &link.id], target);
        Ok((link, sealed))
    }

    /// Re-encrypts the content of a target's file under the key `new`; `None` if it does not
    /// authenticate under this one.
    pub fn reseal_long(&self, new: &LinkKey, file_name: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let id = from_base64(file_name)?;
        let target = self.0.open(&[b"long", &id], sealed).ok()?;
        Some(new.0.seal(&[b"long", &id], &target))
    }

    /// Decrypts the content of a target's file.
    ///
    /// # Errors
    /// `AuthError` if the content is not the target of this link.
    pub fn decode_long(&self, link: &LongLink, sealed: &[u8]) -> Result<Vec<u8>, AuthError> {
        let target = self.0.open(&[b"long", &link.id], sealed)?;
        if target.len() == link.target_len() { Ok(target) } else { Err(AuthError) }
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
    fn a_long_target_opens_by_its_own_link_alone() {
        let longest = vec![b'x'; TARGET_MAX];
        let (link, sealed) = key().encode_long(&longest).unwrap();
        assert_eq!((link.text().len(), sealed.len(), link.target_len()), (39, LONG_MAX, TARGET_MAX));
        assert!(is_reserved(link.text().as_bytes()) && target_len(link.text().len()) == 0);
        assert_eq!(LongLink::parse(link.text().as_bytes()), Some(link.clone()));
        assert_eq!(key().decode_long(&link, &sealed), Ok(longest.clone()));
        let (other, _) = key().encode_long(&longest).unwrap();
        assert_eq!(key().decode_long(&other, &sealed), Err(AuthError));
        let shorter = LongLink { len: link.len - 1, ..link };
        assert_eq!(key().decode_long(&shorter, &sealed), Err(AuthError));
        assert!(matches!(key().encode_long(&[b'x'; TARGET_MAX + 1]), Err(LinkError::TooLong(4096))));
        for foreign in ["warpcrypt.link.", "warpcrypt.link.AAAA", "warpcrypt.links.AAAAAAAAAAAAAAAAAAAAAAAA"]
        {
            assert_eq!(LongLink::parse(foreign.as_bytes()), None);
        }
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
            prop_assert!(LongLink::parse(&bytes).is_none());
            target_len(len);
        }
    }
}
