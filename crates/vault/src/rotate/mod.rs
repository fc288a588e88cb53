//! Replacing the master key of a vault that is in use.
//!
//! The configuration keeps the former key until nothing is under it any more. A directory is renewed
//! before it is used (`dir`). Names are therefore looked up under two keys only in a read-only vault, or
//! where the store refused the renewal. Files are rewritten one by one while they may be in use.

mod attributes;
mod begin;
mod behind;
mod dir;

pub use begin::Begun;
pub(super) use behind::RotationThread;
pub(super) use dir::WhyLeft;

use super::{
    Dir, Kind, OpenError, StoredName, Vault,
    anchor::Owner,
    attr::key,
    config_file::{ConfigLock, Configs, put_both},
    descent::{Visitor, descend},
    former_list::{FormerList, remove_others},
    keys::{NamespaceKeys, content_generations},
    names::{NameOf, read_up_to, temporary_name},
};
use content::{Error, Result};
use crypto::secret::Secret;
use format::{
    config::VaultConfig,
    former_list::Listed as Accepted,
    link::LONG_MAX,
    name::{ASIDE, LINKS},
    record::{RECORD, Record, RecordError},
};
use rustix::fs::{FlockOperation, OFlags};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use store::{BackingFile, DirFile, Listed, Node, StoreDir};

/// Interval between attempts to lock the configuration.
const WAIT: Duration = Duration::from_millis(50);

/// A step of a rotation, as reported to the caller.
#[derive(Debug)]
pub enum Step {
    /// A directory and the files in it were examined.
    Directory,
    /// A file of this many bytes is now under the present key.
    Rewritten(u64),
    /// Something stays under the former key: its path in the store, and the reason.
    Left(PathBuf, String),
    /// Something is under none of the vault's keys: its path in the store, and the reason. It does not
    /// keep the former key in use.
    Stray(PathBuf, String),
}

/// Result of a rotation.
#[derive(Debug, PartialEq, Eq)]
pub enum Rotated {
    /// Nothing is under the former key, and the vault has forgotten the key. Copies that repairs set
    /// aside may be under it, and can no longer be read.
    Whole {
        /// Number of directories and files that were set aside.
        aside: usize,
    },
    /// The rotation was told to stop.
    Stopped,
    /// Something could not be rewritten.
    Left,
}

/// One walk through the vault.
struct RotationWalk<'a> {
    vault: &'a Vault,
    report: &'a mut dyn FnMut(Step) -> bool,
    rewritten: bool,
    left: bool,
    /// The walk is at or below an entry whose name authenticates under neither key. No mount shows such
    /// entries, so they do not keep the rotation from ending. Otherwise everybody who can write to the
    /// store could block it by planting some.
    foreign: bool,
}

/// The rotation was told to stop.
struct RotationStopped;

impl Vault {
    /// Whether something may be under a former master key.
    pub fn is_rotating(&self) -> bool {
        self.keys.former().is_some()
    }

    /// Adopts the configuration with which a rotation began. Nothing else may be in progress in the
    /// vault.
    ///
    /// # Errors
    /// The store's.
    pub fn take_up(&self, config: &VaultConfig, master: &Secret<32>) -> Result<()> {
        self.writable()?;
        self.make_names_durable()?;
        if let Some(anchor) = &self.anchor {
            anchor.take_up(&Owner { config, master })?;
        }
        let list = FormerList::open(&self.root.store, config, master).map(Arc::new);
        self.keys.replace(config, master, list.as_ref());
        self.files().context().keys.replace(content_generations(config, master, list.as_ref()));
        self.renew(&self.root);
        Ok(())
    }

    /// Puts a directory that was opened before a rotation began under the present key, if the store
    /// allows it.
    pub fn renew(&self, dir: &Dir) {
        if let (Some(former), Some(id)) = (self.keys.former().filter(|_| !self.read_only()), &dir.id) {
            self.renew_dir(dir, id, &former);
        }
    }

