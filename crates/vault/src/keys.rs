//! The keys of an open vault. They change while it is open if it gets another master key; the former
//! keys then serve for everything not yet rewritten. While the vault is locked there are none, and
//! asking for one panics.

use super::former_list::FormerList;
use content::{Accept, Generation, Generations};
use crypto::{AuthError, kdf::FileKdf, secret::Secret};
use format::{
    change_times::ChangeTimesKey,
    config::{Settings, VaultConfig},
    dir_id::{DirId, DirIdKey},
    former_list::Listed,
    keys::contents_key,
    link::{LinkKey, LongLink},
    name::{NameError, NameKeys},
    record::RECORD,
    xattr::{Owner, XattrKeys},
};
use parking_lot::RwLock;
use std::sync::Arc;

/// Keys of the namespace, derived from one master key. With a former key, which others may know, the
/// `open_…` methods return only what was listed when the rotation began.
pub(super) struct NamespaceKeys {
    pub names: NameKeys,
    pub dir_ids: DirIdKey,
    pub links: LinkKey,
    pub xattrs: XattrKeys,
    pub change_times: ChangeTimesKey,
    /// Everything that former keys may open; `None` for the present key.
    only: Option<Arc<FormerList>>,
}

impl NamespaceKeys {
    fn derive(master: &Secret<32>, settings: Settings, only: Option<Arc<FormerList>>) -> Self {
        let cipher = settings.cipher;
        NamespaceKeys {
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
    pub keys: NamespaceKeys,
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
pub(super) struct KeyRing(RwLock<Option<KeySet>>);

#[derive(Clone)]
struct KeySet {
    present: Arc<NamespaceKeys>,
    former: Option<Arc<Former>>,
}

impl KeySet {
    fn of(config: &VaultConfig, master: &Secret<32>, list: Option<&Arc<FormerList>>) -> KeySet {
        let former = config.former(master).zip(list).map(|((_, former), list)| Former {
            keys: NamespaceKeys::derive(&former, config.settings(), Some(list.clone())),
            master: Secret::new_with(|key| key.copy_from_slice(master.expose())),
            list: list.clone(),
        });
        let present = Arc::new(NamespaceKeys::derive(master, config.settings(), None));
        KeySet { present, former: former.map(Arc::new) }
    }
}

const UNLOCKED: &str = "the vault is not locked";

impl KeyRing {
    pub(super) fn of(config: &VaultConfig, master: &Secret<32>, list: Option<&Arc<FormerList>>) -> Self {
        KeyRing(RwLock::new(Some(KeySet::of(config, master, list))))
    }

    /// The keys with which everything new is written.
    ///
    /// # Panics
    /// While the vault is locked.
    pub(super) fn present(&self) -> Arc<NamespaceKeys> {
        self.ring().present
    }

    /// Like `present`, but `None` while the vault is locked.
    pub(super) fn unless_locked(&self) -> Option<Arc<NamespaceKeys>> {
        self.0.read().as_ref().map(|ring| ring.present.clone())
    }

    /// The keys of everything not yet rewritten; `None` if no rotation is under way.
    pub(super) fn former(&self) -> Option<Arc<Former>> {
        self.ring().former
    }

    fn ring(&self) -> KeySet {
        self.0.read().clone().expect(UNLOCKED) // invariant: a locked vault serves no request
    }

    /// Calls `open` with the present keys and, if that fails during a rotation, with the former ones.
    ///
    /// # Errors
    /// The error of the present keys, if both fail.
    pub(super) fn open<T, E>(&self, open: impl Fn(&NamespaceKeys) -> Result<T, E>) -> Result<T, E> {
        open(&self.present()).or_else(|e| match self.former() {
            Some(former) => open(&former.keys).map_err(|_| e),
            None => Err(e),
        })
    }

    /// Switches to another configuration of the vault, or back to its own after a lock.
    pub(super) fn replace(&self, config: &VaultConfig, master: &Secret<32>, list: Option<&Arc<FormerList>>) {
        *self.0.write() = Some(KeySet::of(config, master, list));
    }

    /// Erases the keys.
    pub(super) fn wipe(&self) {
        *self.0.write() = None;
    }
}

/// The key generations of file contents.
pub(super) fn content_generations(
    config: &VaultConfig,
    master: &Secret<32>,
    list: Option<&Arc<FormerList>>,
) -> Generations {
    let settings = config.settings();
    let derive = |number, master: &_| {
        Generation::new(number, FileKdf::new(contents_key(master), settings.cipher, settings.integrity))
    };
    let former = config.former(master).zip(list.cloned()).map(|((number, former), list)| {
        let accept = move |record: &[u8; RECORD]| list.accepts(Listed::File, record);
        (derive(number, &former), Arc::new(accept) as Accept)
    });
    Generations { present: derive(config.key_generation(), master), former }
}
