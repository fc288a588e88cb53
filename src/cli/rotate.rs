//! `key rotate`: gives a vault a new master key and a new secret that opens it.

use super::{
    anchor,
    args::RotateArgs,
    deferred::Deferred,
    exit::{Code, Failure, Outcome},
    locking, locks, log,
    mounts::Mount,
    password,
    progress::{Late, Spinner},
    quoting::shell_word,
    signals::Interrupt,
    tell, unlocking, vaults,
};
use crypto::secret::Secret;
use engine::EngineChoice;
use format::{
    config::{ConfigError, VaultConfig},
    key_slot::{NewSlot, SlotSecret},
    name::NameMode,
};
use fuse::ControlCommand;
use reverse::ReverseKeys;
use std::{path::Path, sync::Arc};
use vault::{Begun, ConfigLock, OpenError, OpenOptions, Rotated, Step, Unlock, Vault};
use zeroize::Zeroizing;

/// Runs `key rotate`.
pub fn run(args: &RotateArgs) -> Outcome {
    log::to_standard_error();
    let begun = vaults::read(&args.vault)?.is_rotating();
    let of_begun = |failure: Failure| match failure.code {
        Code::WrongKey | Code::NoSuchSlot if begun => Failure::new(
            failure.code,
            failure.message,
            "A rotation was begun: the vault opens with the secret that was chosen for it.",
        ),
        _ => failure,
    };
    let chosen = Deferred::new(|| password::new_secret(&args.new));
    chosen.get_if(args.new.is_early() && !begun)?;
    let unlock = unlocking::present(&args.vault, &args.unlock).map_err(of_begun)?;
    let interrupt = Interrupt::watch()?;
    let prepare = || prepare(args, &unlock, chosen.get()?, &interrupt);
    let opened = {
        let _spinner = Spinner::start("unlocking");
        let anchor = anchor::wanted(args.anchor.as_deref());
        Vault::open(&args.vault, &unlock, OpenOptions { anchor, ..OpenOptions::default() })
    };
    match opened {
        Ok(vault) => {
            vault.require_a_name().map_err(|e| Failure::plain(Code::Failed, e))?;
            anchor::take_if_new(&vault, anchor::wanted(args.anchor.as_deref()).as_ref())?;
            here(args, &vault, prepare, &interrupt)
        }
        Err(OpenError::Locked) => in_mount(args, &unlock, prepare, &interrupt),
        Err(e) => Err(of_begun(vaults::explain(e))),
    }
}

/// Rewrites everything in this process.
fn here(
    args: &RotateArgs,
    vault: &Arc<Vault>,
    prepare: impl FnOnce() -> Outcome<NewMaster>,
    interrupt: &Interrupt,
) -> Outcome {
    if vault.is_rotating() {
        tell("Going on with the rotation that was begun.\n");
    } else {
        let mut new = prepare()?;
        new.list(vault, interrupt)?;
        new.write(&args.vault)?;
        vault.take_up(&new.config, &new.master).map_err(|e| Failure::plain(Code::Failed, e))?;
    }
    let rotated = rewrite(vault, interrupt);
    let stored = vault.shut_down().map_err(|e| Failure::plain(Code::Failed, e));
    conclude(&args.vault, rotated?)?;
    stored
}

