//! What the commands ask of a vault that is not mounted, and what its refusals mean to a person.

use super::{
    exit::{Code, Failure, Outcome},
    signals::Interrupt,
};
use crate::{
    crypto::secret::Secret,
    format::{
        config::{ConfigError, Settings, VaultConfig},
        recovery::RecoveryKey,
        slot::{DEFAULT_COST, NewSlot, SlotSecret},
    },
    vault::{OpenError, Unlock},
};
use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// The exit code and message of a vault that does not open.
pub fn explain(error: OpenError) -> Failure {
    if let OpenError::Config(error) = error {
        return explain_config(error);
    }
    let code = match &error {
        OpenError::NotAVault(_) => Code::NotAVault,
        OpenError::UnknownVersion(_) => Code::UnknownVersion,
        OpenError::Malformed(_) | OpenError::Edited => Code::ConfigEdited,
        OpenError::WrongSecret(_) => Code::WrongKey,
        OpenError::NoSlot(_) => Code::NoSuchSlot,
        OpenError::Locked => Code::AlreadyMounted,
        OpenError::ReadOnlyStore => Code::ReadOnlyStore,
        OpenError::NotEmpty(_) | OpenError::AlreadyVault(_) => Code::InitTargetInUse,
        OpenError::Store { action, path, source } => {
            return Failure::io(format!("{action} {}", path.display()), source);
        }
        OpenError::Config(_) | OpenError::DamagedRoot(_) | OpenError::Engine(_) => Code::Failed,
    };
    Failure::plain(code, error)
}

/// The exit code and message of a change that the configuration refuses.
pub fn explain_config(error: ConfigError) -> Failure {
    let code = match &error {
        ConfigError::WrongSecret(_) | ConfigError::Recovery(_) => Code::WrongKey,
        ConfigError::NoSlotOfThatKind(_) | ConfigError::NoSuchSlot(_) => Code::NoSuchSlot,
        ConfigError::UnknownVersion(_) => Code::UnknownVersion,
        ConfigError::Damaged { .. } | ConfigError::Edited => Code::ConfigEdited,
        ConfigError::BadLabel | ConfigError::KeyFileSize(_) | ConfigError::LastSlot => Code::Usage,
        _ => Code::Failed,
    };
    Failure::plain(code, error)
}

/// The configuration, checked for shape only.
///
/// # Errors
/// If there is no vault, or none that this program knows.
pub fn read(_vault: &Path) -> Outcome<VaultConfig> {
    todo!()
}

/// Makes a vault that `first` opens.
///
/// # Errors
/// If the directory is in use or cannot be written.
pub fn make(_vault: &Path, _settings: Settings, _first: &Unlock) -> Outcome {
    todo!()
}

/// Unlocks, changes the configuration and stores it. `change` gets the id of the slot that opened.
///
/// # Errors
/// What unlocking, the change or the store refuses; the stored configuration is then as it was.
pub fn change<T>(
    _vault: &Path,
    _unlock: &Unlock,
    _change: impl FnOnce(&mut VaultConfig, u32, &Secret<32>) -> Outcome<T>,
) -> Outcome<T> {
    todo!()
}

/// Adds a slot to an unlocked configuration and returns its id.
///
/// # Errors
/// What the configuration refuses, or an interruption before anything was changed.
pub fn add_slot(
    config: &mut VaultConfig,
    master: &Secret<32>,
    secret: SlotSecret,
    label: Option<&str>,
    interrupt: &Interrupt,
) -> Outcome<u32> {
    let new = NewSlot { secret, cost: DEFAULT_COST, created: now(), label };
    let id = config.add(master, &new).map_err(explain_config)?;
    interrupt.check()?;
    Ok(id)
}

/// Calls `with` with what a slot of the configuration is made from or opened by.
///
/// # Errors
/// If a recovery key was mistyped.
pub fn slot_secret<T>(unlock: &Unlock, with: impl FnOnce(SlotSecret) -> Outcome<T>) -> Outcome<T> {
    match unlock {
        Unlock::Password(bytes) => with(SlotSecret::Password(bytes)),
        Unlock::KeyFile(bytes) => with(SlotSecret::KeyFile(bytes)),
        Unlock::Recovery(text) => {
            let key = RecoveryKey::parse(text).map_err(|e| explain_config(e.into()))?;
            with(SlotSecret::Recovery(&key))
        }
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
