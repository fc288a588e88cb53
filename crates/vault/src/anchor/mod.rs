//! The last confirmed state of a vault, kept outside of the store: which records of files are durable,
//! and which names exist.
//!
//! For a file the anchor has a lower bound. It is written after the store's sync and before the sync is
//! answered, so a crash never leaves the store behind it. For a directory it has all names. The anchor
//! durably marks a directory as being changed before the first change, and removes the mark when the
//! store has the changes durably. After a crash the anchor therefore either knows a directory correctly,
//! or knows that its own data on it may be outdated.
//!
//! | module | content |
//! |---|---|
//! | `file` | the anchor's file |
//! | `database` | its tables |
//! | `entry`, `keys` | entries of the tables |
//! | `changes` | directories that changed since |
//! | `names` | comparing names in the store with the anchor, and writing changes to it |
//! | `whole` | recording a whole vault as the new baseline |
//! | `behind` | the thread that writes changes to the anchor |

mod behind;
mod changes;
mod database;
mod entry;
mod error;
mod file;
mod keys;
mod names;
mod rules;
#[cfg(test)]
mod tests;
mod whole;

pub(super) use behind::AnchorThread;
pub(super) use entry::{AnchoredIdentity, Found};
pub use error::AnchorError;
pub use file::refuse_inside;

use super::Dir;
use changes::{Changes, Looked, Settled};
use content::{Bound, Bounds, Error, Mismatch, RecordOrder, Refused, Result};
use crypto::secret::Secret;
use database::{Database, DirState, Reader};
use entry::Salt;
use format::{
    config::{VAULT_ID, VaultConfig},
    dir_id::DirId,
};
use keys::AnchorKeys;
use parking_lot::{Mutex, RwLock};
use rules::{AnchorRule, holds};
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use store::{BackingFile, Flock, StoreDir};

/// Version of the tables.
const VERSION: &[u8] = &[1];
/// Keys of the table `about`.
const FORMAT: &str = "format";
const VAULT: &str = "vault";
const GENERATION: &str = "configuration";
const KEY: &str = "key";
const ROOT: &str = "root";

/// At this many changed directories, they are written to the anchor before another one changes. Each
/// holds a descriptor.
const CROWD: usize = 512;

/// The anchor that a vault is opened with.
#[derive(Debug, Clone)]
pub struct AnchorUse {
    /// The anchor's file.
    pub file: PathBuf,
    /// Whether to accept the vault's current state as the new baseline.
    pub accept: bool,
}

/// The vault that the anchor belongs to: its configuration and master key.
pub(super) struct Owner<'a> {
    pub(super) config: &'a VaultConfig,
    pub(super) master: &'a Secret<32>,
}

/// The anchor of an open vault.
///
/// Lock order: `committing`, `changes`, `queue`. `keep` writes under the first two, `commit` under the
/// first, and `begin` under the second.
pub(super) struct Anchor {
    path: PathBuf,
    database: Database,
    /// Whether the anchor may be written to.
    writable: bool,
    /// Whether the anchor has recorded a vault.
    made: AtomicBool,
    vault: [u8; VAULT_ID],
    /// Set if the anchor is to record the vault's current state as a new baseline.
    anew: Mutex<Option<Anew>>,
    /// `None` while the vault is locked.
    keys: RwLock<Option<Arc<AnchorKeys>>>,
    changes: Mutex<Changes>,
    /// Number of changes so far, readable without the lock of `changes`.
    count: AtomicU64,
    /// Bounds that the database does not have yet.
    queue: Mutex<HashMap<Salt, Bound>>,
    /// Group commit: held while the queue is written. A waiter usually finds its bound already
    /// committed.
    committing: Mutex<()>,
    /// Lock on the anchor's file, if it may be written to. Declared last, so that it outlives the
    /// database.
    _lock: Option<Flock>,
}

/// Initial state of an anchor that records a new baseline: its key, and the table `about`.
struct Anew {
    keys: Arc<AnchorKeys>,
    about: Vec<(&'static str, Vec<u8>)>,
}

/// Result of a comparison.
pub(super) enum Compared {
    /// The name matches the anchor, or the anchor does not know.
    Fine,
    /// Something changed meanwhile, so the caller has to read the name again.
    Again,
    Otherwise(Mismatch),
}

/// A change of a name in progress. Dropping it ends the change.
pub(super) struct Changing<'a> {
    anchor: &'a Anchor,
    id: DirId,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut changes = self.anchor.changes.lock();
        changes.end(&self.id);
        self.anchor.publish(&changes);
    }
}