/// Switches a mount to the new key. The mount is locked meanwhile, so programs wait. Nothing is written
/// under the old key in that time: this process holds the configuration lock until the new configuration
/// is written, and without that lock nobody can unlock the mount or open the vault for writing.
fn in_mount(
    args: &RotateArgs,
    unlock: &Unlock,
    prepare: impl FnOnce() -> Outcome<NewMaster>,
    interrupt: &Interrupt,
) -> Outcome {
    let mount = locking::find_for_key(&args.vault)?;
    require_writer(&mount, &args.vault)?;
    if vaults::read(&args.vault)?.is_rotating() {
        tell(
            "The mount rewrites the vault under the new key already. Its log says when that is done, and names what it could not \
             rewrite: that is tried again after `warpcrypt lock` and `warpcrypt unlock`, or at the next mount.\n",
        );
        return Ok(());
    }
    let say = |command: &ControlCommand| locking::tell_within(&mount, command, &interrupt.patience());
    let held = match say(&ControlCommand::State)?.as_str() {
        fuse::LOCKED => Some("the vault is locked: `warpcrypt unlock` it first"),
        fuse::FROZEN => Some("the vault is frozen: `warpcrypt thaw` it first"),
        _ => None,
    };
    if let Some(held) = held {
        return Err(Failure::plain(Code::Failed, held));
    }
    let mut new = prepare()?;
    let locked = say(&ControlCommand::Lock);
    // After an interruption the mount has not answered. It executes commands in order and may still lock
    // the vault, so it must be sent the unlock below.
    if locked.as_ref().is_err_and(|failure| failure.code != Code::Interrupted) {
        return locked.map(drop);
    }
    let written = locked
        .and_then(|_| interrupt.check())
        .and_then(|()| new.list_beside_mount(&args.vault, unlock, interrupt))
        .and_then(|()| new.write(&args.vault));
    drop(new.alone);
    let master = if written.is_ok() { &new.master } else { &new.former };
    let unlocked = say(&ControlCommand::Unlock(Zeroizing::new(*master.expose())));
    written?;
    unlocked?;
    tell(
        "The vault has a new master key. The mount rewrites everything under it behind the programs that use it, and after a \
         remount goes on. Its log says when that is done. What was copied before opens with the old key still.\n",
    );
    Ok(())
}

/// Rejects a read-only mount whose process does not hold the vault's lock. The writer is then another
/// process, such as `import`, which would continue under the old key. A read-only mount with the lock is
/// a writable one that was remounted.
fn require_writer(mount: &Mount, vault: &Path) -> Outcome {
    let process = fuse::process(mount.device_number(), mount.owner.unwrap_or(0));
    if mount.read_only && !process.is_ok_and(|(process, _)| locks::has_locked(process, vault)) {
        return Err(Failure::new(
            Code::AlreadyMounted,
            "another process writes to the vault, which is no mount",
            "Try again when it has ended.",
        ));
    }
    Ok(())
}

/// A new master key and the configuration for it, which is not written yet.
struct NewMaster {
    config: VaultConfig,
    master: Secret<32>,
    former: Secret<32>,
    alone: ConfigLock,
}

impl NewMaster {
    /// Adds to the configuration the list of everything that remains accepted under the former key.
    fn list(&mut self, vault: &Vault, interrupt: &Interrupt) -> Outcome {
        let late = Late::start();
        let begun = vault.list_for_rotation(&mut self.config, &self.master, &mut |step| {
            match step {
                Step::Left(path, reason) | Step::Stray(path, reason) => {
                    late.say(&format!("{}: {reason}", path.display()));
                }
                Step::Directory | Step::Rewritten(_) => late.bytes(0),
            }
            interrupt.check().is_ok()
        });
        match begun.map_err(|e| Failure::plain(Code::Failed, e))? {
            Begun::Listed => Ok(()),
            Begun::Stopped => Err(Failure::new(Code::Interrupted, "Interrupted.", "Nothing has changed.")),
            Begun::Refused => Err(Failure::new(
                Code::Unreadable,
                "the items named above would be lost under a new key",
                "Nothing has changed. Mend it with `warpcrypt check --repair`, or remove it, and try again.",
            )),
        }
    }

    /// As [`NewMaster::list`], for a vault whose mount is locked. Opens the vault read-only, so that nothing
    /// in it changes.
    fn list_beside_mount(&mut self, vault: &Path, unlock: &Unlock, interrupt: &Interrupt) -> Outcome {
        let options = OpenOptions { read_only: true, engine: EngineChoice::Cpu, ..OpenOptions::default() };
        let opened = Vault::open(vault, unlock, options).map_err(vaults::explain)?;
        self.list(&opened, interrupt)
    }

    fn write(&self, vault: &Path) -> Outcome {
        self.alone.write(vault, &self.config).map_err(vaults::explain)
    }
}

