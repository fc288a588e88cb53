//! `key rotate`: another master key for a vault.

use super::{
    args::RotateArgs,
    exit::{Code, Failure, Outcome},
    log,
    progress::{Late, Spinner},
    quoting::shell_word,
    signals::Interrupt,
    tell, unlocking, vaults,
};
use crate::{
    crypto::secret::Secret,
    format::{config::VaultConfig, key_slot::NewSlot},
    vault::{OpenOptions, Rotated, Step, Unlock, Vault},
};
use std::{path::Path, sync::Arc};

/// Runs `key rotate`.
pub fn run(args: &RotateArgs) -> Outcome {
    log::to_standard_error();
    let unlock = unlocking::present(&args.vault, &args.unlock)?;
    let interrupt = Interrupt::watch()?;
    let vault = {
        let _spinner = Spinner::start("unlocking");
        Vault::open(&args.vault, &unlock, OpenOptions::default()).map_err(vaults::explain)?
    };
    if vault.is_rotating() {
        tell("Going on with the rotation that was begun.\n");
    } else {
        let (config, master) = begin(args, &unlock, &interrupt)?;
        vault.take_up(&config, &master).map_err(|e| Failure::plain(Code::Failed, e))?;
    }
    let rotated = rewrite(&vault, &interrupt);
    let stored = vault.shut_down().map_err(|e| Failure::plain(Code::Failed, e));
    conclude(&args.vault, rotated?)?;
    stored
}

/// Gives the vault another master key: the configuration is in place when this returns.
fn begin(args: &RotateArgs, unlock: &Unlock, interrupt: &Interrupt) -> Outcome<(VaultConfig, Secret<32>)> {
    let _spinner = Spinner::start("making a new key");
    let _locked = Vault::lock_config(&args.vault).map_err(vaults::explain)?;
    let (config, opened, master) = Vault::unlock_config(&args.vault, unlock).map_err(vaults::explain)?;
    let others: Vec<String> =
        config.slots().iter().filter(|slot| slot.id != opened).map(|slot| slot.id.to_string()).collect();
    if !others.is_empty() && !args.drop_other_slots {
        return Err(Failure::new(
            Code::Usage,
            format!(
                "the vault has other key slots ({}), which would not open it any more",
                others.join(", ")
            ),
            "Each secret has to be there for its slot to stay. With --drop-other-slots they go; add new ones with \
             `warpcrypt key add` or `warpcrypt key recovery`.",
        ));
    }
    let rotated = vaults::with_secret(unlock, |secret| {
        let new = NewSlot { secret, cost: args.cost.cost(), created: vaults::now(), label: None };
        config.rotate(&master, opened, &new).map_err(|e| vaults::explain(e.into()))
    })?;
    interrupt.check()?;
    Vault::write_config(&args.vault, &rotated.0).map_err(vaults::explain)?;
    Ok(rotated)
}

fn rewrite(vault: &Arc<Vault>, interrupt: &Interrupt) -> Outcome<Rotated> {
    let mut late = Late::start();
    let rotated = vault.rotate(&mut |step| {
        match step {
            Step::Directory => late.bytes(0),
            Step::Rewritten(bytes) => {
                late.bytes(bytes);
                late.file();
            }
            Step::Left(path, reason) => late.say(&format!("{}: {reason}", path.display())),
        }
        interrupt.check().is_ok()
    });
    rotated.map_err(|e| Failure::plain(Code::Failed, e))
}

fn conclude(vault: &Path, rotated: Rotated) -> Outcome {
    let again = |what: &str| {
        format!(
            "{what} The vault can be used as always, and `warpcrypt key rotate {}` goes on.",
            shell_word(vault)
        )
    };
    match rotated {
        Rotated::Whole { aside } => {
            tell(
                "Everything is under a new master key. What was copied before opens with the old one still: copies of the vault, \
                 backups of its configuration, printed master secrets. Print a new master secret.\n",
            );
            if aside > 0 {
                tell(&format!(
                    "{aside} copies of damaged files that `check --repair` set aside are under the old key, and of no use any more.\n"
                ));
            }
            Ok(())
        }
        Rotated::Stopped => Err(Failure { code: Code::Interrupted, message: again("Interrupted.") }),
        Rotated::Left => Err(Failure {
            code: Code::Unreadable,
            message: again(
                "Some files stay under the old key: repair them with `warpcrypt check --repair`, or remove them.",
            ),
        }),
    }
}
