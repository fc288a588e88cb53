//! `init`: creates a vault.

use super::{
    args::{InitArgs, SecretArgs},
    exit::{Failure, Outcome},
    mounts, password,
    progress::Spinner,
    quoting::shell_word,
    reverse,
    signals::Interrupt,
    tell, vaults,
};
use format::{
    config::Settings,
    name::{NameMode, RESERVED},
};
use rustix::fs::{Access, access};
use std::{fs, io, os::unix::ffi::OsStrExt, path::Path};
use vault::{NewPlace, OpenError};

/// Runs `init`. Leaves no files behind after a failure, or after Ctrl-C once the password is entered.
pub fn run(args: &InitArgs) -> Outcome {
    let settings = Settings { cipher: args.cipher, integrity: args.integrity, names: args.names };
    if args.reverse {
        return run_reverse(args, settings);
    }
    require_place(&args.vault)?;
    let unlock = password::first(&args.secret, args.both)?;
    let place = NewPlace::at(&args.vault).map_err(vaults::explain)?;
    let names = place.fitting(args.names).map_err(vaults::explain).inspect_err(|_| place.unmake())?;
    let settings = Settings { names, ..settings };
    let interrupt = Interrupt::watch()?;
    let spinner = Spinner::start("deriving the key");
    let made = vaults::make(&place, settings, &unlock, args.cost.cost());
    drop(spinner);
    made.and_then(|()| interrupt.check()).inspect_err(|_| place.unmake())?;
    tell(&done(args, names));
    Ok(())
}

/// `init --reverse`: creates a single file in a directory of plain files.
fn run_reverse(args: &InitArgs, settings: Settings) -> Outcome {
    reverse::require_place(&args.vault)?;
    let unlock = password::first(&args.secret, args.both)?;
    {
        let _spinner = Spinner::start("deriving the key");
        reverse::make(&args.vault, settings, &unlock, args.cost.cost())?;
    }
    let word = shell_word(&args.vault);
    tell(&format!(
        "{} can be shown encrypted.\n  Mount the view:    warpcrypt mount --reverse {word} MOUNT\n",
        args.vault.display()
    ));
    Ok(())
}

/// Rejects a directory that cannot become a vault, before the user types a password twice.
fn require_place(vault: &Path) -> Outcome {
    if vaults::read(vault).is_ok() {
        return Err(vaults::explain(OpenError::AlreadyVault(vault.into())));
    }
    let foreign = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| !entry.file_name().as_bytes().starts_with(RESERVED.as_bytes()))
    };
    let not_empty = || Err(vaults::explain(OpenError::NotEmpty(vault.into())));
    let to_write = match fs::read_dir(vault).map(|mut entries| entries.any(foreign)) {
        Ok(true) => return not_empty(),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => return not_empty(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => mounts::parent(vault),
        Ok(false) | Err(_) => vault,
    };
    access(to_write, Access::WRITE_OK).map_err(|e| Failure::io(to_write.display(), &e.into()))
}

fn done(args: &InitArgs, names: NameMode) -> String {
    let (vault, word) = (args.vault.display(), shell_word(&args.vault));
    let prompted = matches!(
        args.secret,
        SecretArgs { password_file: None, key_file: None, password_stdin: false, password_command: None }
    );
    let forgotten = if prompted { "Without the password" } else { "Without the password or key" };
    let changed = if names == args.names {
        String::new()
    } else {
        format!("The store refuses long names, so `--names {}` was chosen.\n", names.name())
    };
    format!(
        "Created a vault in {vault}.\n{changed}  \
         Mount it:          warpcrypt mount {word} MOUNT\n  \
         A recovery key:    warpcrypt key recovery {word}\n  \
         A backup:          warpcrypt key backup {word} FILE\n\
         {forgotten} nobody can open the vault: make a recovery key, and keep the\n\
         backup, which holds the key slots, somewhere else.\n"
    )
}
