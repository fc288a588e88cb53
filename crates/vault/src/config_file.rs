//! The configuration in the store: two files with the same content, so that losing one does not lose the
//! vault. The newer one that authenticates is used; the other is repaired when the vault is opened for
//! writing.

use super::{
    Dir, OpenError, Unlock, Vault,
    former_list::FormerList,
    keys::KeyRing,
    lock::{BETWEEN_TRIES, MOMENT},
    names::{NamesIn, names_in, temporary_name},
};
use crypto::secret::Secret;
use format::{
    config::{ConfigError, TEXT_MAX, VaultConfig},
    key_slot::SlotSecret,
    name::{CONFIG_COPY, CONFIG_FILE, DIR_ID_NAME, LOCK_FILE, TEMPORARY},
};
use rustix::fs::{FileType, FlockOperation, OFlags};
use std::{
    ffi::{OsStr, OsString},
    io,
    path::Path,
    sync::Arc,
    thread,
    time::Instant,
};
use store::{BackingFile, DirFile, Flock, Node, StoreDir, fsync};

type Result<T> = std::result::Result<T, OpenError>;

/// A configuration, the id of the slot that opened it, and the master key.
pub type Unlocked = (VaultConfig, u32, Secret<32>);

impl Vault {
    /// The configuration of the vault at `path`. Nothing in it is authenticated until it is unlocked.
    ///
    /// # Errors
    /// `NotAVault`, `NoConfig`, `UnknownVersion`, `Malformed`, `Store`.
    pub fn read_config(path: &Path) -> Result<VaultConfig> {
        Configs::read(&open_vault(path)?, path)?.newest().cloned()
    }

    /// Like `read_config`, for a copy to be kept: if both files are configurations, they must be equal.
    ///
    /// # Errors
    /// Those of `read_config`, and `CopiesDiffer`.
    pub fn read_config_to_keep(path: &Path) -> Result<VaultConfig> {
        let configs = Configs::read(&open_vault(path)?, path)?;
        match &configs.0 {
            [Ok(one), Ok(other)] if one != other => Err(OpenError::CopiesDiffer),
            _ => configs.newest().cloned(),
        }
    }

    /// The newest configuration of the vault at `path` that was written with this master key; `None` if
    /// the vault has lost it.
    ///
    /// # Errors
    /// `UnknownVersion`; `Store`, because a file that cannot be read may exist.
    pub fn authentic_config(path: &Path, master: &Secret<32>) -> Result<Option<VaultConfig>> {
        match open_vault(path).and_then(|store| Configs::read(&store, path)) {
            Ok(configs) => Ok(configs.authentic(master).ok()),
            Err(e @ (OpenError::Store { .. } | OpenError::UnknownVersion(_))) => Err(e),
            Err(_) => Ok(None),
        }
    }

    /// The configuration of the vault at `path`, unlocked.
    ///
    /// # Errors
    /// Those of `read_config`, and those of a secret that does not open it.
    pub fn unlock_config(path: &Path, unlock: &Unlock) -> Result<Unlocked> {
        let configs = Configs::read(&open_vault(path)?, path)?;
        unlock.with_secret(|secret| configs.unlock(&secret))?
    }

    /// Locks the configuration of the vault at `path`, mounted or not, against changes by others. Blocks
    /// until they are done.
    ///
    /// # Errors
    /// Those of `read_config`; `Store`.
    pub fn lock_config(path: &Path) -> Result<ConfigLock> {
        let store = open_vault(path)?;
        Configs::read(&store, path)?;
        ConfigLock::take(&store, FlockOperation::LockExclusive).map_err(failed("cannot lock", path))
    }

    /// Like `lock_config`, for a vault that may have lost its configuration.
    ///
    /// # Errors
    /// `NotAVault` if there is no trace of a vault; `UnknownVersion`, `ReadOnlyStore`, `Store`.
    pub fn lock_lost_config(path: &Path) -> Result<ConfigLock> {
        let store = open_vault(path)?;
        match Configs::read(&store, path) {
            Err(e @ (OpenError::Store { .. } | OpenError::UnknownVersion(_) | OpenError::NotAVault(_))) => {
                Err(e)
            }
            _ => ConfigLock::take(&store, FlockOperation::LockExclusive).map_err(not_a_vault(path)),
        }
    }

    /// The sealed id of the root of the vault at `path`.
    ///
    /// # Errors
    /// `NotAVault` if there is no trace of a vault; `Store`.
    pub fn root_id(path: &Path) -> Result<Vec<u8>> {
        root_id(&open_vault(path)?, path)
    }
}

