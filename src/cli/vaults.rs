//! Operations on a vault that is not mounted, and the exit codes for their errors.

use super::{
    anchor,
    exit::{Code, Failure, Outcome},
};
use crypto::{kdf::Argon2Cost, secret::Secret};
use format::{
    config::{ConfigError, Settings, VaultConfig},
    key_slot::{NewSlot, SlotError, SlotSecret},
    name::{CONFIG_COPY, CONFIG_FILE},
};
use reverse::CONFIG;
use std::{
    fmt::Display,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};
use vault::{NewPlace, OpenError, Unlock, Vault};

/// The exit code and message for a vault that cannot be opened or changed.
pub fn explain(error: OpenError) -> Failure {
    let code = match &error {
        OpenError::NotAVault(_) => Code::NotAVault,
        OpenError::UnknownVersion(_) => Code::UnknownVersion,
        OpenError::Malformed(_)
        | OpenError::Edited
        | OpenError::NoConfig(_)
        | OpenError::CopiesDiffer
        | OpenError::TwoHistories(..) => Code::ConfigEdited,
        OpenError::WrongSecret(_) => Code::WrongKey,
        OpenError::NoSlot(_) => Code::NoSuchSlot,
        OpenError::Config(error) => code_of(error),
        OpenError::Locked | OpenError::Changing | OpenError::Shared => Code::AlreadyMounted,
        OpenError::NotShared(_) => Code::Usage,
        OpenError::ReadOnlyStore => Code::ReadOnlyStore,
        OpenError::NotEmpty(_) | OpenError::AlreadyVault(_) => Code::InitTargetInUse,
        OpenError::Store { action, path, source } => {
            return Failure::io(format!("{action} {}", path.display()), source);
        }
        OpenError::Engine(error) => return no_gpu(error),
        OpenError::Anchor(error) => return anchor::explain(error),
        OpenError::FoldsCase(_)
        | OpenError::NamesTooShort(_)
        | OpenError::DamagedRoot(_)
        | OpenError::OtherVault(_) => Code::Failed,
    };
    Failure::plain(code, error)
}

/// The failure of `--engine gpu` without a working GPU. Only a GPU engine can be missing.
pub fn no_gpu(why: impl Display) -> Failure {
    let advice = "Use --engine auto or --engine cpu: the result is the same.";
    Failure::new(Code::NoGpu, format!("there is no GPU engine: {why}"), advice)
}

/// The exit code for an error that [`OpenError`] wraps as a whole.
fn code_of(error: &ConfigError) -> Code {
    match error {
        ConfigError::Recovery(_) => Code::WrongKey,
        ConfigError::NoSuchSlot(_) => Code::NoSuchSlot,
        ConfigError::Slot(SlotError::TooMuchMemory(_)) => Code::TooMuchMemory,
        ConfigError::Slot(SlotError::CostTooHigh { .. } | SlotError::CostTooLow) => Code::ConfigEdited,
        ConfigError::Slot(SlotError::BadLabel | SlotError::KeyFileSize(_)) | ConfigError::LastSlot => {
            Code::Usage
        }
        _ => Code::Failed,
    }
}

/// The configuration, checked for form only.
///
/// # Errors
/// If there is no vault, or its version is unknown.
pub fn read(vault: &Path) -> Outcome<VaultConfig> {
    if is_plain(vault) {
        return Err(Failure::new(
            Code::NotAVault,
            format!("{}: a directory of plain files, not a vault", vault.display()),
            "`warpcrypt mount --reverse` shows it as one. `passwd` and `key` change its keys; all else is for copies of the view.",
        ));
    }
    Vault::read_config(vault).map_err(explain)
}

/// Whether this is a directory of plain files with the configuration of a reverse view, and not a vault.
pub fn is_plain(place: &Path) -> bool {
    place.join(CONFIG).is_file() && !place.join(CONFIG_FILE).exists() && !place.join(CONFIG_COPY).exists()
}

/// Creates a vault that `first` opens.
///
/// # Errors
/// If the directory cannot be written.
pub fn make(place: &NewPlace, settings: Settings, first: &Unlock, cost: Argon2Cost) -> Outcome {
    with_secret(first, |secret| {
        let slot = NewSlot { secret, cost, created: now(), label: None };
        place.make(settings, &slot).map(|_| ()).map_err(explain)
    })
}

/// Unlocks, changes the configuration and stores it. `change` gets the id of the slot that opened the
/// vault and the master key. It is called again if another process changes the configuration meanwhile.
/// Keys are derived before the configuration is locked, because mounts that share the vault need that
/// lock to create names in the root.
///
/// # Errors
/// If unlocking, the change or the store fails. The stored configuration is then unchanged.
pub fn change<T>(
    vault: &Path,
    unlock: &Unlock,
    change: impl Fn(&mut VaultConfig, u32, &Secret<32>) -> Outcome<T>,
) -> Outcome<T> {
    loop {
        let (present, opened, master) = Vault::unlock_config(vault, unlock).map_err(explain)?;
        let mut config = present.clone();
        let result = change(&mut config, opened, &master)?;
        let alone = Vault::lock_config(vault).map_err(explain)?;
        if alone.is_still(vault, &present, &master).map_err(explain)? {
            alone.write(vault, &config).map_err(explain)?;
            return Ok(result);
        }
    }
}

/// Passes a secret to `f` in the form that key slots take.
///
/// # Errors
/// Those of `f`; also if the text is not a recovery key.
pub fn with_secret<T>(unlock: &Unlock, f: impl FnOnce(SlotSecret) -> Outcome<T>) -> Outcome<T> {
    unlock.with_secret(f).map_err(explain)?
}

/// Unix time in seconds.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::{cipher::Cipher, integrity::Integrity};
    use format::{key_slot::DEFAULT_COST, name::NameMode};

    #[test]
    fn a_change_locks_nothing_while_it_derives_keys_and_overwrites_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let key = |byte: u8| Unlock::KeyFile(vec![byte; 16].into());
        let settings =
            Settings { cipher: Cipher::Aes256, integrity: Integrity::Kmac128, names: NameMode::Encrypted };
        let secret = SlotSecret::KeyFile(&[0; 16]);
        let slot = NewSlot { secret, cost: DEFAULT_COST, created: 0, label: None };
        Vault::init(dir.path(), settings, &slot).unwrap();
        let first = key(0);
        let add = |config: &mut VaultConfig, master: &Secret<32>, byte| {
            let secret = SlotSecret::KeyFile(&[byte; 16]);
            let new = NewSlot { secret, cost: DEFAULT_COST, created: 0, label: None };
            config.add(master, &new).map_err(|e| explain(e.into()))
        };
        let calls = std::cell::Cell::new(0);
        let added = change(dir.path(), &first, |config, _, master| {
            calls.set(calls.get() + 1);
            let id = std::fs::File::open(dir.path().join("warpcrypt.dir")).unwrap();
            id.try_lock_shared().expect("the root takes names");
            drop(id);
            if calls.get() == 1 {
                change(dir.path(), &first, |config, _, master| add(config, master, 1))?;
            }
            add(config, master, 2)
        });
        assert_eq!((added.ok(), calls.get()), (Some(3), 2));
        for byte in 0..3 {
            Vault::unlock_config(dir.path(), &key(byte)).unwrap();
        }
    }
}
