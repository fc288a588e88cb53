//! What commands do about secrets before a vault is open: the one that opens it, and those that are shown.

use super::{
    anchor,
    args::UnlockArgs,
    exit::{Code, Failure, Outcome},
    password, print,
    progress::Spinner,
    reverse, rights, vaults,
};
use crate::{
    format::{config::VaultConfig, key_slot::SlotKind},
    fuse::Reach,
    vault::{OpenOptions, Unlock, Vault},
};
use std::{path::Path, sync::Arc};

/// The secret that opens the vault. Asks for it only if the vault has a slot of its kind.
///
/// # Errors
/// If the vault has none, or the secret cannot be had.
pub fn present(vault: &Path, args: &UnlockArgs) -> Outcome<Unlock> {
    secret(&vaults::read(vault)?, args)
}

/// The same, of a plain directory with a reverse view, too.
///
/// # Errors
/// As `present`.
pub fn present_for_keys(place: &Path, args: &UnlockArgs) -> Outcome<Unlock> {
    secret(&reverse::read_either(place)?, args)
}

/// Opens a vault for reading; it may be mounted at the same time.
///
/// # Errors
/// As `open_with`.
pub fn open(vault: &Path, args: &UnlockArgs, reach: Option<&mut Reach>) -> Outcome<Arc<Vault>> {
    open_with(vault, args, OpenOptions { read_only: true, ..OpenOptions::default() }, reach)
}

/// Opens a vault. An anchor that is new takes the vault as it is. Before that, the process gives up its rights to everything but
/// the vault and `reach`; without one it keeps them.
///
/// # Errors
/// As `present`, or if the vault cannot be opened.
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

/// The secret that opens a configuration; as `present`.
///
/// # Errors
/// As `present`.
pub fn secret(config: &VaultConfig, args: &UnlockArgs) -> Outcome<Unlock> {
    password::unlock(args, require_slot(config, args)?)
}

/// The kind of secret that the arguments name, for which the vault has a slot.
///
/// # Errors
/// If it has none; the message lists the kinds it has.
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
/// If nobody read it.
pub fn show(what: &str, text: &str) -> Outcome {
    let gone = || Failure::plain(Code::Failed, "its reader has gone away");
    let heard = print(text).and_then(|_| print("\n"));
    heard.and_then(|heard| heard.then_some(()).ok_or_else(gone)).map_err(|failure| {
        Failure::plain(failure.code, format!("the {what} was not printed: {}", failure.message))
    })
}
