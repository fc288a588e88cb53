//! The keys of an open vault. They change while it is open when it gets another master key; the former ones then serve
//! for what is not rewritten yet. While the vault is locked there are none, and nobody may ask for any.

use crate::{
    crypto::{
        kdf::{FileKdf, FileKeys},
        secret::Secret,
    },
    format::{
        config::{Settings, VaultConfig},
        dir_id::DirIdKey,
        keys::contents_key,
        link::LinkKey,
        name::NameKeys,
        record::KeyId,
        xattr::XattrKeys,
    },
};
use parking_lot::RwLock;
use std::sync::Arc;

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

/// What a rotation that is under way needs.
pub(super) struct Former {
    /// The namespace's keys of the former master key.
    pub keys: Keys,
    /// The present master key: the configuration is written with it at the end.
    pub master: Secret<32>,
}

/// The keys of the namespace that count now.
/// `None` while the vault is locked.
pub(super) struct KeyRing(RwLock<Option<Ring>>);

#[derive(Clone)]
struct Ring {
    present: Arc<Keys>,
    former: Option<Arc<Former>>,
}

impl Ring {
    fn of(config: &VaultConfig, master: &Secret<32>) -> Ring {
        let keys = |master: &Secret<32>| Keys::derive(master, config.settings());
        let former = config.former(master).map(|(_, former)| Former {
            keys: keys(&former),
            master: Secret::new_with(|key| key.copy_from_slice(master.expose())),
        });
        Ring { present: Arc::new(keys(master)), former: former.map(Arc::new) }
    }
}

const UNLOCKED: &str = "the vault is not locked";

impl KeyRing {
    pub(super) fn of(config: &VaultConfig, master: &Secret<32>) -> Self {
        KeyRing(RwLock::new(Some(Ring::of(config, master))))
    }

    /// Those that everything new is written with.
    ///
    /// # Panics
    /// While the vault is locked.
    pub(super) fn present(&self) -> Arc<Keys> {
        self.ring().present
    }

    /// Those of what is not rewritten yet; `None` if no rotation is under way.
    pub(super) fn former(&self) -> Option<Arc<Former>> {
        self.ring().former
    }

    fn ring(&self) -> Ring {
        self.0.read().clone().expect(UNLOCKED) // invariant: no request is served while there are none
    }

    /// What `open` opens with the present keys or, while a rotation is under way, with the former ones.
    ///
    /// # Errors
    /// That of the present keys, if both fail.
    pub(super) fn open<T, E>(&self, open: impl Fn(&Keys) -> Result<T, E>) -> Result<T, E> {
        open(&self.present()).or_else(|e| match self.former() {
            Some(former) => open(&former.keys).map_err(|_| e),
            None => Err(e),
        })
    }

    /// Takes up another configuration of the vault, or its own again after a lock.
    pub(super) fn replace(&self, config: &VaultConfig, master: &Secret<32>) {
        *self.0.write() = Some(Ring::of(config, master));
    }

    /// Forgets them.
    pub(super) fn wipe(&self) {
        *self.0.write() = None;
    }
}

/// Where the keys of files come from: the present key generation, and a former one while files are under that. `None`
/// while the vault is locked.
pub struct ContentKeys(RwLock<Option<Generations>>);

#[derive(Clone)]
struct Generations {
    present: Generation,
    former: Option<Generation>,
}

#[derive(Clone)]
struct Generation {
    number: u32,
    kdf: Arc<FileKdf>,
}

impl Generation {
    fn derive(number: u32, master: &Secret<32>, settings: Settings) -> Generation {
        let kdf = FileKdf::new(contents_key(master), settings.cipher, settings.integrity);
        Generation { number, kdf: Arc::new(kdf) }
    }

    fn keys(&self, salt: [u8; 32]) -> (KeyId, FileKeys) {
        (KeyId { generation: self.number, salt }, self.kdf.keys(&salt))
    }
}

impl Generations {
    fn of(config: &VaultConfig, master: &Secret<32>) -> Self {
        let derive = |number, master: &_| Generation::derive(number, master, config.settings());
        Generations {
            present: derive(config.key_generation(), master),
            former: config.former(master).map(|(number, former)| derive(number, &former)),
        }
    }
}

impl ContentKeys {
    /// Those of one key generation.
    pub fn new(generation: u32, kdf: FileKdf) -> Self {
        let present = Generation { number: generation, kdf: Arc::new(kdf) };
        ContentKeys(RwLock::new(Some(Generations { present, former: None })))
    }

    fn all(&self) -> Generations {
        self.0.read().clone().expect(UNLOCKED) // invariant: no request is served while there are none
    }

    /// Forgets them.
    pub(super) fn wipe(&self) {
        *self.0.write() = None;
    }

    /// Those of a vault that gets another master key.
    #[cfg(test)]
    pub(super) fn after(former: (u32, FileKdf), present: (u32, FileKdf)) -> Self {
        let [former, present] =
            [former, present].map(|(number, kdf)| Generation { number, kdf: Arc::new(kdf) });
        ContentKeys(RwLock::new(Some(Generations { present, former: Some(former) })))
    }

    pub(super) fn of(config: &VaultConfig, master: &Secret<32>) -> Self {
        ContentKeys(RwLock::new(Some(Generations::of(config, master))))
    }

    /// Takes up another configuration of the vault.
    pub(super) fn replace(&self, config: &VaultConfig, master: &Secret<32>) {
        *self.0.write() = Some(Generations::of(config, master));
    }

    /// The keys of a new file with this salt.
    pub(super) fn of_new(&self, salt: [u8; 32]) -> (KeyId, FileKeys) {
        self.all().present.keys(salt)
    }

    /// Whether a file with such keys is to be rewritten.
    pub(super) fn are_former(&self, id: &KeyId) -> bool {
        self.all().present.number != id.generation
    }

    /// What derives the keys that a file with this salt could have.
    pub(super) fn any_of(&self, salt: [u8; 32]) -> impl Iterator<Item = impl FnOnce() -> (KeyId, FileKeys)> {
        let Generations { present, former } = self.all();
        [Some(present), former].into_iter().flatten().map(move |generation| move || generation.keys(salt))
    }

    /// What derives the keys of a file; `None` if the vault does not have those of its generation.
    pub(super) fn of_file(&self, id: KeyId) -> Option<impl FnOnce() -> (KeyId, FileKeys)> {
        let Generations { present, former } = self.all();
        let generation = [Some(present), former].into_iter().flatten().find(|g| g.number == id.generation)?;
        Some(move || generation.keys(id.salt))
    }
}