impl Anchor {
    /// Opens an anchor. It is opened for writing unless the vault is `read_only` and is not to be
    /// accepted.
    pub(super) fn open(
        wanted: &AnchorUse,
        read_only: bool,
        owner: &Owner,
    ) -> std::result::Result<Self, AnchorError> {
        let path = &wanted.file;
        let writable = !read_only || wanted.accept;
        let (file, lock) = match writable {
            true => file::to_write(path).map(|(file, lock)| (file, Some(lock)))?,
            false => (file::to_read(path)?, None),
        };
        let anchor = Anchor { _lock: lock, ..Self::over(file, (path, writable), owner)? };
        let made = anchor.is_made();
        if !made && !writable {
            return Err(AnchorError::Missing(path.clone()));
        }
        if wanted.accept || !made {
            *anchor.anew.lock() = Some(Anew::of(owner).map_err(|e| AnchorError::at(path, e))?);
        } else {
            anchor.check_configuration(owner)?;
        }
        if made && anchor.keys.read().is_none() {
            // Its entries cannot be read, so there is nothing to compare the vault with.
            log::warn!("{}", AnchorError::OtherKey(path.clone()));
            anchor.made.store(false, Ordering::Relaxed);
        }
        Ok(anchor)
    }

    fn over(
        file: Arc<dyn BackingFile>,
        (path, writable): (&Path, bool),
        owner: &Owner,
    ) -> std::result::Result<Self, AnchorError> {
        let at = |e: io::Error| match e.raw_os_error() {
            Some(_) => AnchorError::at(path, e),
            None => AnchorError::NotAnAnchor(path.to_owned()),
        };
        let database = Database::open(file).map_err(at)?;
        let vault = *owner.config.id();
        let about = |what| database.read(|reader| reader.about(what)).map_err(at);
        let made = match about(FORMAT)?.as_deref() {
            None => false,
            Some(VERSION) => true,
            Some(_) => return Err(AnchorError::NotAnAnchor(path.to_owned())),
        };
        if made && about(VAULT)?.as_deref() != Some(&vault) {
            return Err(AnchorError::OtherVault(path.to_owned()));
        }
        let keys = about(KEY)?.and_then(|wrapped| owner.unwrap(&wrapped));
        Ok(Anchor {
            path: path.to_owned(),
            database,
            writable,
            made: AtomicBool::new(made),
            vault,
            anew: Mutex::default(),
            keys: RwLock::new(keys.map(Arc::new)),
            changes: Mutex::default(),
            count: AtomicU64::default(),
            queue: Mutex::default(),
            committing: Mutex::default(),
            _lock: None,
        })
    }

    /// Refuses a configuration older than the confirmed one, and records the generation of this one.
    fn check_configuration(&self, owner: &Owner) -> std::result::Result<(), AnchorError> {
        // Checked first, because a configuration from before a rotation also has another key.
        self.refuse_old(owner)?;
        if self.keys.read().is_none() {
            return Err(AnchorError::OtherKey(self.path.clone()));
        }
        if self.writable {
            self.take_up(owner).map_err(|e| self.failed(e))?;
        }
        let left = self.left_changing().map_err(|e| self.failed(e))?;
        if left > 0 {
            log::warn!(
                "{left} directories were being changed when the vault was last used; accepting their current state"
            );
        }
        Ok(())
    }

    /// Number of directories that the anchor has marked as being changed.
    pub(super) fn left_changing(&self) -> io::Result<usize> {
        self.database.read(Reader::changing)
    }

    fn failed(&self, source: io::Error) -> AnchorError {
        AnchorError::at(&self.path, source)
    }

