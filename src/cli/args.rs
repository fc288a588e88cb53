//! The command line's grammar.

use super::{
    exit,
    hashing::args::{HashArgs, MatchArgs},
    stat,
};
use crate::{
    crypto::{cipher::Cipher, mac::Integrity},
    engine::{self, EngineChoice},
    format::name::NameMode,
    fuse::CacheMode,
    vault::Durability,
};
use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
    value_parser,
};
use std::{ffi::OsString, path::PathBuf};

/// Least `--memory`: some batches of the largest kind, and requests, must fit.
pub const LEAST_MEMORY: i64 = 32;
/// Most `--memory`: a tebibyte.
pub const MOST_MEMORY: i64 = 1 << 20;

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
    #[command(after_help = super::hashing::args::HASH_HELP)]
    Hash(HashArgs),
    /// Find files that have parts in common
    #[command(after_help = super::hashing::args::MATCH_HELP)]
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
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = value_parser!(u32).range(LEAST_MEMORY..=MOST_MEMORY))]
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

/// Where a password or key comes from. Without any of them: a prompt.
#[derive(Debug, Default, Clone, Args)]
#[group(id = "secret", multiple = false)]
pub struct SecretArgs {
    /// Read the password from a file of one line
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Use the content of a file as key (16 random bytes or more)
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Read the password from a line of standard input
    #[arg(long)]
    pub password_stdin: bool,
    /// Run a command with `sh -c` and take the line it prints as the password
    #[arg(long, value_name = "COMMAND")]
    pub password_command: Option<String>,
}

/// What opens a vault. Without any of them: a prompt for the password.
#[derive(Debug, Default, Clone, Args)]
#[group(id = "unlock", multiple = false)]
pub struct UnlockArgs {
    /// Where the password or key comes from.
    #[command(flatten)]
    pub secret: SecretArgs,
    /// Ask for the recovery key instead of a password
    #[arg(long, conflicts_with = "secret")]
    pub recovery_key: bool,
}

/// Where a new password comes from. Without any of them: a prompt, twice.
#[derive(Debug, Default, Clone, Args)]
#[group(id = "new", multiple = false)]
pub struct NewPasswordArgs {
    /// Read the new password from a file of one line
    #[arg(long, value_name = "FILE")]
    pub new_password_file: Option<PathBuf>,
    /// Read the new password from a line of standard input (the second, with --password-stdin)
    #[arg(long)]
    pub new_password_stdin: bool,
    /// Run a command with `sh -c` and take the line it prints as the new password
    #[arg(long, value_name = "COMMAND")]
    pub new_password_command: Option<String>,
}

/// Where a new password or key comes from. Without any of them: a prompt, twice.
#[derive(Debug, Default, Clone, Args)]
pub struct NewSecretArgs {
    /// A new password.
    #[command(flatten)]
    pub password: NewPasswordArgs,
    /// Use the content of a file as the new key (16 random bytes or more)
    #[arg(long, value_name = "FILE", conflicts_with = "new")]
    pub new_key_file: Option<PathBuf>,
}

/// A parser of the names that the format gives to the values of a parameter.
fn named<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let values = PossibleValuesParser::new(all.map(name));
    values.try_map(move |given| all.into_iter().find(|value| name(*value) == given).ok_or("unknown value"))
}

/// `--engine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum EngineArg {
    Auto,
    Cpu,
    Gpu,
}

impl From<EngineArg> for EngineChoice {
    fn from(arg: EngineArg) -> Self {
        match arg {
            EngineArg::Auto => EngineChoice::Auto,
            EngineArg::Cpu => EngineChoice::Cpu,
            EngineArg::Gpu => EngineChoice::Gpu,
        }
    }
}

/// `--durability`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum DurabilityArg {
    Strict,
    Relaxed,
}

impl From<DurabilityArg> for Durability {
    fn from(arg: DurabilityArg) -> Self {
        match arg {
            DurabilityArg::Strict => Durability::Strict,
            DurabilityArg::Relaxed => Durability::Relaxed,
        }
    }
}

/// `--cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum CacheArg {
    Auto,
    Kernel,
    Direct,
}

impl From<CacheArg> for CacheMode {
    fn from(arg: CacheArg) -> Self {
        match arg {
            CacheArg::Auto => CacheMode::Auto,
            CacheArg::Kernel => CacheMode::Kernel,
            CacheArg::Direct => CacheMode::Direct,
        }
    }
}
