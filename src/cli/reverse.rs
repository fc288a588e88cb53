//! Reverse views: the configuration in the plain directory, and opening the view.

use super::{
    exit::{Code, Failure, Outcome},
    vaults,
};
use crypto::{kdf::Argon2Cost, random, secret::Secret};
use format::{
    config::{Settings, TEXT_MAX, VaultConfig},
    key_slot::NewSlot,
};
use reverse::{CONFIG, Exclusions, ReverseKeys, Time, View};
use rustix::fs::{FlockOperation, OFlags};
use std::{
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};
use store::StoreDir;
use vault::Unlock;

/// The configuration of a plain directory, checked for form only.
///
/// # Errors
/// If there is none, or it is malformed.
pub fn read(plain: &Path) -> Outcome<VaultConfig> {
    VaultConfig::parse(&text(plain)?.0).map_err(|e| vaults::explain(e.into()))
}

/// The configuration's text, and the modification time of the same file even if it is replaced
/// meanwhile.
fn text(plain: &Path) -> Outcome<(Vec<u8>, Time)> {
    let file = plain.join(CONFIG);
    let mut text = Vec::new();
    let read = StoreDir::open_path(plain).and_then(|dir| {
        let f = File::from(dir.open_file(OsStr::new(CONFIG), OFlags::RDONLY)?);
        let of = f.metadata()?;
        f.take(TEXT_MAX as u64 + 1).read_to_end(&mut text)?;
        Ok((of.mtime(), of.mtime_nsec() as u64))
    });
    match read {
        Ok(time) => Ok((text, time)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Failure::new(
            Code::NotAVault,
            format!("{}: no such file", file.display()),
            "`warpcrypt init --reverse` makes it.",
        )),
        Err(e) => Err(Failure::io(file.display(), &e)),
    }
}

/// Creates the configuration of a plain directory.
///
/// # Errors
/// If there already is one, or it cannot be written.
pub fn make(plain: &Path, settings: Settings, first: &Unlock, cost: Argon2Cost) -> Outcome {
    let file = plain.join(CONFIG);
    let config = vaults::with_secret(first, |secret| {
        let slot = NewSlot { secret, cost, created: vaults::now(), label: None };
        VaultConfig::create(settings, &slot).map(|(config, _)| config).map_err(|e| vaults::explain(e.into()))
    })?;
    let failed = |e| Failure::io(file.display(), &e);
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).map_err(failed)?;
    new.write_all(config.to_json().as_bytes())
        .and_then(|()| new.sync_all())
        .and_then(|()| File::open(plain)?.sync_all())
        .inspect_err(|_| drop(std::fs::remove_file(&file)))
        .map_err(failed)
}

/// Rejects a directory that cannot get a configuration, before the user types a password twice.
///
/// # Errors
/// If it has a configuration, or is not a readable directory.
pub fn require_place(plain: &Path) -> Outcome {
    if plain.join(CONFIG).symlink_metadata().is_ok() {
        return Err(Failure::plain(
            Code::InitTargetInUse,
            format!("{} has a {CONFIG} already", plain.display()),
        ));
    }
    std::fs::read_dir(plain).map(drop).map_err(|e| Failure::io(plain.display(), &e))
}

/// The configuration of a vault or a plain directory, checked for form only.
///
/// # Errors
/// If there is none, or it is malformed.
pub fn read_either(place: &Path) -> Outcome<VaultConfig> {
    if vaults::is_plain(place) { read(place) } else { vaults::read(place) }
}

/// As [`vaults::change`], but also for a plain directory.
///
/// # Errors
/// Those of [`vaults::change`].
pub fn change_either<T>(
    place: &Path,
    unlock: &Unlock,
    change: impl Fn(&mut VaultConfig, u32, &Secret<32>) -> Outcome<T>,
) -> Outcome<T> {
    if vaults::is_plain(place) {
        change_plain(place, unlock, change)
    } else {
        vaults::change(place, unlock, change)
    }
}

/// Changes the configuration of a plain directory under an exclusive lock. Keeps the file's owner and
/// permissions.
fn change_plain<T>(
    plain: &Path,
    unlock: &Unlock,
    change: impl FnOnce(&mut VaultConfig, u32, &Secret<32>) -> Outcome<T>,
) -> Outcome<T> {
    let file = plain.join(CONFIG);
    let failed = |e| Failure::io(file.display(), &e);
    let store = StoreDir::open_path(plain).map_err(failed)?;
    let _alone = store.lock(FlockOperation::LockExclusive).map_err(failed)?;
    let mut config = read(plain)?;
    let (opened, master) = vaults::with_secret(unlock, |secret| {
        config.unlock_slot(&secret).map_err(|e| vaults::explain(e.into()))
    })?;
    let result = change(&mut config, opened, &master)?;
    replace(&store, &config).map_err(failed)?;
    Ok(result)
}

/// Replaces the configuration durably. The temporary name is random, because others may be able to write
/// to the directory.
fn replace(store: &StoreDir, config: &VaultConfig) -> io::Result<()> {
    let old = store.stat(OsStr::new(CONFIG))?;
    let mut random = [0; 8];
    random::fill(&mut random)?;
    let new = OsString::from(format!("{CONFIG}.{:016x}", u64::from_le_bytes(random)));
    let mut text = File::from(store.create_file(&new, 0o600)?);
    let mut write = || {
        text.write_all(config.to_json().as_bytes())?;
        std::os::unix::fs::fchown(&text, Some(old.st_uid), Some(old.st_gid))?;
        text.set_permissions(Permissions::from_mode(old.st_mode & 0o777))?;
        text.sync_all()?;
        store.rename(&new, store, OsStr::new(CONFIG))?;
        store.sync()
    };
    write().inspect_err(|_| drop(store.unlink(&new)))
}

/// Unlocks a plain directory's configuration and opens the view without the excluded nodes.
///
/// # Errors
/// If the secret does not open it, or the directory cannot be read.
pub fn view(plain: &Path, exclusions: Exclusions, unlock: &Unlock) -> Outcome<View> {
    let (text, time) = text(plain)?;
    let config = VaultConfig::parse(&text).map_err(|e| vaults::explain(e.into()))?;
    let master =
        vaults::with_secret(unlock, |secret| config.unlock(&secret).map_err(|e| vaults::explain(e.into())))?;
    View::open(plain, exclusions, ReverseKeys::derive(&config, &master), text, time)
        .map_err(|e| Failure::io(plain.display(), &e))
}