/// Creates a new master key that opens with `chosen`. Derives keys before locking the configuration, as
/// [`vaults::change`] does.
fn prepare(args: &RotateArgs, unlock: &Unlock, chosen: &Unlock, interrupt: &Interrupt) -> Outcome<NewMaster> {
    let _spinner = Spinner::start("making a new key");
    loop {
        let (present, opened, former) = Vault::unlock_config(&args.vault, unlock).map_err(vaults::explain)?;
        refuse_copy(&args.vault, &present, &former)?;
        refuse_other_slots(args, &present, opened)?;
        let chosen = password::in_place_of(unlock, chosen.clone());
        let (config, master) = vaults::with_secret(&chosen, |secret| {
            refuse_known(&present, &secret)?;
            let new = NewSlot { secret, cost: args.cost.cost(), created: vaults::now(), label: None };
            present.rotate(&former, opened, &new).map_err(|e| vaults::explain(e.into()))
        })?;
        interrupt.check()?;
        let alone = Vault::lock_config(&args.vault).map_err(vaults::explain)?;
        if alone.is_still(&args.vault, &present, &former).map_err(vaults::explain)? {
            return Ok(NewMaster { config, master, former, alone });
        }
    }
}

fn refuse_other_slots(args: &RotateArgs, config: &VaultConfig, opened: u32) -> Outcome {
    let others = config.slots().iter().filter(|slot| slot.id != opened).map(|slot| slot.id.to_string());
    let others: Vec<String> = others.collect();
    if others.is_empty() || args.drop_other_slots {
        return Ok(());
    }
    Err(Failure::new(
        Code::Usage,
        format!("the vault has other key slots ({}), which would no longer open it", others.join(", ")),
        "--drop-other-slots removes them. Add new ones afterwards with `warpcrypt key add` or `warpcrypt key recovery`.",
    ))
}

/// Rejects a new secret that already opens the vault. Anyone who has the old master key can forge a
/// configuration with an existing slot, which the secret would then open.
fn refuse_known(config: &VaultConfig, secret: &SlotSecret) -> Outcome {
    match config.unlock_slot(secret) {
        Err(ConfigError::WrongSecret(_) | ConfigError::NoSlotOfThatKind(_)) => Ok(()),
        Err(e) => Err(vaults::explain(e.into())),
        Ok(_) => Err(Failure::new(
            Code::Usage,
            "the new secret opens the vault already",
            "Choose another one: someone who has the old master key could make an old copy of the vault open with this one.",
        )),
    }
}

/// Rejects a copy of a reverse view with plain names. The next rsync would restore the old
/// configuration, and the new key would be lost with the current one. It would not restore the files,
/// because their names, sizes and times are unchanged.
fn refuse_copy(vault: &Path, config: &VaultConfig, master: &Secret<32>) -> Outcome {
    if config.settings().names != NameMode::Plain {
        return Ok(());
    }
    let id = Vault::root_id(vault).map_err(vaults::explain)?;
    if ReverseKeys::derive(config, master).is_copy(&id) {
        return Err(Failure::new(
            Code::Failed,
            "the vault is a copy of a reverse view with plain names: under another key, the next copy of the view would destroy it",
            "For another key, make a new vault with `warpcrypt init` and copy the files to it.",
        ));
    }
    Ok(())
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
            Step::Stray(path, reason) => {
                late.say(&format!(
                    "{}: is not encrypted with any current key of the vault: {reason}",
                    path.display()
                ));
            }
        }
        interrupt.check().is_ok()
    });
    rotated.map_err(|e| Failure::plain(Code::Failed, e))
}

fn conclude(vault: &Path, rotated: Rotated) -> Outcome {
    let again = |what: &str| {
        format!(
            "{what} The vault can be used normally with its new secret. Run `warpcrypt key rotate {}` to continue.",
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
                    "{aside} copies of damaged files that `check --repair` set aside are under the old key and are no longer useful.\n"
                ));
            }
            Ok(())
        }
        Rotated::Stopped => Err(Failure { code: Code::Interrupted, message: again("Interrupted.") }),
        Rotated::Left => Err(Failure {
            code: Code::Unreadable,
            message: again(
                "Some items, named above, are still under the old key: repair or remove them (`warpcrypt check --repair` repairs damaged ones).",
            ),
        }),
    }
}
