//! The keys of an open vault. They change while it is open when it gets another master key; the former ones then serve
//! for what is not rewritten yet. While the vault is locked there are none, and nobody may ask for any.

use super::former_list::FormerList;
use crate::{
    crypto::{
        AuthError,
        kdf::{FileKdf, FileKeys},
        secret::Secret,
    },
    format::{
        change_times::ChangeTimesKey,
        config::{Settings, VaultConfig},
        dir_id::{DirId, DirIdKey},
        former_list::Listed,
        keys::contents_key,
        link::{LinkKey, LongLink},
        name::{NameError, NameKeys},
        record::{KeyId, RECORD},
        xattr::{Owner, XattrKeys},
    },
};
use parking_lot::RwLock;
use std::sync::Arc;

/// Keys of the namespace, from one master key. What `open_…` returns was listed when the rotation began, if the key is a former
/// one: others may have that.
pub(super) struct Keys {
    pub names: NameKeys,
    pub dir_ids: DirIdKey,
    pub links: LinkKey,
    pub xattrs: XattrKeys,
    pub change_times: ChangeTimesKey,
    /// All that they open; `None` for the present key.
    only: Option<Arc<FormerList>>,
}

impl Keys {
    fn derive(master: &Secret<32>, settings: Settings, only: Option<Arc<FormerList>>) -> Self {
        let cipher = settings.cipher;
        Keys {
            names: NameKeys::derive(master, cipher, settings.names),
            dir_ids: DirIdKey::derive(master),
            links: LinkKey::derive(master, cipher),
            xattrs: XattrKeys::derive(master, cipher),
            change_times: ChangeTimesKey::derive(master, cipher),
            only,
        }
    }

    /// Whether what is stored so counts, if it is under these keys.
    pub(super) fn accept(&self, kind: Listed, stored: &[u8]) -> bool {
        self.only.as_ref().is_none_or(|only| only.accepts(kind, stored))
    }

    fn accepted<T>(&self, kind: Listed, stored: &[u8], opened: T) -> Result<T, AuthError> {
        if self.accept(kind, stored) { Ok(opened) } else { Err(AuthError) }
    }

    /// The id in the content of a directory's id file.
    ///
    /// # Errors
    /// `AuthError`.
    pub(super) fn open_dir_id(&self, content: &[u8]) -> Result<DirId, AuthError> {
        self.dir_ids.decode(content).and_then(|id| self.accepted(Listed::Directory, content, id))
    }

    /// The name that is stored so in this directory.
    ///
    /// # Errors
    /// As `NameKeys::decode`.
    pub(super) fn open_name(
        &self,
        dir: &DirId,
        stored: &[u8],
        sidecar: Option<&[u8]>,
    ) -> Result<Vec<u8>, NameError> {
        let name = self.names.decode(dir, stored, sidecar)?;
        self.accepted(Listed::Name, stored, name).map_err(|AuthError| NameError::Forged)
    }

    /// The target in the text of a link.
    ///
    /// # Errors
    /// `AuthError`.
    pub(super) fn open_link(&self, text: &[u8]) -> Result<Vec<u8>, AuthError> {
        self.links.decode(text).and_then(|target| self.accepted(Listed::Link, text, target))
    }

    /// The target in the file of a long link.
    ///
    /// # Errors
    /// `AuthError`.
    pub(super) fn open_long_target(&self, link: &LongLink, sealed: &[u8]) -> Result<Vec<u8>, AuthError> {
        let target = self.links.decode_long(link, sealed)?;
        self.accepted(Listed::LongTarget, sealed, target)
    }

    /// The name of an attribute.
    ///
    /// # Errors
    /// `AuthError`.
    pub(super) fn open_attribute_name(&self, stored: &[u8]) -> Result<Vec<u8>, AuthError> {
        self.xattrs.decode_name(stored).and_then(|name| self.accepted(Listed::AttributeName, stored, name))
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// `AuthError`.
    pub(super) fn open_attribute(
        &self,
        owner: Owner,
        name: &[u8],
        stored: &[u8],
    ) -> Result<Vec<u8>, AuthError> {
        let value = self.xattrs.decode_value(owner, name, stored)?;
        self.accepted(Listed::Attribute, stored, value)
    }
}

/// What a rotation that is under way needs.
pub(super) struct Former {
    /// The namespace's keys of the former master key.
    pub keys: Keys,
    /// The present master key: the configuration is written with it at the end.
    pub master: Secret<32>,
    list: Arc<FormerList>,
}

impl Former {
    /// Whether a part of the list of what is accepted could not be read.
    pub(super) fn has_damaged_list(&self) -> bool {
        self.list.is_damaged()
    }
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
    fn of(config: &VaultConfig, master: &Secret<32>, list: Option<&Arc<FormerList>>) -> Ring {
        let former = config.former(master).zip(list).map(|((_, former), list)| Former {
            keys: Keys::derive(&former, config.settings(), Some(list.clone())),
            master: Secret::new_with(|key| key.copy_from_slice(master.expose())),
            list: list.clone(),
        });
        let present = Arc::new(Keys::derive(master, config.settings(), None));
        Ring { present, former: former.map(Arc::new) }
    }
}

const UNLOCKED: &str = "the vault is not locked";

impl KeyRing {
    pub(super) fn of(config: &VaultConfig, master: &Secret<32>, list: Option<&Arc<FormerList>>) -> Self {
        KeyRing(RwLock::new(Some(Ring::of(config, master, list))))
    }

