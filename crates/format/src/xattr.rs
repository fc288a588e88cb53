//! Extended attributes: the full name is encrypted into the stored name, and the value is bound to its
//! owner and its name.

use super::{
    bytes::{base64_len, from_base64, pad16, to_base64, unpad16},
    dir_id::DirId,
    keys,
};
use crypto::{AuthError, cipher::Cipher, kdf::subkey, random, secret::Secret, siv::SivKey};
use std::io;

/// Prefix of stored attribute names.
pub const PREFIX: &str = "user.warpcrypt.";
/// Prefix on links and special files, where Linux has no `user.` attributes.
const PREFIX_OF_OTHERS: &str = "trusted.warpcrypt.";
/// The attribute that contains a node's POSIX access ACL.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that contains a directory's default ACL.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// Stored name of `ACL_ACCESS`. It cannot collide with another one, because base64url has no dot.
pub const STORED_ACCESS: &str = "user.warpcrypt.acl.access";
/// Stored name of `ACL_DEFAULT`.
const STORED_DEFAULT: &str = "user.warpcrypt.acl.default";
/// Maximum length in bytes of a stored name on Linux.
pub const STORED_NAME_MAX: usize = 255;
/// Maximum total length of a node's stored names in bytes, each with its NUL. The kernel lists at most
/// 65,536 bytes, which includes names of other programs.
pub const STORED_NAMES_MAX: usize = 60 << 10;
/// Maximum length of an attribute name in bytes, including the namespace.
pub const NAME_MAX: usize = 160;
/// Maximum length of a value in bytes on Linux.
pub const VALUE_MAX: usize = 65_536;
/// Size in bytes of the random nonce in front of a value.
pub const NONCE: usize = 16;

const _: () = assert!(PREFIX.len() + base64_len(NAME_MAX + SivKey::OVERHEAD) <= STORED_NAME_MAX);
const _: () = assert!(PREFIX.len() + base64_len(NAME_MAX + 16 + SivKey::OVERHEAD) > STORED_NAME_MAX);