fn root_id(store: &StoreDir, path: &Path) -> Result<Vec<u8>> {
    let id = store.open_file(OsStr::new(DIR_ID_NAME), OFlags::RDONLY).map_err(not_a_vault(path))?;
    read_text(DirFile::new(id)).map_err(failed("cannot read the root's id of", path))
}

/// Checks that the configuration's key opens the vault's root: it then belongs to the vault and is not
/// from before a rotation. A holder of a former key could have forged the root's id, so the key must
/// also open a name if there is one.
///
/// # Errors
/// `OtherVault` if it does not; `NotAVault`, `Store`.
pub(super) fn require_root(
    store: &StoreDir,
    path: &Path,
    config: &VaultConfig,
    master: &Secret<32>,
) -> Result<()> {
    let list = FormerList::open(store, config, master).map(Arc::new);
    let (id, keys) = (root_id(store, path)?, KeyRing::of(config, master, list.as_ref()));
    let other = || OpenError::OtherVault(path.into());
    let id = keys.open(|keys| keys.open_dir_id(&id)).map_err(|_| other())?;
    let root = Dir::new(store.try_clone().map_err(failed("cannot open", path))?, None);
    match names_in(&keys, &root, &id) {
        Ok(NamesIn::Foreign) => Err(other()),
        // If the root cannot be read, its id has to be enough.
        Ok(NamesIn::None | NamesIn::Authentic) | Err(_) => Ok(()),
    }
}

/// Whether `config` is from before the rotation that `there` says is under way. Its key may still open
/// the root, but not what the rotation has already renewed.
fn is_before(config: &VaultConfig, there: &VaultConfig) -> bool {
    there.id() == config.id() && there.is_rotating() && there.key_generation() > config.key_generation()
}

/// Both configuration files, or the reasons why they are unusable.
pub(super) struct Configs([Result<VaultConfig>; 2]);

const NAMES: [&str; 2] = [CONFIG_FILE, CONFIG_COPY];

impl Configs {
    /// Reads both files. On success at least one is a configuration.
    ///
    /// # Errors
    /// `NotAVault`, `NoConfig`, `UnknownVersion`, `Malformed`, `Store`.
    pub(super) fn read(store: &StoreDir, path: &Path) -> Result<Self> {
        let read = NAMES.map(|name| read_one(store, name, path));
        match read {
            // This program must not use a vault with a file of a later version, even if the other file
            // is readable.
            [Err(e @ OpenError::UnknownVersion(_)), _] | [_, Err(e @ OpenError::UnknownVersion(_))] => Err(e),
            [Err(OpenError::NotAVault(_)), Err(e)] => Err(match e {
                OpenError::NotAVault(_) if !is_vault(store) => e,
                OpenError::NotAVault(_) | OpenError::Malformed(_) => OpenError::NoConfig(path.into()),
                e => e,
            }),
            [Err(e), Err(_)] => Err(e),
            read => Ok(Configs(read)),
        }
    }

    /// The newer one, or the first if they are equal. Its content is not authenticated.
    ///
    /// # Errors
    /// None in practice: there is always one.
    pub(super) fn newest(&self) -> Result<&VaultConfig> {
        self.by_age().into_iter().next().ok_or(OpenError::Edited)
    }

    /// The newest one that was written with this master key.
    ///
    /// # Errors
    /// `Edited` if there is none.
    pub(super) fn authentic(&self, master: &Secret<32>) -> Result<VaultConfig> {
        let found = self.by_age().into_iter().find(|config| config.is_authentic(master));
        found.cloned().ok_or(OpenError::Edited)
    }

    /// The configurations, newest first, without one from before a rotation. That one would
    /// authenticate, but restoring it would destroy the only key of everything already rewritten.
    fn by_age(&self) -> Vec<&VaultConfig> {
        let there = || self.0.iter().flatten();
        let mut all: Vec<_> =
            there().filter(|config| !there().any(|other| is_before(config, other))).collect();
        all.sort_by_key(|config| std::cmp::Reverse(config.generation()));
        all.dedup();
        all
    }

    /// Unlocks the newest configuration that authenticates. An older one is refused while there is a
    /// newer authentic one: it may have a slot that was removed since.
    pub(super) fn unlock(&self, secret: &SlotSecret) -> Result<Unlocked> {
        let mut refused: Option<(&VaultConfig, ConfigError)> = None;
        for config in self.by_age() {
            match (config.unlock_slot(secret), refused.take()) {
                (Ok((_, master)), Some((newer, e))) if newer.is_authentic(&master) => return Err(e.into()),
                (Ok((slot, master)), _) => {
                    self.require_one_history(config, &master, secret)?;
                    return Ok((config.clone(), slot, master));
                }
                (Err(_), Some(first)) => refused = Some(first),
                (Err(e), None) => refused = Some((config, e)),
            }
        }
        Err(refused.map_or(OpenError::Edited, |(_, e)| e.into()))
    }

