//! The keys of an open vault. They change while it is open when it gets another master key; the former ones then serve
//! for what is not rewritten yet.

use crate::{
    crypto::{
        kdf::{FileKdf, FileKeys},
        secret::Secret,
    },
    format::{
        config::Settings, dir_id::DirIdKey, keys::contents_key, link::LinkKey, name::NameKeys, record::KeyId,
        xattr::XattrKeys,
    },
};
use parking_lot::RwLock;
use std::{iter, sync::Arc};

/// Keys of the namespace, from one master key.
pub(super) struct Keys {
    pub names: NameKeys,
    pub dir_ids: DirIdKey,
    pub links: LinkKey,
    pub xattrs: XattrKeys,
}

impl Keys {
    pub(super) fn derive(master: &Secret<32>, settings: Settings) -> Self {
        let cipher = settings.cipher;
        Keys {
            names: NameKeys::derive(master, cipher, settings.names),
            dir_ids: DirIdKey::derive(master),
            links: LinkKey::derive(master, cipher),
            xattrs: XattrKeys::derive(master, cipher),
        }
    }
}

/// The keys of the namespace that count now.
pub(super) struct KeyRing {
    present: RwLock<Arc<Keys>>,
}

impl KeyRing {
    pub(super) fn new(present: Keys) -> Self {
        KeyRing { present: RwLock::new(Arc::new(present)) }
    }

    /// Those that everything new is written with.
    pub(super) fn present(&self) -> Arc<Keys> {
        self.present.read().clone()
    }
}

/// Where the keys of files come from.
pub struct ContentKeys(RwLock<Generation>);

#[derive(Clone)]
struct Generation {
    number: u32,
    kdf: Arc<FileKdf>,
}

impl ContentKeys {
    /// Those of one key generation.
    pub fn new(generation: u32, kdf: FileKdf) -> Self {
        ContentKeys(RwLock::new(Generation { number: generation, kdf: Arc::new(kdf) }))
    }

    /// Those of a master key.
    pub(super) fn derive(generation: u32, master: &Secret<32>, settings: Settings) -> Self {
        let kdf = FileKdf::new(contents_key(master), settings.cipher, settings.integrity);
        ContentKeys::new(generation, kdf)
    }

    /// The keys of a new file with this salt.
    pub(super) fn of_new(&self, salt: [u8; 32]) -> (KeyId, FileKeys) {
        let Generation { number, kdf } = self.0.read().clone();
        (KeyId { generation: number, salt }, kdf.keys(&salt))
    }

    /// The keys that a file with this salt could have.
    pub(super) fn any_of(&self, salt: [u8; 32]) -> impl Iterator<Item = (KeyId, FileKeys)> {
        iter::once(self.of_new(salt))
    }

    /// The keys of a file; `None` if the vault does not have those of its generation.
    pub(super) fn of(&self, id: &KeyId) -> Option<FileKeys> {
        let Generation { number, kdf } = self.0.read().clone();
        (number == id.generation).then(|| kdf.keys(&id.salt))
    }
}
