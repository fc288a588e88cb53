//! The configuration in the store: two files with the same content, so that the loss of one is not the loss of the
//! vault. The newer one that authenticates counts; the other is mended when the vault is opened for writing.

use super::{OpenError, Unlock, Vault, keys::KeyRing, names::temporary_name};
use crate::{
    crypto::secret::Secret,
    format::{
        config::{ConfigError, TEXT_MAX, VaultConfig},
        key_slot::SlotSecret,
        name::{CONFIG_COPY, CONFIG_FILE, DIR_ID_NAME, LOCK_FILE},
    },
    store::{BackingFile, DirFile, Node, StoreDir},
};
use rustix::fs::{FileType, FlockOperation, OFlags};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::OwnedFd,
    path::Path,
};

type Result<T> = std::result::Result<T, OpenError>;

/// A configuration, the id of the slot that opened it, and the master key.
pub type Unlocked = (VaultConfig, u32, Secret<32>);

impl Vault {
    /// The configuration of the vault at `path`. Nothing in it is authenticated before it was unlocked.
    ///
    /// # Errors
    /// `NotAVault`, `NoConfig`, `UnknownVersion`, `Malformed`, `Store`.
    pub fn read_config(path: &Path) -> Result<VaultConfig> {
        Configs::read(&open_vault(path)?, path)?.newest().cloned()
    }

    /// The newest configuration of the vault at `path` that a holder of this master key wrote; `None` if it has lost that.
    ///
    /// # Errors
    /// `Store`: what cannot be read may be there.
    pub fn authentic_config(path: &Path, master: &Secret<32>) -> Result<Option<VaultConfig>> {
        match open_vault(path).and_then(|store| Configs::read(&store, path)) {
            Ok(configs) => Ok(configs.authentic(master).ok()),
            Err(e @ OpenError::Store { .. }) => Err(e),
            Err(_) => Ok(None),
        }
    }

    /// The configuration of the vault at `path`, unlocked.
    ///
    /// # Errors
    /// As `read_config`, and those of a secret that does not open it.
    pub fn unlock_config(path: &Path, unlock: &Unlock) -> Result<Unlocked> {
        let configs = Configs::read(&open_vault(path)?, path)?;
        unlock.with_secret(|secret| configs.unlock(&secret))?
    }

    /// Keeps others who change the configuration of the vault at `path` away, mounted or not; waits until they
    /// are done.
    ///
    /// # Errors
    /// `NotAVault`, `Malformed`, …: as `read_config`; `Store`.
    pub fn lock_config(path: &Path) -> Result<ConfigLock> {
        let store = open_vault(path)?;
        Configs::read(&store, path)?;
        ConfigLock::take(&store, FlockOperation::LockExclusive).map_err(failed("cannot lock", path))
    }

    /// The sealed id of the root of the vault at `path`.
    ///
    /// # Errors
    /// `NotAVault` if nothing of one is there; `Store`.
    pub fn root_id(path: &Path) -> Result<Vec<u8>> {
        root_id(&open_vault(path)?, path)
    }

    /// Puts a configuration of the vault at `path` back, which may have none.
    ///
    /// # Errors
    /// `NotAVault` if nothing of one is there; `OtherVault`; `ReadOnlyStore`, `Store`.
    pub fn restore_config(path: &Path, config: &VaultConfig, master: &Secret<32>) -> Result<()> {
        let store = open_vault(path)?;
        let id = root_id(&store, path)?;
        // While a rotation is under way, the root may be under the former key, and then the key before opens it, too: but not what
        // the rotation has renewed.
        let is_former = Configs::read(&store, path)
            .and_then(|configs| configs.newest().map(|there| is_before(config, there)))
            .unwrap_or(false);
        if is_former || KeyRing::of(config, master).open(|keys| keys.dir_ids.decode(&id)).is_err() {
            return Err(OpenError::OtherVault(path.into()));
        }
        let _alone =
            ConfigLock::take(&store, FlockOperation::LockExclusive).map_err(failed("cannot lock", path))?;
        put_both(&store, config).map_err(failed("cannot write to", path))
    }

    /// Replaces the configuration of the vault at `path`, mounted or not, and its copy: both are new when it
    /// returns, and after a crash the old one or the new one counts. Owner and permissions stay.
    ///
    /// # Errors
    /// `NotAVault`, `ReadOnlyStore`, `Store`.
    pub fn write_config(path: &Path, config: &VaultConfig) -> Result<()> {
        put_both(&open_vault(path)?, config).map_err(failed("cannot write to", path))
    }
}

