//! Obtains secrets before a vault is opened, and prints secrets.

use super::{
    anchor,
    args::UnlockArgs,
    exit::{Code, Failure, Outcome},
    password, print,
    progress::Spinner,
    reverse, rights, vaults,
};
use format::{config::VaultConfig, key_slot::SlotKind};
use fuse::Reach;
use std::{path::Path, sync::Arc};
use vault::{OpenOptions, Unlock, Vault};

/// The secret that opens the vault. Prompts for it only if the vault has a slot of its kind.
///
/// # Errors
/// If the vault has no such slot, or the secret cannot be read.
pub fn present(vault: &Path, args: &UnlockArgs) -> Outcome<Unlock> {
    secret(&vaults::read(vault)?, args)
}

/// As [`present`], but also for a plain directory with a reverse view.
///
/// # Errors
/// Those of [`present`].
pub fn present_for_keys(place: &Path, args: &UnlockArgs) -> Outcome<Unlock> {
    secret(&reverse::read_either(place)?, args)
}

/// Opens a vault for reading. It may be mounted at the same time.
///
/// # Errors
/// Those of [`open_with`].
pub fn open(vault: &Path, args: &UnlockArgs, reach: Option<&mut Reach>) -> Outcome<Arc<Vault>> {
    open_with(vault, args, OpenOptions { read_only: true, ..OpenOptions::default() }, reach)
}

/// Opens a vault; a new anchor records its current state. If `reach` is given, first gives up all rights
/// except to the vault and `reach`.
///
/// # Errors
/// Those of [`present`]; also if the vault cannot be opened.
pub fn open_with(
    vault: &Path,
    args: &UnlockArgs,
    options: OpenOptions,
    reach: Option<&mut Reach>,
) -> Outcome<Arc<Vault>> {
    let unlock = present(vault, args)?;
    if let Some(reach) = reach {
        rights::give_up(reach, vault, &options);
    }
    let wanted = options.anchor.clone();
    let opened = {
        let _spinner = Spinner::start("unlocking");
        Vault::open(vault, &unlock, options).map_err(vaults::explain)?
    };
    opened.require_a_name().map_err(|e| Failure::plain(Code::Failed, e))?;
    anchor::take_if_new(&opened, wanted.as_ref())?;
    Ok(opened)
}

/// The secret that opens a configuration, as for [`present`].
///
/// # Errors
/// Those of [`present`].
pub fn secret(config: &VaultConfig, args: &UnlockArgs) -> Outcome<Unlock> {
    password::unlock(args, require_slot(config, args)?)
}

/// The kind of secret that the arguments select, for which the vault has a slot.
///
/// # Errors
/// If it has none. The message lists the kinds that it has.
pub fn require_slot(config: &VaultConfig, args: &UnlockArgs) -> Outcome<SlotKind> {
    let kind = password::kind(args, config.slots());
    if config.slots().iter().any(|slot| slot.kind() == kind) {
        return Ok(kind);
    }
    let mut kinds: Vec<String> = config.slots().iter().map(|slot| slot.kind().to_string()).collect();
    kinds.sort();
    kinds.dedup();
    Err(Failure::new(
        Code::NoSuchSlot,
        format!("the vault has no key slot for a {kind}"),
        format!("It opens with: {}.", kinds.join(", ")),
    ))
}

/// Prints a secret to standard output.
///
/// # Errors
/// If it was not printed, or the reader has gone away.
pub fn show(what: &str, text: &str) -> Outcome {
    let gone = || Failure::plain(Code::Failed, "its reader has gone away");
    let heard = print(text).and_then(|_| print("\n"));
    heard.and_then(|heard| heard.then_some(()).ok_or_else(gone)).map_err(|failure| {
        Failure::plain(failure.code, format!("the {what} was not printed: {}", failure.message))
    })
}
