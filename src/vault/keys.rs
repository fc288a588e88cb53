//! The keys of an open vault. They change while it is open if it gets another master key; the former
//! keys then serve for everything not yet rewritten. While the vault is locked there are none, and
//! asking for one panics.

use super::former_list::FormerList;
use crypto::{
    AuthError,
    kdf::{FileKdf, FileKeys},
    secret::Secret,
};
use format::{
    change_times::ChangeTimesKey,
    config::{Settings, VaultConfig},
    dir_id::{DirId, DirIdKey},
    former_list::Listed,
    keys::contents_key,
    link::{LinkKey, LongLink},
    name::{NameError, NameKeys},
    record::{KeyId, RECORD},
    xattr::{Owner, XattrKeys},
};
use parking_lot::RwLock;
use std::sync::Arc;

/// Keys of the namespace, derived from one master key. With a former key, which others may know, the
/// `open_…` methods return only what was listed when the rotation began.
pub(super) struct Keys {
    pub names: NameKeys,
    pub dir_ids: DirIdKey,
    pub links: LinkKey,
    pub xattrs: XattrKeys,
    pub change_times: ChangeTimesKey,
    /// Everything that former keys may open; `None` for the present key.
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

    /// Whether `stored`, which is under these keys, is accepted.
    pub(super) fn accept(&self, kind: Listed, stored: &[u8]) -> bool {
        self.only.as_ref().is_none_or(|only| only.accepts(kind, stored))
    }

    fn accepted<T>(&self, kind: Listed, stored: &[u8], opened: T) -> Result<T, AuthError> {
        if self.accept(kind, stored) { Ok(opened) } else { Err(AuthError) }
    }

    /// Decrypts the id in a directory's id file.
    ///
    /// # Errors
    /// `AuthError`.
    pub(super) fn open_dir_id(&self, content: &[u8]) -> Result<DirId, AuthError> {
        self.dir_ids.decode(content).and_then(|id| self.accepted(Listed::Directory, content, id))
    }

    /// Decrypts a stored name of this directory.
    ///
    /// # Errors
    /// Those of `NameKeys::decode`.
    pub(super) fn open_name(
        &self,
        dir: &DirId,
        stored: &[u8],
        sidecar: Option<&[u8]>,
    ) -> Result<Vec<u8>, NameError> {
        let name = self.names.decode(dir, stored, sidecar)?;
        self.accepted(Listed::Name, stored, name).map_err(|AuthError| NameError::Forged)
    }

    /// Decrypts the target in the text of a link.
    ///
    /// # Errors
    /// `AuthError`.
    pub(super) fn open_link(&self, text: &[u8]) -> Result<Vec<u8>, AuthError> {
        self.links.decode(text).and_then(|target| self.accepted(Listed::Link, text, target))
    }

    /// Decrypts the target in the file of a long link.
    ///
    /// # Errors
    /// `AuthError`.
    pub(super) fn open_long_target(&self, link: &LongLink, sealed: &[u8]) -> Result<Vec<u8>, AuthError> {
        let target = self.links.decode_long(link, sealed)?;
        self.accepted(Listed::LongTarget, sealed, target)
    }

    /// Decrypts the name of an attribute.
    ///
    /// # Errors
    /// `AuthError`.
    pub(super) fn open_attribute_name(&self, stored: &[u8]) -> Result<Vec<u8>, AuthError> {
        self.xattrs.decode_name(stored).and_then(|name| self.accepted(Listed::AttributeName, stored, name))
    }

    /// Decrypts the value of an attribute.
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

/// State of a rotation in progress.
pub(super) struct Former {
    /// The namespace keys of the former master key.
    pub keys: Keys,
    /// The present master key, with which the configuration is written at the end.
    pub master: Secret<32>,
    list: Arc<FormerList>,
}

impl Former {
    /// Whether part of the list of accepted items could not be read.
    pub(super) fn has_damaged_list(&self) -> bool {
        self.list.is_damaged()
    }
}

/// The current keys of the namespace; `None` while the vault is locked.
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

    /// The keys with which everything new is written.
    ///
    /// # Panics
    /// While the vault is locked.
    pub(super) fn present(&self) -> Arc<Keys> {
        self.ring().present
    }