    /// The lowest generation that the vault's configuration may have.
    fn confirmed(&self) -> io::Result<u64> {
        let confirmed = self.database.read(|reader| reader.about(GENERATION))?;
        Ok(confirmed.and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?))).unwrap_or(0))
    }

    /// Refuses a configuration older than the confirmed one.
    pub(super) fn refuse_old(&self, owner: &Owner) -> std::result::Result<(), AnchorError> {
        let (found, confirmed) = (owner.config.generation(), self.confirmed().map_err(|e| self.failed(e))?);
        if found < confirmed {
            return Err(AnchorError::OldConfiguration { path: self.path.clone(), found, confirmed });
        }
        Ok(())
    }

    /// Refuses a vault whose root is another directory than the recorded one. No lookup by name ever
    /// opens the root, so it is checked here. A kill may have left it unconfirmed, so it may be
    /// scheduled to be read.
    pub(super) fn meet_root(&self, root: &Dir) -> std::result::Result<(), AnchorError> {
        if !self.is_made() || self.anew.lock().is_some() {
            return Ok(());
        }
        let known = self.database.read(|reader| reader.about(ROOT)).map_err(|e| self.failed(e))?;
        match (&known, &root.id) {
            (Some(known), Some(id)) if known[..] == id.0 => {
                self.meet(id, &root.store).map_err(|e| self.failed(e.into()))
            }
            _ => Err(AnchorError::OtherRoot(self.path.clone())),
        }
    }

    /// Whether the anchor has recorded a vault. If not, the vault is accepted as it is.
    pub(super) fn is_made(&self) -> bool {
        self.made.load(Ordering::Relaxed)
    }

    fn keys(&self) -> io::Result<Arc<AnchorKeys>> {
        self.keys.read().clone().ok_or_else(|| io::Error::other("the vault is locked"))
    }

    /// Records the generation of the vault's configuration, and the anchor's own key under the vault's
    /// master key.
    pub(super) fn take_up(&self, owner: &Owner) -> io::Result<()> {
        self.keep_key(&*self.keys()?, owner)
    }

    /// Writes only if something is new, so that an anchor on a full disk does not prevent the use of an
    /// unchanged vault.
    fn keep_key(&self, keys: &AnchorKeys, owner: &Owner) -> io::Result<()> {
        let (confirmed, before) = (self.confirmed()?, self.database.read(|reader| reader.about(KEY))?);
        let wrapped = keys.wrap(owner.master, &self.vault);
        // The confirmed generation never decreases.
        let generation = owner.config.generation().max(confirmed);
        if generation == confirmed && before.as_ref() == Some(&wrapped) {
            return Ok(());
        }
        self.database.write(|writer| {
            writer.set_about(GENERATION, &generation.to_be_bytes())?;
            writer.set_about(KEY, &wrapped)
        })
    }

    /// Drops the keys, because the vault is being locked.
    pub(super) fn wipe(&self) {
        *self.keys.write() = None;
    }

    /// Restores the keys after the vault was locked.
    ///
    /// # Errors
    /// `OldConfiguration`, because the configuration may have been replaced while the vault was locked;
    /// `OtherKey`; the file's.
    pub(super) fn bring_back(&self, owner: &Owner) -> std::result::Result<(), AnchorError> {
        self.refuse_old(owner)?;
        let wrapped = self.database.read(|reader| reader.about(KEY)).map_err(|e| self.failed(e))?;
        let keys = wrapped.and_then(|wrapped| owner.unwrap(&wrapped));
        let keys = keys.ok_or_else(|| AnchorError::OtherKey(self.path.clone()))?;
        if self.writable {
            self.keep_key(&keys, owner).map_err(|e| self.failed(e))?;
        }
        // Last, because a vault that stays locked must have no keys here.
        *self.keys.write() = Some(Arc::new(keys));
        Ok(())
    }

    /// Durably writes the queued bounds.
    pub(super) fn commit(&self) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        let _alone = self.committing.lock();
        if self.queue.lock().is_empty() {
            return Ok(()); // Another caller committed them.
        }
        self.write(&[], &mut Changes::default())
    }

    /// Writes the queue, removals, and the contents of directories in one transaction. The caller holds
    /// `committing`.
    fn write(&self, looked: &[&Looked], changes: &mut Changes) -> Result<()> {
        let queue = std::mem::take(&mut *self.queue.lock());
        let written = self.database.write(|writer| {
            for bound in queue.values() {
                writer.raise(bound)?;
            }
            for salt in &changes.gone.1 {
                writer.forget_file(salt)?;
            }
            for id in &changes.gone.0 {
                writer.set_directory(id, DirState::Unknown)?;
                writer.clear_names(id)?;
            }
            for Looked { settled, names } in looked {
                if settled.names.is_none() {
                    writer.clear_names(&settled.id)?;
                }
                for (sealed, identity) in names {
                    writer.set_name(sealed, identity.as_ref())?;
                }
                writer.set_directory(&settled.id, DirState::Known)?;
            }
            Ok(())
        });
        match written {
            Ok(()) => changes.gone = Default::default(),
            Err(_) => queue.into_values().for_each(|bound| self.note(bound)),
        }
        Ok(written?)
    }

    /// Begins a change of a name. From now until the store has the change durably, the anchor has the
    /// directory marked as being changed.
    pub(super) fn begin(&self, id: &DirId, store: &Arc<StoreDir>, name: &OsStr) -> Result<Changing<'_>> {
        let sealed = self.keys()?.seal(id, name);
        let mut changes = self.changes.lock();
        if !changes.is_marked(id) {
            let known = self.database.read(|reader| reader.directory(id))? == DirState::Known;
            changes.add(*id, store.clone(), !known);
            if known && holds(AnchorRule::MarkBeforeChange) {
                self.database.write(|writer| writer.set_directory(id, DirState::Changing))?;
            }
            changes.mark(id, true);
        }
        changes.begin(id, sealed);
        self.publish(&changes);
        Ok(Changing { anchor: self, id: *id })
    }

    /// Treats a directory that the anchor does not know as one in which everything has changed.
    pub(super) fn meet(&self, id: &DirId, store: &Arc<StoreDir>) -> Result<()> {
        if !self.writable || self.database.read(|reader| reader.directory(id))? == DirState::Known {
            return Ok(());
        }
        let mut changes = self.changes.lock();
        // Checked again under the lock: the directory may have become known.
        if !changes.has(id) && self.database.read(|reader| reader.directory(id))? != DirState::Known {
            changes.add(*id, store.clone(), true);
        }
        Ok(())
    }

    /// Whether changed directories should be written to the anchor before more are changed.
    pub(super) fn is_crowded(&self) -> bool {
        self.changes.lock().len() >= CROWD
    }

    /// Changed directories in which no change is in progress: all, or `only` one.
    fn settled(&self, only: Option<&DirId>) -> Vec<Settled> {
        self.changes.lock().settled(only)
    }

    /// Durably records the contents of directories, unless they have changed since they were read.
    /// `sync` first makes the store's data durable.
    fn keep(&self, looked: &[Looked], sync: impl FnOnce() -> Result<()>) -> Result<()> {
        if looked.is_empty() && self.changes.lock().nothing_went() {
            return self.commit(); // Only bounds: the store already has those records durably.
        }
        if holds(AnchorRule::SyncBeforeKeep) {
            sync()?;
        }
        let _alone = self.committing.lock();
        let mut changes = self.changes.lock();
        let is_still =
            |looked: &&Looked| changes.is_still(&looked.settled) || !holds(AnchorRule::KeepWhatIsStill);
        let still: Vec<&Looked> = looked.iter().filter(is_still).collect();
        let nothing = still.is_empty() && changes.nothing_went();
        if nothing && self.queue.lock().is_empty() {
            return Ok(());
        }
        let written = self.write(&still, &mut changes);
        if written.is_err() && holds(AnchorRule::MarkAfterFailure) {
            still.iter().for_each(|looked| changes.mark(&looked.settled.id, false));
        }
        written?;
        still.iter().for_each(|looked| changes.remove(&looked.settled.id));
        self.publish(&changes);
        Ok(())
    }

    /// The identity recorded under a name.
    fn under(&self, id: &DirId, name: &OsStr) -> Result<Option<AnchoredIdentity>> {
        let sealed = self.keys()?.seal(id, name);
        Ok(self.database.read(|reader| reader.name(&sealed))?)
    }

    /// A directory was removed. It is forgotten if it `is_known` at that place. It is also forgotten if
    /// it was changed, because nothing in it is confirmed, and its mark would never be removed.
    pub(super) fn directory_went(&self, id: &DirId, is_known: bool) {
        let mut changes = self.changes.lock();
        let was_changed = changes.has(id);
        changes.remove(id);
        self.publish(&changes);
        if is_known || was_changed {
            changes.gone.0.insert(*id);
        }
    }

    /// The last name of a file was removed.
    pub(super) fn file_went(&self, salt: Salt) {
        self.queue.lock().remove(&salt);
        self.changes.lock().gone.1.insert(salt);
    }

    /// A file without a name has one again.
    pub(super) fn file_came_back(&self, salt: &Salt) {
        self.changes.lock().gone.1.remove(salt);
    }

    /// Counter of changes of names. What was found before a change proves nothing after it.
    pub(super) fn changes(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Updates `count`. Call under the lock of `changes`, after a change.
    fn publish(&self, changes: &Changes) {
        self.count.store(changes.count(), Ordering::Release);
    }

    /// Compares what was found under a name with the anchor. `since` is the value of `Anchor::changes()`
    /// before the name was read.
    pub(super) fn compare(&self, id: &DirId, name: &OsStr, found: &Found, since: u64) -> Result<Compared> {
        if !self.is_made() {
            return Ok(Compared::Fine);
        }
        let sealed = self.keys()?.seal(id, name);
        let against = |known_only: bool| {
            self.database.read(|reader| {
                Ok(match reader.directory(id)? {
                    DirState::Unknown => None,
                    DirState::Changing if known_only => None,
                    DirState::Changing | DirState::Known => found.against(reader.name(&sealed)?.as_ref()),
                })
            })
        };
        if against(false)?.is_none() {
            return Ok(Compared::Fine);
        }
        let changes = self.changes.lock();
        if changes.may_concern(id, &sealed) {
            return Ok(Compared::Fine);
        }
        if changes.count() != since {
            return Ok(Compared::Again);
        }
        // If this process is changing the directory, it knows which names are affected. If another
        // process left the mark, nobody knows.
        Ok(against(!changes.has(id))?.map_or(Compared::Fine, Compared::Otherwise))
    }

    /// Number of these files that have a bound.
    #[cfg(test)]
    pub(super) fn number_of_bounds(&self, salts: &[Salt]) -> usize {
        let has = |salt| self.database.read(|reader| reader.bound(salt)).is_ok_and(|bound| bound.is_some());
        salts.iter().filter(|salt| has(salt)).count()
    }

    /// Number of names recorded for a directory, possibly outdated.
    pub(super) fn number_of_names(&self, id: &DirId) -> io::Result<usize> {
        self.database.read(|reader| Ok(reader.names(id)?.len()))
    }

    /// The names of a directory, if the anchor knows all of them.
    pub(super) fn names(&self, id: &DirId) -> Result<Option<Vec<OsString>>> {
        let keys = self.keys()?;
        let changes = self.changes.lock();
        if changes.has(id) {
            return Ok(None);
        }
        let sealed = self.database.read(|reader| {
            Ok(match reader.directory(id)? {
                DirState::Known => Some(reader.names(id)?),
                DirState::Unknown | DirState::Changing => None,
            })
        })?;
        Ok(sealed.map(|sealed| sealed.iter().filter_map(|sealed| keys.open(id, sealed)).collect()))
    }
}