    /// Those that everything new is written with.
    ///
    /// # Panics
    /// While the vault is locked.
    pub(super) fn present(&self) -> Arc<Keys> {
        self.ring().present
    }

    /// As `present`; `None` while the vault is locked.
    pub(super) fn unless_locked(&self) -> Option<Arc<Keys>> {
        self.0.read().as_ref().map(|ring| ring.present.clone())
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
    pub(super) fn replace(&self, config: &VaultConfig, master: &Secret<32>, list: Option<&Arc<FormerList>>) {
        *self.0.write() = Some(Ring::of(config, master, list));
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
    former: Option<(Generation, Accept)>,
}

/// Whether a file with this newest record was there when the rotation began.
type Accept = Arc<dyn Fn(&[u8; RECORD]) -> bool + Send + Sync>;

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
    fn of(config: &VaultConfig, master: &Secret<32>, list: Option<&Arc<FormerList>>) -> Self {
        let derive = |number, master: &_| Generation::derive(number, master, config.settings());
        let former = config.former(master).zip(list.cloned()).map(|((number, former), list)| {
            let accept = move |record: &[u8; RECORD]| list.accepts(Listed::File, record);
            (derive(number, &former), Arc::new(accept) as Accept)
        });
        Generations { present: derive(config.key_generation(), master), former }
    }

    fn each(self) -> impl Iterator<Item = Generation> {
        [Some(self.present), self.former.map(|(generation, _)| generation)].into_iter().flatten()
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

    /// Those of a vault that gets another master key, and accepts all files under the former one.
    #[cfg(test)]
    pub(super) fn after(former: (u32, FileKdf), present: (u32, FileKdf)) -> Self {
        let [former, present] =
            [former, present].map(|(number, kdf)| Generation { number, kdf: Arc::new(kdf) });
        let former = Some((former, Arc::new(|_: &_| true) as Accept));
        ContentKeys(RwLock::new(Some(Generations { present, former })))
    }

    pub(super) fn of(config: &VaultConfig, master: &Secret<32>, list: Option<&Arc<FormerList>>) -> Self {
        ContentKeys(RwLock::new(Some(Generations::of(config, master, list))))
    }

    /// Takes up another configuration of the vault.
    pub(super) fn replace(&self, config: &VaultConfig, master: &Secret<32>, list: Option<&Arc<FormerList>>) {
        *self.0.write() = Some(Generations::of(config, master, list));
    }

    /// The keys of a new file with this salt.
    pub(super) fn of_new(&self, salt: [u8; 32]) -> (KeyId, FileKeys) {
        self.all().present.keys(salt)
    }

    /// Whether a file with such keys is to be rewritten.
    pub(super) fn are_former(&self, id: &KeyId) -> bool {
        self.with(|all| all.present.number != id.generation)
    }

    /// Whether a rotation is under way, and a file with such keys is to be rewritten.
    pub(super) fn are_to_go(&self, id: &KeyId) -> bool {
        self.with(|all| all.former.as_ref().is_some_and(|(former, _)| former.number == id.generation))
    }

    /// Whether a file with such keys counts, which has this authentic record as its newest one.
    pub(super) fn accept(&self, id: &KeyId, newest: &[u8; RECORD]) -> bool {
        let Generations { present, former } = self.all();
        present.number == id.generation
            || former.is_some_and(|(former, accept)| former.number == id.generation && accept(newest))
    }

    fn with<T>(&self, work: impl FnOnce(&Generations) -> T) -> T {
        work(self.0.read().as_ref().expect(UNLOCKED)) // invariant: no request is served while there are none
    }

    /// What derives the keys that a file with this salt could have.
    pub(super) fn any_of(&self, salt: [u8; 32]) -> impl Iterator<Item = impl FnOnce() -> (KeyId, FileKeys)> {
        self.all().each().map(move |generation| move || generation.keys(salt))
    }

    /// What derives the keys of a file; `None` if the vault does not have those of its generation.
    pub(super) fn of_file(&self, id: KeyId) -> Option<impl FnOnce() -> (KeyId, FileKeys)> {
        let generation = self.all().each().find(|g| g.number == id.generation)?;
        Some(move || generation.keys(id.salt))
    }
}
