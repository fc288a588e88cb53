//! The key of an anchor. Without it, the anchor reveals no name and no link target, nor which of them
//! are equal.
//!
//! The anchor stores the key sealed under the vault's master key, so a vault that gets another master
//! key keeps its anchor.

use super::entry::Salt;
use crypto::{
    cipher::Cipher,
    kdf::subkey,
    mac::{Mac, MacKey},
    secret::Secret,
    siv::SivKey,
};
use format::{config::VAULT_ID, dir_id::DirId, keys};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

const CONTEXT: &[u8] = b"warpcrypt v2 anchor key";

/// The keys derived from an anchor's key.
pub(super) struct AnchorKeys {
    root: Secret<32>,
    names: SivKey,
    targets: MacKey,
}

impl AnchorKeys {
    /// Keys of a new anchor.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn random() -> io::Result<Self> {
        let mut filled = Ok(());
        let root = Secret::new_with(|key| filled = crypto::random::fill(key));
        filled.map(|()| AnchorKeys::of(root))
    }

    fn of(root: Secret<32>) -> Self {
        AnchorKeys {
            names: SivKey::new(Cipher::Aes256, &subkey(&root, "names")),
            targets: MacKey::new(
                Mac::Kmac256,
                subkey(&root, "targets").expose(),
                b"warpcrypt v2 anchor target",
            ),
            root,
        }
    }

    /// The anchor's key, sealed under a master key.
    pub(super) fn wrap(&self, master: &Secret<32>, vault: &[u8; VAULT_ID]) -> Vec<u8> {
        wrapping(master).seal(&[CONTEXT, vault], self.root.expose())
    }

    /// Unseals what `wrap` sealed; `None` if it was sealed under another key.
    pub(super) fn unwrap(wrapped: &[u8], master: &Secret<32>, vault: &[u8; VAULT_ID]) -> Option<Self> {
        let root = zeroize::Zeroizing::new(wrapping(master).open(&[CONTEXT, vault], wrapped).ok()?);
        let root: &[u8; 32] = root.as_slice().try_into().ok()?;
        Some(AnchorKeys::of(Secret::new_with(|key| key.copy_from_slice(root))))
    }

    /// A sealed name in a directory, prefixed with the directory's id.
    pub(super) fn seal(&self, dir: &DirId, name: &OsStr) -> Vec<u8> {
        [&dir.0[..], &self.names.seal(&[&dir.0], name.as_bytes())].concat()
    }

    /// Unseals what `seal` sealed; `None` for anything else.
    pub(super) fn open(&self, dir: &DirId, sealed: &[u8]) -> Option<OsString> {
        let sealed = sealed.strip_prefix(&dir.0)?;
        Some(OsString::from_vec(self.names.open(&[&dir.0], sealed).ok()?))
    }

    /// The MAC that represents the target of a link.
    pub(super) fn target(&self, target: &OsStr) -> Salt {
        self.targets.digest(&[target.as_bytes()])
    }
}

fn wrapping(master: &Secret<32>) -> SivKey {
    SivKey::new(Cipher::Aes256, &subkey(master, keys::ANCHOR))
}
