//! `passwd` and `key`: change a vault's key slots. They rewrite only the configuration, not the files.

use super::{
    args::{KeyAction, PasswdArgs, UnlockArgs},
    backup,
    deferred::Deferred,
    exit::{Code, Failure, Outcome},
    info, password,
    progress::Spinner,
    reverse, rotate,
    signals::Interrupt,
    tell, unlocking, vaults,
};
use crypto::{kdf::Argon2Cost, secret::Secret};
use format::{
    config::VaultConfig,
    key_slot::{DEFAULT_COST, KeySlot, NewSlot, SlotKind, SlotSecret},
    recovery_key::RecoveryKey,
};
use std::{cell::Cell, path::Path};
use vault::Unlock;

/// Runs `key`.
pub fn run(action: &KeyAction) -> Outcome {
    match action {
        KeyAction::List { vault, json } => info::list(vault, *json),
        KeyAction::Add { vault, label, unlock, new, cost } => {
            let secret = Deferred::new(|| password::new_secret(new));
            secret.get_if(new.is_early())?;
            let present = unlocking::present_for_keys(vault, unlock)?;
            let id = changed(vault, &present, |config, _, master, interrupt| {
                add(config, master, secret.get()?, cost.cost(), label.as_deref(), interrupt)
            })?;
            tell(&format!("Added key slot {id}.\n"));
            Ok(())
        }
        KeyAction::Remove { vault, slot, unlock } => {
            reverse::read_either(vault)?.removable(*slot).map_err(|e| vaults::explain(e.into()))?;
            let present = unlocking::present_for_keys(vault, unlock)?;
            changed(vault, &present, |config, _, master, _| remove(config, master, *slot))?;
            tell(&format!("Removed key slot {slot}. Copies of the old warpcrypt.json still open with it.\n"));
            Ok(())
        }
        KeyAction::Recovery { vault, unlock } => recovery(vault, unlock),
        KeyAction::Backup { vault, file } => backup::backup(vault, file),
        KeyAction::Restore(args) => backup::restore(args),
        KeyAction::Rotate(args) => rotate::run(args),
        KeyAction::Master { vault, unlock } => backup::master(vault, unlock),
    }
}

/// Runs `passwd`.
pub fn passwd(args: &PasswdArgs) -> Outcome {
    let new = Deferred::new(|| password::new_password(&args.new));
    new.get_if(args.new.is_early())?;
    let present = unlocking::present_for_keys(&args.vault, &args.unlock)?;
    let cost = args.cost.cost();
    let added = changed(&args.vault, &present, |config, opened, master, interrupt| {
        let replaced = replaced_slot(config, opened)?;
        let new = password::in_place_of(&present, Unlock::Password(new.get()?.clone()));
        match replaced {
            Some(id) => replace(config, master, id, &new, cost, interrupt).map(|()| None),
            None => add(config, master, &new, cost, None, interrupt).map(Some),
        }
    })?;
    match added {
        None => tell("Changed the password. Copies of the old warpcrypt.json still open with the old one.\n"),
        Some(id) => tell(&format!("Added key slot {id}. The old secret still opens the vault.\n")),
    }
    Ok(())
}

fn changed<T>(
    vault: &Path,
    present: &Unlock,
    change: impl Fn(&mut VaultConfig, u32, &Secret<32>, &Interrupt) -> Outcome<T>,
) -> Outcome<T> {
    let interrupt = Interrupt::watch()?;
    let spinner = Cell::new(Some(Spinner::start("unlocking")));
    reverse::change_either(vault, present, |config, opened, master| {
        interrupt.check()?;
        // `change` may prompt for the new secret, and the spinner must not draw over the prompt.
        drop(spinner.take());
        change(config, opened, master, &interrupt)
    })
}

fn add(
    config: &mut VaultConfig,
    master: &Secret<32>,
    new: &Unlock,
    cost: Argon2Cost,
    label: Option<&str>,
    interrupt: &Interrupt,
) -> Outcome<u32> {
    let _spinner = Spinner::start("making the key slot");
    vaults::with_secret(new, |secret| {
        let id = config.add(master, &NewSlot { secret, cost, created: vaults::now(), label });
        interrupt.check()?;
        id.map_err(|e| vaults::explain(e.into()))
    })
}

fn replace(
    config: &mut VaultConfig,
    master: &Secret<32>,
    slot: u32,
    new: &Unlock,
    cost: Argon2Cost,
    interrupt: &Interrupt,
) -> Outcome {
    let _spinner = Spinner::start("making the key slot");
    vaults::with_secret(new, |secret| {
        let replaced =
            config.replace(master, slot, &NewSlot { secret, cost, created: vaults::now(), label: None });
        interrupt.check()?;
        replaced.map_err(|e| vaults::explain(e.into()))
    })
}

fn remove(config: &mut VaultConfig, master: &Secret<32>, slot: u32) -> Outcome {
    config.remove(master, slot).map_err(|e| vaults::explain(e.into()))
}

/// The slot that a new password replaces: the slot that opened the vault if it takes a password,
/// otherwise the only password slot. `None` if there is no password slot.
fn replaced_slot(config: &VaultConfig, opened: u32) -> Outcome<Option<u32>> {
    let both = |slot: &KeySlot| slot.id == opened && slot.kind() == SlotKind::PasswordAndKeyFile;
    if config.slots().iter().any(both) {
        return Ok(Some(opened));
    }
    let mut passwords = config.slots().iter().filter(|s| s.kind() == SlotKind::Password).map(|s| s.id);
    if passwords.clone().any(|id| id == opened) {
        return Ok(Some(opened));
    }
    let first = passwords.next();
    if passwords.next().is_none() {
        return Ok(first);
    }
    Err(Failure::new(
        Code::Usage,
        "the vault has several passwords, and it is not clear which one to change",
        "Add the new one with `warpcrypt key add` and remove the old with `warpcrypt key remove`.",
    ))
}

fn recovery(vault: &Path, unlock: &UnlockArgs) -> Outcome {
    let present = unlocking::present_for_keys(vault, unlock)?;
    let key = RecoveryKey::generate().map_err(|e| Failure::io("random bytes", &e))?;
    let secret = SlotSecret::Recovery(&key);
    let new = NewSlot { secret, cost: DEFAULT_COST, created: vaults::now(), label: None };
    let id = changed(vault, &present, |config, _, master, _| {
        config.add(master, &new).map_err(|e| vaults::explain(e.into()))
    })?;
    eprintln!("Key slot {id} opens with this recovery key. Write it down: it is not shown again.");
    unlocking::show("recovery key", &key.to_text()).map_err(|failure| Failure {
        message: format!(
            "{}\nRemove its slot with `warpcrypt key remove` ({id}) and make another.",
            failure.message
        ),
        ..failure
    })
}
