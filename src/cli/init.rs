//! `init`: makes a vault.

use super::{
    args::{InitArgs, NamesArg, SecretArgs},
    exit::Outcome,
    password, print,
    progress::Spinner,
    signals::Interrupt,
    vaults,
};
use crate::format::{config::Settings, name::NameMode};
use std::fs;

/// Runs `init`. Ctrl-C after the password leaves no vault behind.
pub fn run(args: &InitArgs) -> Outcome {
    let names = match args.names {
        NamesArg::Encrypted => NameMode::Encrypted,
        NamesArg::Plain => NameMode::Plain,
    };
    let settings = Settings { cipher: args.cipher.into(), integrity: args.integrity.into(), names };
    let unlock = password::first(&args.secret)?;
    let existed = fs::symlink_metadata(&args.vault).is_ok();
    let interrupt = Interrupt::watch()?;
    {
        let _spinner = Spinner::start("deriving the key");
        vaults::make(&args.vault, settings, &unlock)?;
    }
    interrupt.check().inspect_err(|_| unmake(args, existed))?;
    print(&done(args));
    Ok(())
}

/// Removes what `init` has just made. Nobody can have put anything into it yet.
fn unmake(args: &InitArgs, existed: bool) {
    let entries = fs::read_dir(&args.vault).into_iter().flatten().flatten();
    for entry in entries {
        let _ = fs::remove_file(entry.path());
    }
    if !existed {
        let _ = fs::remove_dir(&args.vault);
    }
}

fn done(args: &InitArgs) -> String {
    let vault = args.vault.display();
    let prompted = matches!(
        args.secret,
        SecretArgs { password_file: None, key_file: None, password_stdin: false, password_command: None }
    );
    let forgotten = if prompted { "Without the password" } else { "Without the password or key" };
    format!(
        "Made a vault in {vault}.\n  \
         Mount it:          warpcrypt mount {vault} MOUNT\n  \
         A recovery key:    warpcrypt key recovery {vault}\n\
         {forgotten} nobody can open the vault: make a recovery key, and keep a copy of\n\
         {vault}/warpcrypt.json somewhere else.\n"
    )
}