fn root_id(store: &StoreDir, path: &Path) -> Result<Vec<u8>> {
    let id = store.open_file(OsStr::new(DIR_ID_NAME), OFlags::RDONLY).map_err(not_a_vault(path))?;
    read_text(DirFile::new(id)).map_err(failed("cannot read the root's id of", path))
}

/// Whether a configuration is from before the rotation that another one says is under way.
fn is_before(config: &VaultConfig, there: &VaultConfig) -> bool {
    there.id() == config.id() && there.is_rotating() && there.key_generation() > config.key_generation()
}

/// Both files as they are, or why they are of no use.
pub(super) struct Configs([Result<VaultConfig>; 2]);

const NAMES: [&str; 2] = [CONFIG_FILE, CONFIG_COPY];

impl Configs {
    /// Reads them. At least one is a configuration.
    ///
    /// # Errors
    /// `NotAVault`, `NoConfig`, `UnknownVersion`, `Malformed`, `Store`.
    pub(super) fn read(store: &StoreDir, path: &Path) -> Result<Self> {
        let read = NAMES.map(|name| read_one(store, name, path));
        match read {
            // What is of a later version is not for this program, whatever is beside it.
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

    /// The newer one, of equal ones the first. What it says is not proven.
    ///
    /// # Errors
    /// None: there is one.
    pub(super) fn newest(&self) -> Result<&VaultConfig> {
        self.by_age().into_iter().next().ok_or(OpenError::Edited)
    }

    /// The newest that a holder of this master key wrote.
    ///
    /// # Errors
    /// `Edited` if there is none.
    pub(super) fn authentic(&self, master: &Secret<32>) -> Result<VaultConfig> {
        let found = self.by_age().into_iter().find(|config| config.is_authentic(master));
        found.cloned().ok_or(OpenError::Edited)
    }

    fn by_age(&self) -> Vec<&VaultConfig> {
        let mut all: Vec<_> = self.0.iter().flatten().collect();
        all.sort_by_key(|config| std::cmp::Reverse(config.generation()));
        all.dedup();
        all
    }

    /// The newest that authenticates. An older one opens nothing as long as there is one: it may have a slot that
    /// was removed.
    pub(super) fn unlock(&self, secret: &SlotSecret) -> Result<Unlocked> {
        let mut refused: Option<(&VaultConfig, ConfigError)> = None;
        for config in self.by_age() {
            match (config.unlock_slot(secret), refused.take()) {
                (Ok((_, master)), Some((newer, e))) if newer.is_authentic(&master) => return Err(e.into()),
                (Ok((slot, master)), _) => return Ok((config.clone(), slot, master)),
                (Err(_), Some(first)) => refused = Some(first),
                (Err(e), None) => refused = Some((config, e)),
            }
        }
        Err(refused.map_or(OpenError::Edited, |(_, e)| e.into()))
    }

    /// Whether both are `config`. What is not is logged.
    pub(super) fn agree_on(&self, config: &VaultConfig) -> bool {
        for (name, found) in NAMES.iter().zip(&self.0) {
            match found {
                Ok(found) if found == config => {}
                Ok(_) => log::warn!("{name} is older than its copy, or was edited: the other one is used"),
                Err(OpenError::NotAVault(_)) => log::warn!("{name} is missing: its copy is used"),
                Err(e) => log::warn!("{name} is of no use, its copy is used: {e}"),
            }
        }
        self.0.iter().all(|found| found.as_ref().is_ok_and(|found| found == config))
    }
}

/// Puts the newest configuration in place of one that is older, damaged or missing.
///
/// # Errors
/// The store's. Nothing is changed while another process changes the configuration: it writes both.
pub(super) fn mend(store: &StoreDir, path: &Path, master: &Secret<32>) -> io::Result<()> {
    let _alone = match ConfigLock::take(store, FlockOperation::NonBlockingLockExclusive) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        taken => taken?,
    };
    let Ok(configs) = Configs::read(store, path) else { return Ok(()) };
    let Ok(newest) = configs.authentic(master) else { return Ok(()) };
    for (name, found) in NAMES.iter().zip(&configs.0) {
        if !found.as_ref().is_ok_and(|found| *found == newest) {
            let new = temporary(store, &newest, like(store)?.as_ref())?;
            in_place(store, &new, name)?;
            log::warn!("{name} is put back");
        }
    }
    Ok(())
}

/// Held while the configuration changes. Not the lock of who writes to the vault: keys change while it is mounted.
#[must_use]
pub struct ConfigLock {
    _file: OwnedFd,
}

impl std::fmt::Debug for ConfigLock {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("ConfigLock")
    }
}

