//! Making a vault.

use super::{
    OpenError, Vault,
    config_file::{failed, in_place, put_both, read_text, write_temporary},
};
use crate::{
    format::{
        config::{ConfigError, Settings, VaultConfig},
        dir_id::{DirId, DirIdKey},
        key_slot::NewSlot,
        name::{CONFIG_COPY, CONFIG_FILE, DIR_ID_NAME, LOCK_FILE, NameMode, TEMPORARY},
    },
    store::{DirFile, StoreDir},
};
use rustix::{
    fs::{OFlags, StatVfsMountFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::DirBuilder,
    io,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
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
        let put_id = write_temporary(&store, &id, None).and_then(|new| in_place(&store, &new, DIR_ID_NAME));
        put_id.map_err(failed("cannot write to", path))?;
        require_case(&store, settings.names, path)?;
        // The configuration last: what has one is a whole vault.
        put_both(&store, &config).map_err(failed("cannot write to", path))?;
        Ok(config)
    }
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
    if listed.iter().any(|entry| entry.name == CONFIG_FILE || entry.name == CONFIG_COPY) {
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