    /// Refuses a second file that no change of the vault can have left beside this configuration: a
    /// holder of a former key can write one that opens with an old secret. A file that does not open was
    /// edited or damaged, and will be repaired.
    fn require_one_history(
        &self,
        config: &VaultConfig,
        master: &Secret<32>,
        secret: &SlotSecret,
    ) -> Result<()> {
        let is_apart =
            |other: &&VaultConfig| !follows(config, master, other) && other.unlock_slot(secret).is_ok();
        match self.0.iter().flatten().find(is_apart) {
            Some(other) => Err(OpenError::TwoHistories(config.generation(), other.generation())),
            None => Ok(()),
        }
    }

    /// Whether `config`, opened with its key, might not be the vault's.
    fn is_in_doubt(&self, config: &VaultConfig, master: &Secret<32>) -> Result<bool> {
        let is_apart = |other: &VaultConfig| !follows(config, master, other);
        Ok(self.newest()? != config || self.0.iter().flatten().any(is_apart))
    }

    /// Whether both files equal `config`. Logs those that do not.
    pub(super) fn agree_on(&self, config: &VaultConfig) -> bool {
        for (name, found) in NAMES.iter().zip(&self.0) {
            match found {
                Ok(found) if found == config => {}
                Ok(_) => {
                    log::warn!("{name} is older than the other copy or was edited; using the other copy")
                }
                Err(OpenError::NotAVault(_)) => log::warn!("{name} is missing; using the other copy"),
                Err(e) => log::warn!("{name} cannot be used; using the other copy: {e}"),
            }
        }
        self.0.iter().all(|found| found.as_ref().is_ok_and(|found| found == config))
    }
}

/// Whether one configuration succeeds the other: both are under this master key, or the other one is
/// under the former key that `config` names.
fn follows(config: &VaultConfig, master: &Secret<32>, other: &VaultConfig) -> bool {
    other.is_authentic(master) || config.former(master).is_some_and(|(_, former)| other.is_authentic(&former))
}

/// Replaces an older, damaged or missing configuration with the newest one. The caller has verified that
/// its key opens the root.
///
/// # Errors
/// The store's error; `WouldBlock` while another process changes the configuration.
fn mend(store: &StoreDir, path: &Path, master: &Secret<32>) -> io::Result<()> {
    let _alone = ConfigLock::take(store, FlockOperation::NonBlockingLockExclusive)?;
    let Ok(configs) = Configs::read(store, path) else { return Ok(()) };
    let Ok(newest) = configs.authentic(master) else { return Ok(()) };
    for (name, found) in NAMES.iter().zip(&configs.0) {
        if !found.as_ref().is_ok_and(|found| *found == newest) {
            let new = temporary(store, name, newest.to_json().as_bytes(), like(store)?.as_ref())?;
            in_place(store, &new, name)?;
            log::warn!("restored {name}");
        }
    }
    Ok(())
}

