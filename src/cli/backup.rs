//! `key backup`, `key restore` and `key master`: preparing for the loss of a vault's configuration, and
//! recovering from it.

use super::{
    args::{RestoreArgs, UnlockArgs},
    exit::{Code, Failure, Outcome},
    mounts, password,
    progress::Spinner,
    signals::Interrupt,
    tell, terminal, unlocking, vaults,
};
use crypto::secret::Secret;
use format::{
    config::{TEXT_MAX, VaultConfig},
    key_slot::NewSlot,
    master_secret::MasterSecret,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};
use vault::Vault;

/// Runs `key backup`.
///
/// # Errors
/// If there is no vault, or the file already exists.
pub fn backup(vault: &Path, file: &Path) -> Outcome {
    vaults::read(vault)?;
    let config = Vault::read_config_to_keep(vault).map_err(vaults::explain)?;
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::AlreadyExists => Failure::new(
            Code::Failed,
            format!("{} exists already", file.display()),
            "A backup is never overwritten. Name a new file.",
        ),
        _ => Failure::io(file.display(), &e),
    };
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(failed)?;
    let written = out.write_all(config.to_json().as_bytes()).and_then(|()| out.sync_all());
    written.inspect_err(|_| drop(fs::remove_file(file))).map_err(failed)?;
    // Best effort: make the new name durable, if the filesystem can sync directories.
    let _ = File::open(mounts::parent(file)).and_then(|dir| dir.sync_all());
    tell(&format!(
        "Copied the configuration to {}. It opens with the passwords and keys of today; make another copy after you \
         change them.\n",
        file.display()
    ));
    Ok(())
}

/// Runs `key master`.
///
/// # Errors
/// If the vault does not open, or the secret could not be shown.
pub fn master(vault: &Path, unlock: &UnlockArgs) -> Outcome {
    let present = unlocking::present(vault, unlock)?;
    let spinner = Spinner::start("unlocking");
    let (config, _, master) = Vault::unlock_config(vault, &present).map_err(vaults::explain)?;
    drop(spinner);
    let secret = MasterSecret::of(&config, master).map_err(|e| vaults::explain(e.into()))?;
    let text = secret.to_text().ok_or_else(|| {
        Failure::plain(Code::Failed, "the vault's key was changed more often than a master secret can record")
    })?;
    eprintln!(
        "This is the master secret of the vault. Whoever has it can read the vault, whatever its passwords are. \
         Write it down and lock it away."
    );
    if config.is_rotating() {
        eprintln!(
            "The vault is being rewritten under it. Until `warpcrypt key rotate` is done, it opens nothing that is not rewritten \
             yet: that takes the vault's configuration, too. Make a copy of that with `warpcrypt key backup`."
        );
    }
    unlocking::show("master secret", &text)
}

/// Runs `key restore`.
///
/// # Errors
/// If the backup or the secret does not belong to the vault, or the backup is older than the vault's
/// configuration and `--older` is not given.
pub fn restore(args: &RestoreArgs) -> Outcome {
    match &args.file {
        Some(file) => from_backup(args, file),
        None => from_master_secret(args),
    }
}

fn from_backup(args: &RestoreArgs, file: &Path) -> Outcome {
    let mut config = read_backup(file)?;
    let unlock = unlocking::secret(&config, &args.unlock)?;
    let alone = Vault::lock_lost_config(&args.vault).map_err(vaults::explain)?;
    let interrupt = Interrupt::watch()?;
    let spinner = Spinner::start("unlocking");
    let master =
        vaults::with_secret(&unlock, |secret| config.unlock(&secret).map_err(|e| vaults::explain(e.into())))?;
    drop(spinner);
    interrupt.check()?;
    if let Some(newer) = newer(&args.vault, &config, &master)? {
        if !args.older {
            return Err(Failure::new(
                Code::Failed,
                "the vault has a newer configuration than this backup",
                "Key slots may have been removed since. To restore the backup anyway, add --older.",
            ));
        }
        config.outdate(&master, newer).map_err(|e| vaults::explain(e.into()))?;
    }
    alone.restore(&args.vault, &config, &master).map_err(vaults::explain)?;
    tell("Restored the configuration. The vault opens as it did when the backup was made.\n");
    Ok(())
}

fn from_master_secret(args: &RestoreArgs) -> Outcome {
    let typed = terminal::ask("Master secret: ")?;
    let secret = MasterSecret::parse(&typed).map_err(|e| Failure::plain(Code::WrongKey, e))?;
    let new = password::new_secret(&args.new)?;
    let alone = Vault::lock_lost_config(&args.vault).map_err(vaults::explain)?;
    let left = Vault::authentic_config(&args.vault, &secret.master).map_err(vaults::explain)?;
    let interrupt = Interrupt::watch()?;
    let spinner = Spinner::start("deriving the key");
    let config = vaults::with_secret(&new, |new| {
        let slot = NewSlot { secret: new, cost: args.cost.cost(), created: vaults::now(), label: None };
        // Unix time serves as the generation: it exceeds any possible number of configuration changes.
        secret.configure(&slot, vaults::now(), left.as_ref()).map_err(|e| vaults::explain(e.into()))
    })?;
    drop(spinner);
    interrupt.check()?;
    alone.restore(&args.vault, &config, &secret.master).map_err(vaults::explain)?;
    tell(
        "Restored the configuration. The vault opens with the new password or key; every other slot is gone.\n",
    );
    Ok(())
}

fn read_backup(file: &Path) -> Outcome<VaultConfig> {
    let mut text = Vec::new();
    let read = File::open(file).and_then(|file| file.take(TEXT_MAX as u64 + 1).read_to_end(&mut text));
    read.map_err(|e| Failure::io(file.display(), &e))?;
    VaultConfig::parse(&text).map_err(|e| {
        Failure::new(
            Code::ConfigEdited,
            format!("{} is not a backup of a vault's configuration: {e}", file.display()),
            "A backup is what `warpcrypt key backup` wrote, or a copy of warpcrypt.json.",
        )
    })
}

/// The generation of the vault's own configuration if it is newer than the backup.
///
/// # Errors
/// If that configuration cannot be read or has a later format version.
fn newer(vault: &Path, backup: &VaultConfig, master: &Secret<32>) -> Outcome<Option<u64>> {
    let own = Vault::authentic_config(vault, master).map_err(vaults::explain)?;
    let newer = own.filter(|own| own != backup && own.generation() >= backup.generation());
    Ok(newer.map(|own| own.generation()))
}
