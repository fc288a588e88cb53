//! Creating a vault.

use super::{
    OpenError, Vault,
    config_file::{failed, in_place, put_both, read_text, write_temporary},
    names::temporary_name,
};
use format::{
    config::{ConfigError, Settings, VaultConfig},
    dir_id::{DirId, DirIdKey},
    key_slot::NewSlot,
    name::{CONFIG_COPY, CONFIG_FILE, DIR_ID_NAME, LOCK_FILE, NameMode, TEMPORARY},
};
use rustix::{
    fs::{FlockOperation, OFlags, StatVfsMountFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::{DirBuilder, File},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
};
use store::{DirFile, Flock, StoreDir};

type Result<T> = std::result::Result<T, OpenError>;

/// The directory for a new vault. As long as this exists, other processes cannot create one there.
pub struct NewPlace {
    path: PathBuf,
    store: StoreDir,
    /// Whether the directory was created for the vault, and whether it was empty.
    is_new: bool,
    was_empty: bool,
    /// `None` if the store cannot lock directories.
    _alone: Option<Flock>,
}

impl Vault {
    /// Creates a vault with one key slot at `path`, which must be new or empty.
    ///
    /// # Errors
    /// Those of [`NewPlace::at`] and [`NewPlace::make`].
    pub fn init(path: &Path, settings: Settings, first: &NewSlot) -> Result<VaultConfig> {
        NewPlace::at(path)?.make(settings, first)
    }
}

impl NewPlace {
    /// Opens the directory at `path`, and creates it if it is missing. It may contain only leftovers of
    /// an earlier attempt. Blocks while another process creates a vault there.
    ///
    /// # Errors
    /// `AlreadyVault`, `NotEmpty`, `ReadOnlyStore`, `Store`.
    pub fn at(path: &Path) -> Result<Self> {
        let is_new = match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => false,
            Err(e) => return Err(failed("cannot make", path)(e)),
        };
        let store = StoreDir::open_path(path).map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::NOTDIR) => OpenError::NotEmpty(path.into()),
            _ => failed("cannot open", path)(e),
        })?;
        let alone = store.lock(FlockOperation::LockExclusive).ok();
        let was_empty = require_free(&store, path)?;
        Ok(NewPlace { path: path.into(), store, is_new, was_empty, _alone: alone })
    }

    /// `names`, or `EncryptedShort` in place of `Encrypted` if the store refuses the longest stored names.
    ///
    /// # Errors
    /// `NamesTooShort`, `ReadOnlyStore`, `Store`.
    pub fn fitting(&self, names: NameMode) -> Result<NameMode> {
        match names {
            // Plain names are limited by the store.
            NameMode::Plain => return Ok(names),
            // Any error counts: servers report a name that is too long in different ways.
            NameMode::Encrypted if self.try_name(names.stored_max()).is_ok() => return Ok(names),
            NameMode::Encrypted | NameMode::EncryptedShort => {}
        }
        let short = NameMode::EncryptedShort;
        match self.try_name(short.stored_max()) {
            Ok(()) => Ok(short),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NAMETOOLONG) => {
                Err(OpenError::NamesTooShort(self.path.clone()))
            }
            Err(e) => Err(failed("cannot write to", &self.path)(e)),
        }
    }

    /// Creates and removes a file whose name has `len` bytes. The limit that statfs reports is not always
    /// the actual one, and a lookup of a name that is too long may just find nothing.
    fn try_name(&self, len: usize) -> io::Result<()> {
        let mut name = temporary_name()?.into_vec();
        name.resize(len, b'n');
        let name = OsStr::from_bytes(&name);
        self.store.create_file(name, 0o600)?;
        self.store.unlink(name)
    }

    /// Creates a vault there, with one key slot.
    ///
    /// # Errors
    /// `ReadOnlyStore`, `Config` for a slot that cannot be created, `FoldsCase`, `Store`.
    pub fn make(&self, settings: Settings, first: &NewSlot) -> Result<VaultConfig> {
        let (config, master) = VaultConfig::create(settings, first)?;
        let id = DirId::random().map_err(ConfigError::Random)?;
        let id = DirIdKey::derive(&master).encode(&id);
        self.write(&id).map_err(failed("cannot write to", &self.path))?;
        require_case(&self.store, settings.names, &self.path)?;
        // Write the configuration last: a directory that has one is a complete vault.
        put_both(&self.store, &config).map_err(failed("cannot write to", &self.path))?;
        Ok(config)
    }

    /// Writes the root's id, and makes the directory itself durable if it is new.
    fn write(&self, id: &[u8]) -> io::Result<()> {
        if self.is_new
            && let Ok(parent) = File::open(self.path.join(".."))
        {
            parent.sync_all()?;
        }
        in_place(&self.store, &write_temporary(&self.store, id, None)?, DIR_ID_NAME)
    }

    /// Removes everything that `make` created if the directory was empty before, and the directory
    /// itself if `at` created it.
    pub fn unmake(&self) {
        if self.was_empty {
            for name in [CONFIG_FILE, CONFIG_COPY, DIR_ID_NAME] {
                let _ = self.store.unlink(OsStr::new(name));
            }
        }
        if self.is_new {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// Whether the store's filesystem is mounted read-only.
pub(super) fn is_store_read_only(store: &StoreDir) -> bool {
    store.space().is_ok_and(|space| space.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Refuses plain names on a store that folds case: two names that differ only in case would be one file,
/// and one could overwrite the other or an internal file of the vault. (No two encrypted names differ
/// only in case.)
pub(super) fn require_case(store: &StoreDir, names: NameMode, path: &Path) -> Result<()> {
    // Some filesystems give each spelling its own inode number, so compare the content.
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

/// Refuses a directory that contains anything but leftovers of an earlier attempt. Returns whether it is
/// empty.
fn require_free(store: &StoreDir, path: &Path) -> Result<bool> {
    let listed = store.list().map_err(failed("cannot list", path))?;
    if listed.iter().any(|entry| entry.name == CONFIG_FILE || entry.name == CONFIG_COPY) {
        return Err(OpenError::AlreadyVault(path.into()));
    }
    let left_over = |name: &OsStr| {
        name == DIR_ID_NAME || name == LOCK_FILE || name.as_bytes().starts_with(TEMPORARY.as_bytes())
    };
    if !listed.iter().all(|entry| left_over(&entry.name)) {
        return Err(OpenError::NotEmpty(path.into()));
    }
    Ok(listed.is_empty())
}
