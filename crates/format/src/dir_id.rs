//! Directory ids: 16 random bytes, stored with a MAC in a small file per directory. Names are encrypted
//! under the id of their directory, so a stored name is meaningless in any other.

use super::keys;
use crypto::{
    AuthError,
    kdf::subkey,
    mac::{Mac, MacKey},
    random,
    secret::{Secret, ct_eq},
};
use std::io;

/// Size of an id in bytes.
pub const ID: usize = 16;
/// Size of the id file in bytes: id and MAC.
pub const DIR_ID_FILE: usize = 32;

/// A directory's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirId(pub [u8; ID]);

impl DirId {
    /// Generates a new id.
    ///
    /// # Errors
    /// If the kernel provides no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut id = [0; ID];
        random::fill(&mut id)?;
        Ok(DirId(id))
    }
}

/// Authenticates ids.
#[derive(Clone)]
pub struct DirIdKey(MacKey);

impl DirIdKey {
    /// Derives the key from the vault's master key.
    pub fn derive(master: &Secret<32>) -> Self {
        let key = subkey(master, keys::DIR_IDS);
        DirIdKey(MacKey::new(Mac::Kmac256, key.expose(), b"warpcrypt v2 directory id"))
    }

    /// The content of the id file for `id`.
    pub fn encode(&self, id: &DirId) -> [u8; DIR_ID_FILE] {
        let mut out = [0; DIR_ID_FILE];
        out[..ID].copy_from_slice(&id.0);
        out[ID..].copy_from_slice(&self.0.tag(&[&id.0]));
        out
    }

    /// Parses and verifies the content of an id file.
    ///
    /// # Errors
    /// `AuthError` if the content is not exactly what this key's `encode` returns for an id.
    pub fn decode(&self, content: &[u8]) -> Result<DirId, AuthError> {
        let (id, mac) = content.split_first_chunk::<ID>().ok_or(AuthError)?;
        if ct_eq(mac, &self.0.tag(&[id])) { Ok(DirId(*id)) } else { Err(AuthError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> DirIdKey {
        DirIdKey::derive(&Secret::new_with(|k| k.fill(byte)))
    }

    #[test]
    fn an_id_survives_and_every_changed_byte_is_refused() {
        let id = DirId::random().unwrap();
        let content = key(1).encode(&id);
        assert_eq!(key(1).decode(&content), Ok(id));
        assert_eq!(key(2).decode(&content), Err(AuthError));
        for at in 0..DIR_ID_FILE {
            for flip in 1..=255 {
                let mut changed = content;
                changed[at] ^= flip;
                assert_eq!(key(1).decode(&changed), Err(AuthError), "byte {at}");
            }
        }
    }

    #[test]
    fn a_cut_or_longer_file_is_refused() {
        let content = key(1).encode(&DirId([3; ID]));
        for len in 0..DIR_ID_FILE {
            assert_eq!(key(1).decode(&content[..len]), Err(AuthError));
        }
        assert_eq!(key(1).decode(&[&content[..], &[0]].concat()), Err(AuthError));
        assert_eq!(key(1).decode(&[0; DIR_ID_FILE]), Err(AuthError));
    }
}