    /// Like `present`, but `None` while the vault is locked.
    pub(super) fn unless_locked(&self) -> Option<Arc<Keys>> {
        self.0.read().as_ref().map(|ring| ring.present.clone())
    }

    /// The keys of everything not yet rewritten; `None` if no rotation is under way.
    pub(super) fn former(&self) -> Option<Arc<Former>> {
        self.ring().former
    }

    fn ring(&self) -> Ring {
        self.0.read().clone().expect(UNLOCKED) // invariant: a locked vault serves no request
    }

    /// Calls `open` with the present keys and, if that fails during a rotation, with the former ones.
    ///
    /// # Errors
    /// The error of the present keys, if both fail.
    pub(super) fn open<T, E>(&self, open: impl Fn(&Keys) -> Result<T, E>) -> Result<T, E> {
        open(&self.present()).or_else(|e| match self.former() {
            Some(former) => open(&former.keys).map_err(|_| e),
            None => Err(e),
        })
    }

    /// Switches to another configuration of the vault, or back to its own after a lock.
    pub(super) fn replace(&self, config: &VaultConfig, master: &Secret<32>, list: Option<&Arc<FormerList>>) {
        *self.0.write() = Some(Ring::of(config, master, list));
    }

    /// Erases the keys.
    pub(super) fn wipe(&self) {
        *self.0.write() = None;
    }
}

/// Source of file keys: the present key generation, and the former one while files are still under it.
/// `None` while the vault is locked.
pub struct ContentKeys(RwLock<Option<Generations>>);

#[derive(Clone)]
struct Generations {
    present: Generation,
    former: Option<(Generation, Accept)>,
}

/// Whether a file with this newest record existed when the rotation began.
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
    /// Keys of a single generation.
    pub fn new(generation: u32, kdf: FileKdf) -> Self {
        let present = Generation { number: generation, kdf: Arc::new(kdf) };
        ContentKeys(RwLock::new(Some(Generations { present, former: None })))
    }

    fn all(&self) -> Generations {
        self.0.read().clone().expect(UNLOCKED) // invariant: a locked vault serves no request
    }

    /// Erases the keys.
    pub(super) fn wipe(&self) {
        *self.0.write() = None;
    }

    /// Keys of a vault that is getting another master key, and accepts all files under the former one.
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

    /// Switches to another configuration of the vault.
    pub(super) fn replace(&self, config: &VaultConfig, master: &Secret<32>, list: Option<&Arc<FormerList>>) {
        *self.0.write() = Some(Generations::of(config, master, list));
    }

    /// Derives the keys of a new file with this salt.
    pub(super) fn of_new(&self, salt: [u8; 32]) -> (KeyId, FileKeys) {
        self.all().present.keys(salt)
    }

    /// Whether a file with this key id is not under the present key generation.
    pub(super) fn are_former(&self, id: &KeyId) -> bool {
        self.with(|all| all.present.number != id.generation)
    }

    /// Whether a file with this key id must be rewritten by the rotation in progress.
    pub(super) fn are_to_go(&self, id: &KeyId) -> bool {
        self.with(|all| all.former.as_ref().is_some_and(|(former, _)| former.number == id.generation))
    }

    /// Whether a file with this key id is accepted. `newest` is its newest record, which is authentic.
    pub(super) fn accept(&self, id: &KeyId, newest: &[u8; RECORD]) -> bool {
        let Generations { present, former } = self.all();
        present.number == id.generation
            || former.is_some_and(|(former, accept)| former.number == id.generation && accept(newest))
    }

    fn with<T>(&self, work: impl FnOnce(&Generations) -> T) -> T {
        work(self.0.read().as_ref().expect(UNLOCKED)) // invariant: a locked vault serves no request
    }

    /// Derivations of all keys that a file with this salt could have.
    pub(super) fn any_of(&self, salt: [u8; 32]) -> impl Iterator<Item = impl FnOnce() -> (KeyId, FileKeys)> {
        self.all().each().map(move |generation| move || generation.keys(salt))
    }

    /// The derivation of a file's keys; `None` if the vault lacks the keys of its generation.
    pub(super) fn of_file(&self, id: KeyId) -> Option<impl FnOnce() -> (KeyId, FileKeys)> {
        let generation = self.all().each().find(|g| g.number == id.generation)?;
        Some(move || generation.keys(id.salt))
    }
}
