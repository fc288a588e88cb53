//! Making a vault, and reading and replacing its configuration.

use super::{OpenError, Vault, names::temporary_name};
use crate::{
    format::{
        config::{ConfigError, Settings, TEXT_MAX, VaultConfig},
        dir_id::{DirId, DirIdKey},
        name::{CONFIG_FILE, DIR_ID_NAME, LOCK_FILE, NameMode, TEMPORARY},
        slot::NewSlot,
    },
    store::{BackingFile, DirFile, Node, StoreDir},
};
use rustix::{
    fs::{FileType, FlockOperation, OFlags, StatVfsMountFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::DirBuilder,
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::DirBuilderExt},
    },
    path::Path,
};

type Result<T> = std::result::Result<T, OpenError>;

impl Vault {
    /// Makes a vault at `path`, a new directory or an empty one, with one key slot.
    ///
    /// # Errors
    /// `AlreadyVault`, `NotEmpty`, `ReadOnlyStore`, `Config` for a slot that cannot be made, `Store`.
    pub fn init(path: &Path, settings: Settings, first: &NewSlot) -> Result<VaultConfig> {
        let store = new_or_empty(path)?;
        let (config, master) = VaultConfig::create(settings, first)?;
        let id = DirId::random().map_err(ConfigError::Random)?;
        let id = DirIdKey::derive(&master).encode(&id);
        put(&store, DIR_ID_NAME, &id, None).map_err(failed("cannot write to", path))?;
        require_case(&store, settings.names, path)?;
        // The configuration last: what has one is a whole vault.
        put(&store, CONFIG_FILE, config.to_json().as_bytes(), None)
            .map_err(failed("cannot write to", path))?;
        Ok(config)
    }

    /// The configuration of the vault at `path`. Nothing in it is authenticated before it was unlocked.
    ///
    /// # Errors
    /// `NotAVault`, `UnknownVersion`, `Malformed`, `Store`.
    pub fn read_config(path: &Path) -> Result<VaultConfig> {
        Ok(read_config_in(path)?.1)
    }

    /// Keeps others who change the configuration of the vault at `path` away, mounted or not; waits until they
    /// are done.
    ///
    /// # Errors
    /// `NotAVault`, `Malformed`, …: as `read_config`; `Store`.
    pub fn lock_config(path: &Path) -> Result<ConfigLock> {
        let (store, _) = read_config_in(path)?;
        ConfigLock::take(&store, FlockOperation::LockExclusive).map_err(failed("cannot lock", path))
    }

    /// Replaces the configuration of the vault at `path`, mounted or not: after a crash the old one or the
    /// new one is there. Owner and permissions stay.
    ///
    /// # Errors
    /// `NotAVault`, `ReadOnlyStore`, `Store`.
    pub fn write_config(path: &Path, config: &VaultConfig) -> Result<()> {
        let store = open_vault(path)?;
        let old = store.node(OsStr::new(CONFIG_FILE)).map_err(not_a_vault(path))?;
        put(&store, CONFIG_FILE, config.to_json().as_bytes(), Some(&old))
            .map_err(failed("cannot write to", path))
    }
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

/// The vault's directory and its configuration.
pub(super) fn read_config_in(path: &Path) -> Result<(StoreDir, VaultConfig)> {
    let store = open_vault(path)?;
    let fd = store.open_file(OsStr::new(CONFIG_FILE), OFlags::RDONLY).map_err(not_a_vault(path))?;
    let text = read_text(DirFile::new(fd)).map_err(failed("cannot read the configuration of", path))?;
    Ok((store, VaultConfig::parse(&text)?))
}

/// Whether the store's filesystem is mounted read-only.
pub(super) fn is_store_read_only(store: &StoreDir) -> bool {
    store.space().is_ok_and(|space| space.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Refuses plain names where two that differ only in case are one file: one would be written over the other, and
/// over the vault's own. (Of encrypted names no two differ only in case.)
pub(super) fn require_case(store: &StoreDir, names: NameMode, path: &Path) -> Result<()> {
    // Some filesystems give each spelling an inode number of its own; what is in the file tells.
    let content = |name: &str| {
        let fd = store.open_file(OsStr::new(name), OFlags::RDONLY)?;
        read_text(DirFile::new(fd))
    };
    if names == NameMode::Plain
        && let Ok(other) = content(&DIR_ID_NAME.to_ascii_uppercase())
        && content(DIR_ID_NAME).is_ok_and(|own| own == other)
    {
        return Err(OpenError::FoldsCase(path.into()));
    }
    Ok(())
}

/// One byte more than a configuration may have, so that parsing sees one that is too long.
fn read_text(file: DirFile) -> io::Result<Vec<u8>> {
    if FileType::from_raw_mode(rustix::fs::fstat(&*file.fd())?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = vec![0; TEXT_MAX + 1];
    let n = file.read_at(&mut text, 0)?;
    text.truncate(n);
    Ok(text)
}

fn open_vault(path: &Path) -> Result<StoreDir> {
    StoreDir::open_path(path).map_err(not_a_vault(path))
}

/// The directory at `path`, made if there is none; only left-overs of an earlier try may be in it.
fn new_or_empty(path: &Path) -> Result<StoreDir> {
    let made = DirBuilder::new().mode(0o700).create(path);
    match made {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed("cannot make", path)(e)),
        _ => {}
    }
    let store = StoreDir::open_path(path).map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::NOTDIR) => OpenError::NotEmpty(path.into()),
        _ => failed("cannot open", path)(e),
    })?;
    let listed = store.list().map_err(failed("cannot list", path))?;
    if listed.iter().any(|entry| entry.name == CONFIG_FILE) {
        return Err(OpenError::AlreadyVault(path.into()));
    }
    let left_over = |name: &OsStr| {
        name == DIR_ID_NAME || name == LOCK_FILE || name.as_bytes().starts_with(TEMPORARY.as_bytes())
    };
    if !listed.iter().all(|entry| left_over(&entry.name)) {
        return Err(OpenError::NotEmpty(path.into()));
    }
    Ok(store)
}

/// Puts a file in place whole and durable, with the owner and permissions of `like`.
fn put(store: &StoreDir, name: &str, content: &[u8], like: Option<&Node>) -> io::Result<()> {
    let temporary = temporary_name()?;
    let file = DirFile::new(store.create_file(&temporary, 0o600)?);
    let written = fill(&file, content, like).and_then(|()| store.rename(&temporary, store, OsStr::new(name)));
    if let Err(e) = written {
        // The write's error counts.
        let _ = store.unlink(&temporary);
        return Err(e);
    }
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

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> OpenError {
    move |source| match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnlyStore,
        _ => OpenError::Store { action, path: path.into(), source },
    }
}
