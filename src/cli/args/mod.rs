//! The command line's grammar.

mod hashing;
mod secrets;
mod values;

pub use hashing::{HashArgs, MatchArgs, PiecesArg, PlaceArgs};
pub use secrets::{NewPasswordArgs, NewSecretArgs, SecretArgs, UnlockArgs};
pub use values::{CacheArg, DurabilityArg, EngineArg};

use super::{exit, stat};
use crate::{
    crypto::{cipher::Cipher, mac::Integrity},
    engine,
    format::name::NameMode,
};
use clap::{Args, Parser, Subcommand, value_parser};
use std::{ffi::OsString, path::PathBuf};
use values::named;

/// The smallest `--memory`, in MiB: some batches of the largest kind, and requests, must fit.
pub const MEMORY_MIN_MIB: i64 = 32;
/// The largest `--memory`, in MiB: a tebibyte.
pub const MEMORY_MAX_MIB: i64 = 1 << 20;

/// An encrypted, authenticated directory for Linux: mount it and forget it.
#[derive(Debug, Parser)]
#[command(name = "warpcrypt", version, propagate_version = true, after_help = exit::table())]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a new vault
    Init(InitArgs),
    /// Mount a vault; returns once the mount answers
    Mount(MountArgs),
    /// Unmount, and wait until everything is stored
    Umount(UmountArgs),
    /// Show what a mount does: throughput, requests, times, caches, memory, errors
    Stat(stat::StatArgs),
    /// Show a vault's parameters and key slots; needs no password
    Info(InfoArgs),
    /// Change a vault's password
    Passwd(PasswdArgs),
    /// List, add and remove what opens a vault
    Key(KeyArgs),
    /// Show the engines of this machine and how fast they are; measures them if that was not done before
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Measure again
        #[arg(long)]
        measure: bool,
    },
    /// Hash files and folders, compare them with lists of known hashes, find duplicates
    #[command(after_help = hashing::HASH_HELP)]
    Hash(HashArgs),
    /// Find files that have parts in common
    #[command(after_help = hashing::MATCH_HELP)]
    Match(MatchArgs),
    /// See it work: a temporary vault, real files, every byte compared
    Try(TryArgs),
    /// Measure what this machine can do with it; needs the program warpcrypt-bench beside this one
    #[command(disable_help_flag = true)]
    Bench {
        /// Arguments of warpcrypt-bench
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Print a shell's completion script
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory
    Man {
        /// Existing directory for the pages
        dir: PathBuf,
    },
    /// The process behind a mount; `mount` starts it
    #[command(hide = true)]
    Serve(MountArgs),
    /// The process of a GPU; whatever uses one starts it
    #[command(hide = true, name = engine::GPU_COMMAND)]
    GpuWorker,
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Directory to make the vault in: new or empty
    pub vault: PathBuf,
    /// Cipher of contents and names
    #[arg(long, default_value = Cipher::Aes256.name(), value_parser = named(Cipher::ALL, Cipher::name))]
    pub cipher: Cipher,
    /// Function behind every tag
    #[arg(long, default_value = Integrity::Kmac128.name(), value_parser = named(Integrity::ALL, Integrity::name))]
    pub integrity: Integrity,
    /// Whether file names are encrypted
    #[arg(long, default_value = NameMode::Encrypted.name(), value_parser = named(NameMode::ALL, NameMode::name))]
    pub names: NameMode,
    /// First key slot.
    #[command(flatten)]
    pub secret: SecretArgs,
}

/// Arguments of `mount`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// The vault
    pub vault: PathBuf,
    /// Empty directory to mount it on
    pub mount: PathBuf,
    /// Stay in the foreground and log to standard error
    #[arg(long, short = 'f')]
    pub foreground: bool,
    /// Change nothing in the vault; several read-only mounts may stand side by side
    #[arg(long, short = 'r')]
    pub read_only: bool,
    /// Let other users in; file permissions decide what they may do
    #[arg(long)]
    pub allow_other: bool,
    /// What encrypts
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    pub engine: EngineArg,
    /// strict: a power cut never damages what was confirmed; relaxed: faster overwrites, and chunks being
    /// overwritten at that moment may be lost (and are detected)
    #[arg(long, value_enum, default_value_t = DurabilityArg::Strict)]
    pub durability: DurabilityArg,
    /// Whether the kernel caches contents. auto: not of files that are only written; kernel: of all but
    /// O_DIRECT; direct: of none
    #[arg(long, value_enum, default_value_t = CacheArg::Auto)]
    pub cache: CacheArg,
    /// Memory for contents on their way between programs and the vault, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = value_parser!(u32).range(MEMORY_MIN_MIB..=MEMORY_MAX_MIB))]
    pub memory: u32,
    /// Log to this file instead of the system's log
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Mount options as in fstab: ro, allow_other, default_permissions, noexec, nosuid, nodev, noatime,
    /// password-file=F, key-file=F, log-file=F, engine=E, durability=D, cache=C, memory=MIB
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// What opens the vault.
    #[command(flatten)]
    pub unlock: UnlockArgs,
}

/// Arguments of `umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// Where a vault is mounted
    pub mount: PathBuf,
}

/// Arguments of `info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// The vault
    pub vault: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `passwd`.
#[derive(Debug, Args)]
pub struct PasswdArgs {
    /// The vault
    pub vault: PathBuf,
    /// What opens the vault.
    #[command(flatten)]
    pub unlock: UnlockArgs,
    /// The new password.
    #[command(flatten)]
    pub new: NewPasswordArgs,
}

/// Arguments of `key`.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// What to do with the slots.
    #[command(subcommand)]
    pub action: KeyAction,
}

/// What `key` does.
#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// List the key slots; needs no password
    List {
        /// The vault
        vault: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a password or a key file
    Add {
        /// The vault
        vault: PathBuf,
        /// A word to tell the slot by, of at most 64 bytes; it is not secret
        #[arg(long)]
        label: Option<String>,
        /// What opens the vault.
        #[command(flatten)]
        unlock: UnlockArgs,
        /// The new slot.
        #[command(flatten)]
        new: NewSecretArgs,
    },
    /// Remove a key slot; the last one stays
    Remove {
        /// The vault
        vault: PathBuf,
        /// The slot's number, as `key list` shows it
        slot: u32,
        /// What opens the vault.
        #[command(flatten)]
        unlock: UnlockArgs,
    },
    /// Make a recovery key and print it, this once
    Recovery {
        /// The vault
        vault: PathBuf,
        /// What opens the vault.
        #[command(flatten)]
        unlock: UnlockArgs,
    },
}

/// Arguments of `try`.
#[derive(Debug, Args)]
pub struct TryArgs {
    /// Copy files from this directory instead of one found on this machine
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}