    /// Rewrites everything that is under the former master key, and then forgets that key. `report`
    /// returns whether to continue.
    ///
    /// # Errors
    /// The store's, if they concern the vault as a whole.
    pub fn rotate(&self, report: &mut dyn FnMut(Step) -> bool) -> Result<Rotated> {
        self.writable()?;
        self.renew_long_targets()?;
        self.renew_lists()?;
        loop {
            let moves = self.moves();
            let mut pass = RotationWalk {
                vault: self,
                report: &mut *report,
                rewritten: false,
                left: false,
                foreign: false,
            };
            if descend(&mut pass, &self.root).is_err() {
                return Ok(Rotated::Stopped);
            }
            // Entries that were skipped may be on a part of the list that cannot be read now.
            if pass.left || self.keys.former().is_some_and(|former| former.has_damaged_list()) {
                return Ok(Rotated::Left);
            }
            // An entry that was moved meanwhile may have been missed by the walk.
            if !pass.rewritten && self.moves() == moves {
                return self.end_rotation();
            }
        }
    }

    /// Number of names moved or added so far. Taken while no such change is in progress.
    fn moves(&self) -> u64 {
        let _alone = self.long_names.lock();
        self.moves.load(Ordering::Relaxed)
    }

    /// Ends the rotation, because everything is under the present key.
    fn end_rotation(&self) -> Result<Rotated> {
        let Some(former) = self.keys.former() else { return Ok(Rotated::Whole { aside: 0 }) };
        let store = &self.root.store;
        self.make_names_durable()?;
        // A mount that adopted the new key may still have the list of change times that it wrote under
        // the former one.
        self.store_ctimes();
        store.sync_all()?;
        let Some(_alone) = self.lock_config_unless_stopped()? else { return Ok(Rotated::Stopped) };
        let config = end_in_config(store, &former.master).map_err(|e| match e {
            OpenError::Store { source, .. } => source,
            other => io::Error::other(other.to_string()),
        })?;
        self.keys.replace(&config, &former.master, None);
        self.files().context().keys.replace(content_generations(&config, &former.master, None));
        remove_others(store, &config)?;
        if let Some(rewrites) = &self.files().context().rewrites {
            rewrites.clear()?;
        }
        let listed = store.list()?;
        let aside = |entry: &&Listed| entry.name.as_bytes().starts_with(ASIDE.as_bytes());
        Ok(Rotated::Whole { aside: listed.iter().filter(aside).count() })
    }

    /// Waits for another process that is changing the configuration. That process may be suspended, so
    /// the wait also ends, with `None`, when the rotation is stopped.
    fn lock_config_unless_stopped(&self) -> io::Result<Option<ConfigLock>> {
        loop {
            match ConfigLock::take(&self.root.store, FlockOperation::NonBlockingLockExclusive) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                taken => return taken.map(Some),
            }
            if self.rotation.is_stopped() {
                return Ok(None);
            }
            std::thread::sleep(WAIT);
        }
    }

    /// Renews long link targets, which are all in one directory.
    fn renew_long_targets(&self) -> Result<()> {
        let Some(former) = self.keys.former() else { return Ok(()) };
        let Some(dir) = self.own_dir(LINKS)? else { return Ok(()) };
        for entry in dir.list()? {
            renew_long_target(&dir, &entry.name, (&former.keys, &self.keys()))?;
        }
        Ok(dir.sync()?)
    }

    /// Whether a file has to be opened: its records are under a former key, half rewritten, or
    /// malformed.
    fn may_have_former_key(&self, dir: &Dir, name: &StoredName) -> Result<bool> {
        let node = dir.store.node(&name.0)?;
        if let Some(open) = self.files().get(key(&node.stat()?)) {
            return Ok(open.file.has_former_key());
        }
        let records = self.stored_records(&node)?;
        let context = self.files().context();
        if context.unfinished_rewrite(&records)?.is_some() {
            return Ok(true);
        }
        Ok(records.iter().map(Record::peek_key).any(|key| match key {
            Ok(id) => context.keys.are_former(&id),
            Err(RecordError::Empty) => false,
            Err(_) => true,
        }))
    }

    /// The salts in a stored file's records: one, unless one of the records is damaged.
    pub(super) fn stored_salts(&self, node: &Node) -> io::Result<Vec<[u8; 32]>> {
        let records = self.stored_records(node)?;
        let keys = records.iter().map(Record::peek_key);
        let mut salts: Vec<_> = keys.flatten().map(|key| key.salt).collect();
        salts.dedup();
        Ok(salts)
    }

    /// The salt in a stored file's records. The first one if they differ.
    pub(super) fn stored_salt(&self, node: &Node) -> io::Result<Option<[u8; 32]>> {
        Ok(self.stored_salts(node)?.first().copied())
    }

    /// Both records of a stored file, unverified.
    pub(super) fn stored_records(&self, node: &Node) -> io::Result<[[u8; RECORD]; 2]> {
        let file = self.with_access(node, 0o400, || node.reopen(OFlags::RDONLY))?;
        let mut records = [[0; RECORD]; 2];
        DirFile::new(file).read_at(records.as_flattened_mut(), 0)?;
        Ok(records)
    }
}