/// Like `mend`, but fails only while the vault is being put under another key: one of the two files may
/// then be the only one that has that key.
///
/// # Errors
/// In that case `Store` or `ReadOnlyStore`.
pub(super) fn mend_for(
    config: &VaultConfig,
    store: &StoreDir,
    path: &Path,
    master: &Secret<32>,
) -> Result<()> {
    match mend(store, path, master) {
        Err(e) if config.is_rotating() => Err(failed("cannot write the second configuration of", path)(e)),
        // The other process writes both files.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(e) => {
            log::warn!("cannot synchronize the two copies of the configuration: {e}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Held while the configuration changes. It is not the write lock: keys can change while the vault is
/// mounted.
#[must_use]
pub struct ConfigLock {
    store: StoreDir,
    name: &'static OsStr,
    file: Flock,
}

impl std::fmt::Debug for ConfigLock {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("ConfigLock")
    }
}

impl ConfigLock {
    /// Locks the root's id file, which is replaced only when the root is put under another key. (The
    /// configuration file is replaced at each change, so it is locked only if there is no id file.)
    pub(super) fn take(store: &StoreDir, how: FlockOperation) -> io::Result<Self> {
        loop {
            let has_id = store.stat(OsStr::new(DIR_ID_NAME)).is_ok();
            let name = OsStr::new(if has_id { DIR_ID_NAME } else { CONFIG_FILE });
            let file = store.open_file(name, OFlags::RDWR).or_else(|e| match e.kind() {
                io::ErrorKind::PermissionDenied => store.open_file(name, OFlags::RDONLY),
                _ => Err(e),
            })?;
            let lock = ConfigLock { store: store.try_clone()?, name, file: Flock::take(file, how)? };
            if lock.counts()? {
                return Ok(lock);
            }
        }
    }

    /// Whether the locked file still has its name: others lock whichever file has it.
    fn counts(&self) -> io::Result<bool> {
        let (own, there) = (rustix::fs::fstat(&self.file)?, self.store.stat(self.name)?);
        Ok((own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
    }

    /// Whether the vault's configuration is still `config`, which `master` has opened. Unlike unlocking,
    /// this is fast.
    ///
    /// # Errors
    /// Those of [`Vault::read_config`], and `OtherVault`.
    pub fn is_still(&self, path: &Path, config: &VaultConfig, master: &Secret<32>) -> Result<bool> {
        let configs = Configs::read(&self.store, path)?;
        if configs.is_in_doubt(config, master)? {
            require_root(&self.store, path, config, master)?;
        }
        Ok(configs.authentic(master).is_ok_and(|newest| newest == *config))
    }

    /// Replaces the configuration of the vault, mounted or not, and its copy. Both are new on return;
    /// after a crash either the old or the new one is valid. Keeps owner and permissions.
    ///
    /// # Errors
    /// `ReadOnlyStore`, `Store`: the old configuration remains valid unless the error says otherwise.
    pub fn write(&self, path: &Path, config: &VaultConfig) -> Result<()> {
        let put = || {
            if !self.counts()? {
                return Err(io::Error::other(
                    "the key of the vault's root changed in the meantime; try again",
                ));
            }
            put_both(&self.store, config)
        };
        put().map_err(failed("cannot write to", path))
    }

    /// Restores a configuration of a vault that may have none.
    ///
    /// # Errors
    /// `NotAVault` if there is no trace of a vault; `OtherVault`; otherwise as `write`.
    pub fn restore(&self, path: &Path, config: &VaultConfig, master: &Secret<32>) -> Result<()> {
        let is_former = match Configs::read(&self.store, path) {
            Ok(configs) => is_before(config, configs.newest()?),
            Err(e @ (OpenError::Store { .. } | OpenError::UnknownVersion(_))) => return Err(e),
            Err(_) => false,
        };
        if is_former {
            return Err(OpenError::OtherVault(path.into()));
        }
        require_root(&self.store, path, config, master)?;
        self.write(path, config)
    }
}

/// Waits briefly for another process that is changing the configuration. A process that will write to
/// the vault calls this before it reads the configuration: `key rotate` holds the lock while it lists
/// what the new configuration accepts, and a file written meanwhile would be missing from the list.
///
/// # Errors
/// `Changing` if the other process is not done in time.
pub(super) fn require_settled(store: &StoreDir) -> Result<()> {
    let start = Instant::now();
    loop {
        match ConfigLock::take(store, FlockOperation::NonBlockingLockShared) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if start.elapsed() >= MOMENT {
                    return Err(OpenError::Changing);
                }
                thread::sleep(BETWEEN_TRIES);
            }
            // If the store has no locks, nobody can be changing a configuration.
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}

/// Whether the directory contains a file that only a vault has.
fn is_vault(store: &StoreDir) -> bool {
    [DIR_ID_NAME, LOCK_FILE].iter().any(|name| store.stat(OsStr::new(name)).is_ok())
}

fn read_one(store: &StoreDir, name: &str, path: &Path) -> Result<VaultConfig> {
    let fd = store.open_file(OsStr::new(name), OFlags::RDONLY).map_err(not_a_vault(path))?;
    let text = read_text(DirFile::new(fd)).map_err(failed("cannot read the configuration of", path))?;
    Ok(VaultConfig::parse(&text)?)
}

/// Reads at most one byte more than the maximum size, so that parsing rejects a configuration that is
/// too long.
pub(super) fn read_text(file: DirFile) -> io::Result<Vec<u8>> {
    if FileType::from_raw_mode(rustix::fs::fstat(&*file.fd())?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = vec![0; TEXT_MAX + 1];
    let n = file.read_at(&mut text, 0)?;
    text.truncate(n);
    Ok(text)
}

/// Opens the vault's directory.
pub(super) fn open_vault(path: &Path) -> Result<StoreDir> {
    StoreDir::open_path(path).map_err(not_a_vault(path))
}

/// Puts the configuration in place, then its copy once the first is durable. Both are written to
/// temporary files first, so a full disk is noticed before either changes. The caller keeps other
/// writers out.
///
/// # Errors
/// The store's error: both files are then as before, or the error says that they are not.
pub(super) fn put_both(store: &StoreDir, config: &VaultConfig) -> io::Result<()> {
    let (like, text) = (like(store)?, config.to_json());
    let before = NAMES.map(|name| stored_text(store, name));
    let first = temporary(store, CONFIG_FILE, text.as_bytes(), like.as_ref())?;
    let second = temporary(store, CONFIG_COPY, text.as_bytes(), like.as_ref())
        .inspect_err(|_| drop(store.unlink(&first)))?;
    let put = in_place(store, &first, CONFIG_FILE).and_then(|()| in_place(store, &second, CONFIG_COPY));
    put.map_err(|e| {
        [first, second].iter().for_each(|left| drop(store.unlink(left)));
        match put_back(store, before, like.as_ref()) {
            Ok(()) => e,
            Err(_) => io::Error::other(format!("{e}. The new configuration may count all the same")),
        }
    })
}

/// Restores the previous texts of the configuration and its copy.
fn put_back(
    store: &StoreDir,
    before: [io::Result<Option<Vec<u8>>>; 2],
    like: Option<&Node>,
) -> io::Result<()> {
    for (name, text) in NAMES.into_iter().zip(before) {
        match (text, stored_text(store, name)) {
            // A file that could not be read was not replaced.
            (Err(_), Err(_)) => {}
            (Ok(text), Ok(now)) if text == now => {}
            (Ok(Some(text)), _) => in_place(store, &temporary(store, name, &text, like)?, name)?,
            (Ok(None), _) => store.unlink(OsStr::new(name)).and_then(|()| store.sync())?,
            (Err(e), Ok(_)) => return Err(e),
        }
    }
    Ok(())
}

/// The text of a configuration file; `None` if there is no such file.
fn stored_text(store: &StoreDir, name: &str) -> io::Result<Option<Vec<u8>>> {
    match store.open_file(OsStr::new(name), OFlags::RDONLY) {
        Ok(file) => read_text(DirFile::new(file)).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The file whose owner and permissions new files get.
pub(super) fn like(store: &StoreDir) -> io::Result<Option<Node<'static>>> {
    let mut found = NAMES.iter().map(|name| store.node(OsStr::new(name)));
    match found.find(|node| !matches!(node, Err(e) if e.kind() == io::ErrorKind::NotFound)) {
        Some(node) => node.map(Some),
        None => Ok(None),
    }
}

/// Writes a durable temporary file that will become the configuration or its copy, and returns its name.
/// The name is always the same, which removes a file that a crash left behind: it may have a slot that
/// was removed since.
fn temporary(store: &StoreDir, of: &str, text: &[u8], like: Option<&Node>) -> io::Result<OsString> {
    let name = OsString::from(format!("{TEMPORARY}{of}"));
    match store.unlink(&name) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => write_new(store, name, text, like),
    }
}

/// Writes a durable file that is not in place yet, with the owner and permissions of `like`, and returns
/// its name.
pub(super) fn write_temporary(store: &StoreDir, content: &[u8], like: Option<&Node>) -> io::Result<OsString> {
    write_new(store, temporary_name()?, content, like)
}

fn write_new(store: &StoreDir, name: OsString, content: &[u8], like: Option<&Node>) -> io::Result<OsString> {
    let file = DirFile::new(store.create_file(&name, 0o600)?);
    fill(&file, content, like).inspect_err(|_| drop(store.unlink(&name)))?;
    Ok(name)
}

/// Renames a temporary file to its final name, durably.
pub(super) fn in_place(store: &StoreDir, temporary: &OsStr, name: &str) -> io::Result<()> {
    store.rename(temporary, store, OsStr::new(name)).inspect_err(|_| drop(store.unlink(temporary)))?;
    store.sync()
}

fn fill(file: &DirFile, content: &[u8], like: Option<&Node>) -> io::Result<()> {
    file.write_at(content, 0)?;
    like.map_or(Ok(()), |like| file.give_owner(like))?;
    fsync(&*file.fd())
}

/// Distinguishes a missing directory or configuration from one that cannot be read.
fn not_a_vault(path: &Path) -> impl Fn(io::Error) -> OpenError {
    move |e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => OpenError::NotAVault(path.into()),
        _ => failed("cannot open the vault", path)(e),
    }
}

pub(super) fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> OpenError {
    move |source| match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnlyStore,
        _ => OpenError::Store { action, path: path.into(), source },
    }
}
