//! The keys of a view, and the derivation of values that are random in a vault.

use crypto::{
    integrity::{Integrity, IntegrityKey},
    kdf::{FileKdf, FileKeys, subkey},
    mac::{Mac, MacKey},
    secret::Secret,
};
use format::{
    config::VaultConfig,
    dir_id::{DirId, DirIdKey},
    keys::{REVERSE, contents_key},
    link::LinkKey,
    name::NameKeys,
    record::KeyId,
    xattr::{NONCE, Owner, XattrKeys},
};

/// Customisation strings for values derived from the key of reverse views.
const DIR_CUSTOM: &[u8] = b"warpcrypt v2 reverse directory";
const SALT_CUSTOM: &[u8] = b"warpcrypt v2 reverse salt";
const LINKED_CUSTOM: &[u8] = b"warpcrypt v2 reverse linked salt";
const LINK_CUSTOM: &[u8] = b"warpcrypt v2 reverse link";
const ATTRIBUTE_CUSTOM: &[u8] = b"warpcrypt v2 reverse attribute";
const NONCE_KEY_CUSTOM: &[u8] = b"warpcrypt v2 reverse nonce key";
const NONCE_CUSTOM: &[u8] = b"warpcrypt v2 reverse nonce";

/// The keys of a view.
pub struct ReverseKeys {
    parent: Secret<32>,
    files: FileKdf,
    integrity: Integrity,
    generation: u32,
    pub(super) names: NameKeys,
    pub(super) dir_ids: DirIdKey,
    links: LinkKey,
    pub(super) attributes: XattrKeys,
}

/// The keys of one file, and the id they are derived from.
pub(super) struct SealKeys {
    pub id: KeyId,
    pub file: FileKeys,
    /// Derives the nonces.
    pub nonce: IntegrityKey,
}

impl ReverseKeys {
    /// Derives the keys of the vault with this configuration and master key.
    pub fn derive(config: &VaultConfig, master: &Secret<32>) -> Self {
        let settings = config.settings();
        ReverseKeys {
            parent: subkey(master, REVERSE),
            files: FileKdf::new(contents_key(master), settings.cipher, settings.integrity),
            integrity: settings.integrity,
            generation: config.key_generation(),
            names: NameKeys::derive(master, settings.cipher, settings.names),
            dir_ids: DirIdKey::derive(master),
            links: LinkKey::derive(master, settings.cipher),
            attributes: XattrKeys::derive(master, settings.cipher),
        }
    }

    /// The id of the directory at this path below the root. The root's path is empty.
    pub(super) fn dir_id(&self, path: &[u8]) -> DirId {
        DirId(self.mac(DIR_CUSTOM, path))
    }

    /// Whether a vault whose root has this id file is a copy of the view.
    pub fn is_copy(&self, id_file: &[u8]) -> bool {
        self.dir_ids.encode(&self.dir_id(b"")) == id_file
    }

    /// The salt of a file with a single name, at this path.
    pub(super) fn salt(&self, path: &[u8]) -> [u8; 32] {
        self.mac(SALT_CUSTOM, path)
    }

    /// The salt of a file with several names. They share one content, so it cannot depend on the path.
    pub(super) fn linked_salt(&self, inode: u64) -> [u8; 32] {
        self.mac(LINKED_CUSTOM, &inode.to_be_bytes())
    }

    /// The stored target of the link at this path; `None` if it is too long.
    pub(super) fn link(&self, path: &[u8], target: &[u8]) -> Option<String> {
        let length = (path.len() as u64).to_be_bytes();
        self.links.encode_under(self.mac(LINK_CUSTOM, &[&length, path, target].concat()), target).ok()
    }

    /// The stored value of an attribute.
    pub(super) fn attribute(&self, owner: Owner, name: &[u8], value: &[u8]) -> Vec<u8> {
        let (kind, identity) = owner.context();
        let length = |bytes: &[u8]| (bytes.len() as u64).to_be_bytes();
        let (of_identity, of_name) = (length(identity), length(name));
        let input = [kind, &[0], &of_identity, identity, &of_name, name, value].concat();
        let nonce: [u8; NONCE] = self.mac(ATTRIBUTE_CUSTOM, &input);
        self.attributes.encode_value_under(&nonce, owner, name, value)
    }

    /// The keys of the file with this salt.
    pub(super) fn file(&self, salt: [u8; 32]) -> SealKeys {
        let key = self.mac(NONCE_KEY_CUSTOM, &salt);
        SealKeys {
            id: KeyId { generation: self.generation, salt },
            file: self.files.keys(&salt),
            nonce: IntegrityKey::new(self.integrity, &key, NONCE_CUSTOM),
        }
    }

    fn mac<const N: usize>(&self, custom: &[u8], input: &[u8]) -> [u8; N] {
        let mut out = [0; N];
        MacKey::new(Mac::Kmac256, self.parent.expose(), custom).mac(&[input], &mut out);
        out
    }
}