/// Puts a file with a long link target under the present key. Its content is made durable, but not its
/// name.
fn renew_long_target(
    dir: &StoreDir,
    name: &OsStr,
    (former, present): (&NamespaceKeys, &NamespaceKeys),
) -> io::Result<()> {
    let sealed = read_up_to(&DirFile::new(dir.open_file(name, OFlags::RDONLY)?), LONG_MAX + 1)?;
    let Some(new) = former.links.reseal_long(&present.links, name.as_bytes(), &sealed) else { return Ok(()) };
    if !former.accept(Accepted::LongTarget, &sealed) {
        return Ok(());
    }
    let temporary = temporary_name()?;
    let file = DirFile::new(dir.create_file(&temporary, 0o644)?);
    let replaced = file
        .write_at(&new, 0)
        .and_then(|()| file.sync_data())
        .and_then(|()| dir.rename(&temporary, dir, name));
    replaced.inspect_err(|_| drop(dir.unlink(&temporary)))
}

/// Writes the configuration without the former key.
fn end_in_config(store: &StoreDir, master: &Secret<32>) -> std::result::Result<VaultConfig, OpenError> {
    let path = PathBuf::from("the vault");
    let mut config = Configs::read(store, &path)?.authentic(master)?;
    config.end_rotation(master)?;
    put_both(store, &config).map_err(|source| OpenError::Store {
        action: "cannot write to",
        path,
        source,
    })?;
    Ok(config)
}

impl Visitor for RotationWalk<'_> {
    type Stop = RotationStopped;

    fn visit(&mut self, dir: &Arc<Dir>) -> std::result::Result<Vec<OsString>, RotationStopped> {
        let mut inner = Vec::new();
        if let Some(WhyLeft { name, reason }) = self.vault.why_left(dir) {
            self.leave(dir, &name, &reason)?;
        }
        let listed = match self.vault.with_access(&dir.store.itself(), 0o500, || dir.store.list()) {
            Ok(listed) => listed,
            Err(e) => {
                self.leave(dir, OsStr::new(""), &e.to_string())?;
                return Ok(inner);
            }
        };
        for entry in listed.iter().filter(|entry| self.vault.is_entry(&entry.name)) {
            let exists = || dir.store.stat(&entry.name).is_ok();
            match self.vault.name_of_entry(dir, entry) {
                NameOf::Unread(reason) if exists() => self.leave(dir, &entry.name, &reason)?,
                NameOf::Entry(Err(reason)) if exists() => {
                    self.without_a_name(dir, entry, &reason, &mut inner)?
                }
                NameOf::Entry(_) | NameOf::Unread(_) | NameOf::Own(_) => match Kind::from_store(entry.kind) {
                    Some(Kind::Dir) => inner.push(entry.name.clone()),
                    Some(Kind::File) => self.content(dir, entry)?,
                    _ => {}
                },
            }
        }
        self.tell(Step::Directory)?;
        Ok(inner)
    }

    fn open(
        &mut self,
        dir: &Arc<Dir>,
        name: OsString,
    ) -> std::result::Result<Option<Arc<Dir>>, RotationStopped> {
        let name = StoredName(name);
        match self.vault.open_dir(dir, &name) {
            Ok(inner) => Ok(Some(inner)),
            Err(e) => self.failed(dir, &name.0, &e).map(|()| None),
        }
    }

    fn lost(&mut self, dir: &Arc<Dir>, error: io::Error) -> std::result::Result<(), RotationStopped> {
        // Not retried at once. Otherwise somebody who moves directories in the store could keep the
        // rotation running forever.
        self.leave(dir, OsStr::new(""), &error.to_string())
    }
}

