//! The arguments of `ls`, `cat`, `export` and `import`.

use super::secrets::UnlockArgs;
use clap::Args;
use std::path::PathBuf;

/// Shown after the options of `ls`.
pub const LIST_HELP: &str = "\
Names are escaped so that they cannot control a terminal. Times are in UTC, owners are numbers.

Examples:
  warpcrypt ls ~/vault                         what is in the vault
  warpcrypt ls -lR ~/vault photos              all details of everything below a folder";

/// Shown after the options of `cat`.
pub const CAT_HELP: &str = "\
Only bytes that verify are printed. At the first byte that does not, the command ends with exit code 41.

Examples:
  warpcrypt cat ~/vault notes/today            print a file
  warpcrypt cat ~/vault music.tar | tar -t     list an archive in the vault";

/// Shown after the options of `export`.
pub const EXPORT_HELP: &str = "\
TARGET becomes the copy: what is in a folder is put into the folder TARGET. A single file gets the name TARGET, or its \
own name if TARGET is a folder.

Contents, permissions, times, links, extended attributes and holes are kept. Types, owners and modes in the store are not \
authenticated: a writer of the store, who cannot read the vault, can make any file set-user-id root, a device, or \
somebody else's. So the copy belongs to whoever runs this, without set-user-id and set-group-id bits, file capabilities, \
pipes, sockets and devices. The summary says what was left out. If nobody else can write to the store, --trust-metadata \
keeps all of that, as far as it is permitted. Permission bits are the store's, too: choose a TARGET that only you can enter. A file gets its name when all of it is stored. Nothing is removed from TARGET, but other files of the same \
names are replaced.

Run it again after an interruption: files that are there with the same size and time of modification are skipped. What \
a killed run left (.warpcrypt-….part) is removed.

Where TARGET takes several names for one, as a filesystem does that does not tell upper case from lower, one of them is \
copied and the others are reported.

What is damaged is reported, and the exit code is 41. All that can be read of a damaged file is in a file with .damaged \
after its name, with holes in place of the rest. A vault that is mounted for writing can be exported, but what \
changes meanwhile may look damaged.

Examples:
  warpcrypt export ~/vault /mnt/usb/all            everything
  warpcrypt export ~/vault photos/2024 pictures    a folder
  warpcrypt export ~/vault notes/today .           a file
  warpcrypt export --trust-metadata /srv/vault /srv/new    as root, with owners, from a store that only root writes to";

/// Shown after the options of `import`.
pub const IMPORT_HELP: &str = "\
PATH becomes the copy: what is in the folder SOURCE is put into the folder PATH, without PATH into the vault's root. A \
single file gets the name PATH, or its own name if PATH is a folder.

Contents, modes, times, owners, links, extended attributes, special files and holes are kept. A file gets its name when \
all of it is stored. Nothing is removed from the vault, but other files of the same names are replaced. The vault must \
not be mounted for writing.

Run it again after an interruption: files that are there with the same size and time of modification are skipped. What \
a killed run left (.warpcrypt-….part) is removed.

Examples:
  warpcrypt import ~/vault photos photos           a folder
  warpcrypt import ~/vault letter.txt notes        a file into a folder";

/// Arguments of `ls`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Directory of the vault
    pub vault: PathBuf,
    /// File or folder in the vault
    #[arg(default_value = "/")]
    pub path: PathBuf,
    /// Show mode, links, owner, size, time and the target of links
    #[arg(long, short = 'l')]
    pub long: bool,
    /// List everything below the folder
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Secret that opens the vault.
    #[command(flatten)]
    pub unlock: UnlockArgs,
}

/// Arguments of `cat`.
#[derive(Debug, Args)]
pub struct CatArgs {
    /// Directory of the vault
    pub vault: PathBuf,
    /// Files in the vault
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Secret that opens the vault.
    #[command(flatten)]
    pub unlock: UnlockArgs,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub struct ExportArgs {
    /// Directory of the vault
    pub vault: PathBuf,
    /// File or folder in the vault
    #[arg(default_value = "/")]
    pub path: PathBuf,
    /// Destination
    #[arg(required = true)]
    pub target: PathBuf,
    /// Trust the store's metadata, which is not authenticated: keep owners, set-id bits, capabilities,
    /// special files
    #[arg(long)]
    pub trust_metadata: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Secret that opens the vault.
    #[command(flatten)]
    pub unlock: UnlockArgs,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Directory of the vault
    pub vault: PathBuf,
    /// File or folder to copy
    pub source: PathBuf,
    /// Destination in the vault
    #[arg(default_value = "/")]
    pub path: PathBuf,
    /// Keep this anchor up to date, which mounts of the vault may use
    #[arg(long, value_name = "FILE")]
    pub anchor: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Secret that opens the vault.
    #[command(flatten)]
    pub unlock: UnlockArgs,
}