impl Anew {
    fn of(owner: &Owner) -> io::Result<Self> {
        let (keys, id) = (AnchorKeys::random()?, owner.config.id());
        let about = vec![
            (FORMAT, VERSION.to_vec()),
            (VAULT, id.to_vec()),
            (GENERATION, owner.config.generation().to_be_bytes().to_vec()),
            (KEY, keys.wrap(owner.master, id)),
        ];
        Ok(Anew { keys: Arc::new(keys), about })
    }
}

impl Owner<'_> {
    /// Unwraps the keys of an anchor with the vault's master key, or its former one.
    fn unwrap(&self, wrapped: &[u8]) -> Option<AnchorKeys> {
        let id = self.config.id();
        AnchorKeys::unwrap(wrapped, self.master, id)
            .or_else(|| AnchorKeys::unwrap(wrapped, &self.config.former(self.master)?.1, id))
    }
}

impl Bounds for Anchor {
    fn check(&self, found: &Bound) -> Result<()> {
        if !self.is_made() {
            return Ok(());
        }
        let queued = self.queue.lock().get(&found.key.salt).copied();
        let written = self.database.read(|reader| reader.bound(&found.key.salt))?;
        let confirmed = queued.into_iter().chain(written).max_by_key(Bound::order);
        let order =
            |bound: &Bound| RecordOrder { generation: bound.key.generation, sequence: bound.sequence };
        match confirmed {
            Some(confirmed) if found.order() < confirmed.order() || is_fork(found, &confirmed) => {
                let mismatch = Mismatch::Old { found: order(found), confirmed: order(&confirmed) };
                Err(Error::Refused(Refused { place: None, mismatch }))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn note(&self, durable: Bound) {
        let mut queue = self.queue.lock();
        let known = queue.entry(durable.key.salt).or_insert(durable);
        if known.order() < durable.order() {
            *known = durable;
        }
    }
}

/// Whether a record has the same position as another one but is different: a copy of the file was
/// continued.
fn is_fork(found: &Bound, confirmed: &Bound) -> bool {
    found.order() == confirmed.order() && found.mac != confirmed.mac
}