impl RotationWalk<'_> {
    /// Handles an entry whose name is under neither key. Its content may still be the vault's. A
    /// directory inside a foreign one is added to `inner`.
    fn without_a_name(
        &mut self,
        dir: &Arc<Dir>,
        entry: &Listed,
        reason: &str,
        inner: &mut Vec<OsString>,
    ) -> std::result::Result<(), RotationStopped> {
        let outer = std::mem::replace(&mut self.foreign, true);
        self.leave(dir, &entry.name, reason)?;
        match Kind::from_store(entry.kind) {
            Some(Kind::Dir) if outer => inner.push(entry.name.clone()),
            // A nested walk. There is never a third level.
            Some(Kind::Dir) => {
                if let Some(foreign) = self.open(dir, entry.name.clone())? {
                    descend(self, &foreign)?;
                }
            }
            Some(Kind::File) => self.content(dir, entry)?,
            _ => {}
        }
        self.foreign = outer;
        Ok(())
    }

    /// Rewrites a file if it is under the former key.
    fn content(&mut self, dir: &Dir, entry: &Listed) -> std::result::Result<(), RotationStopped> {
        match self.file(dir, &StoredName(entry.name.clone())) {
            Ok(None) => Ok(()),
            Ok(Some(bytes)) => {
                self.rewritten = true;
                self.tell(Step::Rewritten(bytes))
            }
            Err(_) if self.vault.rotation.is_stopped() => Err(RotationStopped),
            Err(e @ Error::Damaged(_)) if self.is_no_longer_the_vaults(dir, entry) => {
                self.tell(Step::Stray(dir.path_in_store(&entry.name), e.to_string()))
            }
            Err(e) => self.failed(dir, &entry.name, &e),
        }
    }

    /// Whether a file is neither under the present key nor on the list for the former one. Either it was
    /// put there later, or it is damaged so that it cannot be told apart from such a file.
    fn is_no_longer_the_vaults(&self, dir: &Dir, entry: &Listed) -> bool {
        let node = dir.store.node(&entry.name);
        let records = node.and_then(|node| self.vault.stored_records(&node));
        let keys = &self.vault.files().context().keys;
        let counts = |sector: &[u8; RECORD]| {
            let derived = Record::peek_key(sector).ok().and_then(|id| keys.of_file(id));
            derived.is_some_and(|derive| {
                let (id, of) = derive();
                Record::decode(sector, &of.record).is_ok() && keys.accept(&id, sector)
            })
        };
        records.is_ok_and(|records| !records.iter().any(counts))
    }

    /// Rewrites a file if necessary. Returns its size if it was rewritten.
    fn file(&self, dir: &Dir, name: &StoredName) -> Result<Option<u64>> {
        if !self.vault.may_have_former_key(dir, name)? {
            return Ok(None);
        }
        let open = self.vault.open_file(dir, name, true)?;
        let rewritten = open.file.rekey(&|| !self.vault.rotation.is_stopped());
        let size = open.file.size();
        self.vault.files().note_durable(&open);
        self.vault.files().release(open);
        Ok(rewritten?.then_some(size))
    }

    /// Reports a failure, unless the entry is gone and need not be rewritten.
    fn failed(&mut self, dir: &Dir, name: &OsStr, e: &Error) -> std::result::Result<(), RotationStopped> {
        match dir.store.stat(name) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
            _ => self.leave(dir, name, &e.to_string()),
        }
    }

    fn leave(&mut self, dir: &Dir, name: &OsStr, reason: &str) -> std::result::Result<(), RotationStopped> {
        if self.foreign {
            return self.tell(Step::Stray(dir.path_in_store(name), reason.to_owned()));
        }
        self.left = true;
        self.tell(Step::Left(dir.path_in_store(name), reason.to_owned()))
    }

    fn tell(&mut self, step: Step) -> std::result::Result<(), RotationStopped> {
        if (self.report)(step) { Ok(()) } else { Err(RotationStopped) }
    }
}