impl ConfigLock {
    /// Locks the root's id file, which nobody replaces as long as all is well. (The configuration is replaced each
    /// time, and is locked only where there is no id file.)
    pub(super) fn take(store: &StoreDir, how: FlockOperation) -> io::Result<Self> {
        loop {
            let has_id = store.stat(OsStr::new(DIR_ID_NAME)).is_ok();
            let name = OsStr::new(if has_id { DIR_ID_NAME } else { CONFIG_FILE });
            let file = store.open_file(name, OFlags::RDWR).or_else(|e| match e.kind() {
                io::ErrorKind::PermissionDenied => store.open_file(name, OFlags::RDONLY),
                _ => Err(e),
            })?;
            rustix::fs::flock(&file, how)?;
            let (own, there) = (rustix::fs::fstat(&file)?, store.stat(name)?);
            if (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino) {
                return Ok(ConfigLock { _file: file });
            }
        }
    }
}

/// Whether there is something that only a vault has.
fn is_vault(store: &StoreDir) -> bool {
    [DIR_ID_NAME, LOCK_FILE].iter().any(|name| store.stat(OsStr::new(name)).is_ok())
}

fn read_one(store: &StoreDir, name: &str, path: &Path) -> Result<VaultConfig> {
    let fd = store.open_file(OsStr::new(name), OFlags::RDONLY).map_err(not_a_vault(path))?;
    let text = read_text(DirFile::new(fd)).map_err(failed("cannot read the configuration of", path))?;
    Ok(VaultConfig::parse(&text)?)
}

/// One byte more than a configuration may have, so that parsing sees one that is too long.
pub(super) fn read_text(file: DirFile) -> io::Result<Vec<u8>> {
    if FileType::from_raw_mode(rustix::fs::fstat(&*file.fd())?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = vec![0; TEXT_MAX + 1];
    let n = file.read_at(&mut text, 0)?;
    text.truncate(n);
    Ok(text)
}

/// The vault's directory.
pub(super) fn open_vault(path: &Path) -> Result<StoreDir> {
    StoreDir::open_path(path).map_err(not_a_vault(path))
}

/// Puts the configuration in place, then its copy once it is durable. A full disk is met before either changes.
pub(super) fn put_both(store: &StoreDir, config: &VaultConfig) -> io::Result<()> {
    let like = like(store)?;
    let first = temporary(store, config, like.as_ref())?;
    let second = temporary(store, config, like.as_ref());
    let put = second.and_then(|second| {
        in_place(store, &first, CONFIG_FILE).inspect_err(|_| drop(store.unlink(&second)))?;
        in_place(store, &second, CONFIG_COPY)
    });
    // What is in place has this name no more. The first error counts.
    put.inspect_err(|_| drop(store.unlink(&first)))
}

/// The file whose owner and permissions a new one gets.
fn like(store: &StoreDir) -> io::Result<Option<Node<'static>>> {
    let mut found = NAMES.iter().map(|name| store.node(OsStr::new(name)));
    match found.find(|node| !matches!(node, Err(e) if e.kind() == io::ErrorKind::NotFound)) {
        Some(node) => node.map(Some),
        None => Ok(None),
    }
}

fn temporary(store: &StoreDir, config: &VaultConfig, like: Option<&Node>) -> io::Result<OsString> {
    write_temporary(store, config.to_json().as_bytes(), like)
}

/// Writes a durable file that is not in place yet, with the owner and permissions of `like`, and returns its name.
pub(super) fn write_temporary(store: &StoreDir, content: &[u8], like: Option<&Node>) -> io::Result<OsString> {
    let name = temporary_name()?;
    let file = DirFile::new(store.create_file(&name, 0o600)?);
    fill(&file, content, like).inspect_err(|_| drop(store.unlink(&name)))?;
    Ok(name)
}

/// Gives a temporary file its name, durably.
pub(super) fn in_place(store: &StoreDir, temporary: &OsStr, name: &str) -> io::Result<()> {
    store.rename(temporary, store, OsStr::new(name)).inspect_err(|_| drop(store.unlink(temporary)))?;
    store.sync()
}

fn fill(file: &DirFile, content: &[u8], like: Option<&Node>) -> io::Result<()> {
    file.write_at(content, 0)?;
    if let Some(like) = like {
        let (like, node) = (like.stat()?, Node::shared(file.fd()));
        match node.chown(Some(like.st_uid), Some(like.st_gid)) {
            Err(e) if e.kind() != io::ErrorKind::PermissionDenied => return Err(e),
            _ => node.chmod(like.st_mode & 0o777)?,
        }
    }
    Ok(rustix::fs::fsync(&*file.fd())?)
}

/// A directory or configuration that is not there is another mistake than one that cannot be read.
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