/// The stored name on links and special files, for the stored name `name` on files and directories.
pub fn of_others(name: &str) -> String {
    PREFIX_OF_OTHERS.to_owned() + name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Inverse of `of_others`: the stored name on files and directories; `None` if the prefix is missing.
pub fn from_others(stored: &[u8]) -> Option<Vec<u8>> {
    stored.strip_prefix(PREFIX_OF_OTHERS.as_bytes()).map(|rest| [PREFIX.as_bytes(), rest].concat())
}

/// Whether a stored name is unknown to this version, but reserved for later versions.
pub fn is_reserved(stored: &[u8]) -> bool {
    let known = [STORED_ACCESS, STORED_DEFAULT].iter().any(|name| name.as_bytes() == stored);
    !known && stored.strip_prefix(PREFIX.as_bytes()).is_some_and(|rest| rest.contains(&b'.'))
}

/// The node that an attribute belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner<'a> {
    /// A regular file, identified by the salt.
    File(&'a [u8; 32]),
    /// A directory, identified by the id.
    Dir(&'a DirId),
    /// A symbolic link, identified by the stored target, which contains a random nonce.
    Link(&'a [u8]),
    /// A special file, identified by type and device number: nothing else about it is permanent.
    Special(&'a [u8; SPECIAL]),
}

/// Size in bytes of a special file's identity: the letter of its type, and major and minor device number.
pub const SPECIAL: usize = 9;

impl Owner<'_> {
    /// Kind and identity, to which values are bound.
    pub fn context(&self) -> (&[u8], &[u8]) {
        match self {
            Owner::File(salt) => (b"file", *salt),
            Owner::Dir(id) => (b"directory", &id.0),
            Owner::Link(target) => (b"link", target),
            Owner::Special(known) => (b"special", *known),
        }
    }
}

/// Encrypts names and values of attributes.
pub struct XattrKeys {
    pub(super) names: SivKey,
    pub(super) values: SivKey,
}

/// Upper bound for the length of the name behind a stored name of `stored` bytes; 0 for the stored
/// name of an ACL.
pub fn name_len_at_most(stored: usize) -> usize {
    (stored.saturating_sub(PREFIX.len()) / 4 * 3 + 3).saturating_sub(SivKey::OVERHEAD)
}

impl XattrKeys {
    /// Derives the keys from the vault's master key.
    pub fn derive(master: &Secret<32>, cipher: Cipher) -> Self {
        XattrKeys {
            names: SivKey::new(cipher, &subkey(master, keys::XATTR_NAMES)),
            values: SivKey::new(cipher, &subkey(master, keys::XATTR_VALUES)),
        }
    }

    /// The stored name of an attribute. `name` includes its namespace, as in "user.x". `None` if it is empty,
    /// longer than `NAME_MAX`, or contains a zero byte. A name has the same stored form on every node.
    pub fn encode_name(&self, name: &[u8]) -> Option<String> {
        if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) {
            return None;
        }
        match name {
            ACL_ACCESS => return Some(STORED_ACCESS.to_owned()),
            ACL_DEFAULT => return Some(STORED_DEFAULT.to_owned()),
            _ => {}
        }
        Some(PREFIX.to_owned() + &to_base64(&self.names.seal(&[], &pad16(name))))
    }

    /// Decodes a stored name.
    ///
    /// # Errors
    /// `AuthError` if the name was not made by `encode_name` with these keys.
    pub fn decode_name(&self, stored: &[u8]) -> Result<Vec<u8>, AuthError> {
        match std::str::from_utf8(stored) {
            Ok(STORED_ACCESS) => return Ok(ACL_ACCESS.to_vec()),
            Ok(STORED_DEFAULT) => return Ok(ACL_DEFAULT.to_vec()),
            _ => {}
        }
        let text = stored.strip_prefix(PREFIX.as_bytes()).ok_or(AuthError)?;
        let padded = self.names.open(&[], &from_base64(text).ok_or(AuthError)?)?;
        unpad16(&padded).map(<[u8]>::to_vec).ok_or(AuthError)
    }

    /// Encrypts a value. The stored form consists of a fresh nonce and the sealed value, and is 32 bytes
    /// longer.
    ///
    /// # Errors
    /// If the kernel provides no random bytes.
    pub fn encode_value(&self, owner: Owner, name: &[u8], value: &[u8]) -> io::Result<Vec<u8>> {
        let mut nonce = [0; NONCE];
        random::fill(&mut nonce)?;
        Ok(self.encode_value_under(&nonce, owner, name, value))
    }

    /// Like `encode_value`, but takes the nonce, which the caller has derived from owner, name and value.
    pub fn encode_value_under(
        &self,
        nonce: &[u8; NONCE],
        owner: Owner,
        name: &[u8],
        value: &[u8],
    ) -> Vec<u8> {
        let (kind, identity) = owner.context();
        [&nonce[..], &self.values.seal(&[kind, identity, name, nonce], value)].concat()
    }

    /// Decrypts a stored value.
    ///
    /// # Errors
    /// `AuthError` if the value was not encrypted for this owner and name.
    pub fn decode_value(&self, owner: Owner, name: &[u8], stored: &[u8]) -> Result<Vec<u8>, AuthError> {
        let (nonce, sealed) = stored.split_first_chunk::<NONCE>().ok_or(AuthError)?;
        let (kind, identity) = owner.context();
        self.values.open(&[kind, identity, name, nonce], sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: Owner = Owner::File(&[5; 32]);

    fn keys() -> XattrKeys {
        XattrKeys::derive(&Secret::new_with(|k| k.fill(1)), Cipher::Kuznyechik)
    }

    #[test]
    fn names_survive_up_to_the_longest() {
        for len in 1..=NAME_MAX {
            let name = vec![b'n'; len];
            let stored = keys().encode_name(&name).unwrap();
            assert!(stored.len() <= STORED_NAME_MAX);
            assert!((len..len + 20).contains(&name_len_at_most(stored.len())), "{len}");
            assert_eq!(keys().decode_name(stored.as_bytes()), Ok(name));
        }
        assert_eq!(keys().encode_name(&[b'n'; NAME_MAX + 1]), None);
        assert_eq!(keys().encode_name(b""), None);
        assert_eq!(keys().encode_name(b"user.\0"), None);
    }

    #[test]
    fn no_name_looks_reserved() {
        for name in [&b"user.warpcrypt.acl.access"[..], ACL_ACCESS, ACL_DEFAULT, b"user.a.b.c"] {
            let stored = keys().encode_name(name).unwrap();
            assert!(!is_reserved(stored.as_bytes()));
            assert_eq!(keys().decode_name(stored.as_bytes()).unwrap(), name);
        }
        assert!(is_reserved(b"user.warpcrypt.acl.later"));
        assert!(!is_reserved(b"user.other.acl.access"));
    }

    #[test]
    fn values_survive_empty_ones_too() {
        for len in [0, 1, 15, 16, 17, 5000] {
            let value = vec![9; len];
            let stored = keys().encode_value(FILE, b"user.x", &value).unwrap();
            assert_eq!(stored.len(), len + NONCE + SivKey::OVERHEAD);
            assert_eq!(keys().decode_value(FILE, b"user.x", &stored), Ok(value));
        }
    }

    #[test]
    fn a_value_belongs_to_its_file_and_its_name() {
        let stored = keys().encode_value(FILE, b"user.x", b"value").unwrap();
        let id = DirId([5; 16]);
        for (owner, name) in [
            (Owner::File(&[6; 32]), &b"user.x"[..]),
            (Owner::Dir(&id), b"user.x"),
            (FILE, b"user.y"),
            (FILE, b"user."),
        ] {
            assert_eq!(keys().decode_value(owner, name, &stored), Err(AuthError));
        }
        let of_dir = keys().encode_value(Owner::Dir(&id), b"user.x", b"value").unwrap();
        assert_eq!(keys().decode_value(Owner::Dir(&id), b"user.x", &of_dir), Ok(b"value".to_vec()));
    }

    #[test]
    fn every_changed_byte_is_refused() {
        let name = keys().encode_name(b"user.mime_type").unwrap().into_bytes();
        for at in 0..name.len() {
            for byte in (0..=255).filter(|b| *b != name[at]) {
                let mut changed = name.clone();
                changed[at] = byte;
                assert_eq!(keys().decode_name(&changed), Err(AuthError), "byte {at} of the name");
            }
        }
        let value = keys().encode_value(FILE, b"user.x", b"value").unwrap();
        for at in 0..value.len() {
            for flip in 1..=255 {
                let mut changed = value.clone();
                changed[at] ^= flip;
                let opened = keys().decode_value(FILE, b"user.x", &changed);
                assert_eq!(opened, Err(AuthError), "byte {at} of the value");
            }
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(keys().decode_name(&bytes).is_err());
            let name = PREFIX.to_owned() + &to_base64(&bytes);
            prop_assert!(keys().decode_name(name.as_bytes()).is_err());
            prop_assert!(keys().decode_value(FILE, b"user.x", &bytes).is_err());
        }
    }
}
