//! The command line's grammar.

mod hashing;
mod secrets;
mod transfer;
mod values;

pub use hashing::{HashArgs, MatchArgs, PiecesArg, PlaceArgs};
pub use secrets::{CostArgs, NewPasswordArgs, NewSecretArgs, SecretArgs, UnlockArgs};
pub use transfer::{CatArgs, ExportArgs, ImportArgs, ListArgs};
pub use values::{CacheArg, DurabilityArg, EngineArg, IoUringArg, duration};

use ::reverse::Patterns;
use clap::{Args, Parser, Subcommand, value_parser};
use crypto::{cipher::Cipher, integrity::Integrity};
use format::name::NameMode;
use fuse::{Owners, Trust};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};
use values::named;

/// Default of `--memory`, in MiB.
const MEMORY_DEFAULT_MIB: u32 = 256;
/// Minimum of `--memory`, in MiB: several batches of the largest size, and requests, must fit.
pub const MEMORY_MIN_MIB: i64 = 32;
/// Maximum of `--memory`, in MiB: one tebibyte.
pub const MEMORY_MAX_MIB: i64 = 1 << 20;

/// Printed when the program is called without a command.
pub const OVERVIEW: &str = "\
An encrypted, authenticated directory for Linux: mount it and forget it.

  warpcrypt init VAULT         create a vault in a new or empty directory
  warpcrypt mount VAULT DIR    show its files in DIR
  warpcrypt umount DIR         unmount it once everything is stored
  warpcrypt info VAULT         show where it is mounted and what opens it
  warpcrypt check VAULT        look for damage
  warpcrypt passwd VAULT       change its password

`warpcrypt -h` lists all commands, `warpcrypt COMMAND -h` the options of one,
and `--help` explains them.
";

const EXAMPLES: &str = "\
Examples:
  warpcrypt init ~/vault && mkdir ~/plain
  warpcrypt mount ~/vault ~/plain";

/// An encrypted, authenticated directory for Linux: mount it and forget it.
#[derive(Debug, Parser)]
#[command(name = "warpcrypt", version, propagate_version = true, after_help = EXAMPLES)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Try a password even if that takes more than half of the memory of the machine or of its cgroup
    #[arg(long, global = true)]
    pub any_kdf_memory: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a vault
    Init(InitArgs),
    /// Mount a vault; returns once the mount answers
    Mount(MountArgs),
    /// Unmount a vault and wait until everything is stored
    #[command(visible_alias = "unmount")]
    Umount(UmountArgs),
    /// Lock a mounted vault: store everything, wipe its keys, and make programs wait until it is unlocked
    Lock(LockArgs),
    /// Unlock a mounted vault: waiting programs continue
    Unlock(UnlockMountArgs),
    /// Pause a mounted vault in a consistent state, so that its store can be copied; programs wait
    /// until it is thawed
    Freeze(FreezeArgs),
    /// Resume a frozen vault
    Thaw {
        /// Mount point or vault directory
        place: PathBuf,
    },
    /// Show the activity of a mount: throughput, requests, times, caches, memory, errors
    Stat(StatArgs),
    /// Show a vault's parameters and key slots; needs no password
    Info(InfoArgs),
    /// Change a vault's password
    Passwd(PasswdArgs),
    /// List, add and remove the key slots of a vault
    Key(KeyArgs),
    /// Show the engines of this machine and their speed; measures them the first time
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Measure again
        #[arg(long)]
        measure: bool,
    },
    /// Show whether this machine can mount vaults, what makes it slower, and how to mend it
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Look for damage in a vault that is not mounted, or mounted read-only, and repair it if asked to
    Check(CheckArgs),
    /// List what is in a vault, without a mount
    #[command(after_help = transfer::LIST_HELP)]
    Ls(ListArgs),
    /// Print files of a vault, without a mount
    #[command(after_help = transfer::CAT_HELP)]
    Cat(CatArgs),
    /// Copy a file or a folder out of a vault, without a mount
    #[command(after_help = transfer::EXPORT_HELP)]
    Export(ExportArgs),
    /// Copy a file or a folder into a vault, without a mount
    #[command(after_help = transfer::IMPORT_HELP)]
    Import(ImportArgs),
    /// Hash files and folders, compare them with lists of known hashes, find duplicates
    #[command(after_help = hashing::HASH_HELP)]
    Hash(HashArgs),
    /// Find files that share content
    #[command(after_help = hashing::MATCH_HELP)]
    Match(MatchArgs),
    /// Try it out: copy real files into a temporary vault and compare every byte
    Try(TryArgs),
    /// Run benchmarks on this machine; needs the program warpcrypt-bench in the same directory
    #[command(disable_help_flag = true)]
    Bench {
        /// Arguments for warpcrypt-bench
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages to a directory
    Man {
        /// An existing directory
        dir: PathBuf,
    },
    /// The process behind a mount; started by `mount`
    #[command(hide = true)]
    Serve(MountArgs),
    /// The process that uses a GPU; started by other commands
    #[command(hide = true, name = engine::GPU_COMMAND)]
    GpuWorker,
    /// The process that starts those that use GPUs; started by other commands
    #[command(hide = true, name = engine::GPU_STARTER_COMMAND)]
    GpuStarter,
    /// Show what a mount's process, or one that has run this command, may not do here; started by `doctor`
    #[command(hide = true)]
    Confined {
        /// The command with its arguments
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        command: Vec<OsString>,
    },
    /// The process that mounts and unmounts; started by the one behind a mount
    #[command(hide = true, name = fuse::MOUNTER_COMMAND)]
    Mounter(MounterArgs),
}

/// Arguments of the process that mounts and unmounts.
#[derive(Debug, Args)]
pub struct MounterArgs {
    /// Other users may enter
    #[arg(long)]
    pub allow_other: bool,
    /// A mount flag
    #[arg(short = 'o')]
    pub flags: Vec<String>,
    /// The source in the kernel's mount table
    pub source: OsString,
    /// The mount point
    pub target: PathBuf,
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Directory for the vault: new or empty
    pub vault: PathBuf,
    /// Make no vault, but let this directory of plain files be mounted with `mount --reverse`: puts the file
    /// .warpcrypt.reverse.json into it
    #[arg(long)]
    pub reverse: bool,
    /// Cipher for contents and names
    #[arg(long, default_value = Cipher::Aes256.name(), value_parser = named(Cipher::ALL, Cipher::name))]
    pub cipher: Cipher,
    /// Function for authentication tags
    #[arg(long, default_value = Integrity::DEFAULT.name(), value_parser = named(Integrity::ALL, Integrity::name))]
    pub integrity: Integrity,
    /// Whether file names are encrypted. `encrypted-short` is for stores that refuse long names, such
    /// as eCryptfs, and is chosen there automatically
    #[arg(long, default_value = NameMode::Encrypted.name(), value_parser = named(NameMode::ALL, NameMode::name))]
    pub names: NameMode,
    /// First key slot.
    #[command(flatten)]
    pub secret: SecretArgs,
    /// Ask for a password besides the key file: only both together open the vault
    #[arg(long, requires = "key_file", conflicts_with_all = ["password_file", "password_stdin", "password_command"])]
    pub both: bool,
    /// Cost of its password.
    #[command(flatten)]
    pub cost: CostArgs,
}

/// Arguments of `mount`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// Directory of the vault
    pub vault: PathBuf,
    /// Empty directory to mount the vault on
    pub mount: PathBuf,
    /// Stay in the foreground; log to standard error unless --log-file names a file
    #[arg(long, short = 'f')]
    pub foreground: bool,
    /// Change nothing in the vault; it may have several read-only mounts at once
    #[arg(help_heading = "Access", long, short = 'r')]
    pub read_only: bool,
    /// Show a directory of plain files as an encrypted vault, read-only
    ///
    /// For a copy in a place that is not trusted: see docs/reverse.md.
    #[arg(help_heading = "Reverse view", long)]
    pub reverse: bool,
    /// With --reverse: leave out what this pattern matches, as in a .gitignore file
    ///
    /// May be repeated. The pattern is matched on the plain path below the directory, and the last
    /// pattern that matches decides: `!` in front includes again, but nothing below an excluded
    /// directory. A `/` at the beginning or in the middle anchors the pattern at the directory, one at
    /// the end restricts it to directories.
    #[arg(help_heading = "Reverse view", long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,
    /// With --reverse: read such patterns from a file, one a line; --exclude decides over them
    ///
    /// May be repeated. Empty lines and lines that start with `#` are ignored.
    #[arg(help_heading = "Reverse view", long, value_name = "FILE")]
    pub exclude_from: Vec<PathBuf>,
    /// With --reverse: show directories on which another filesystem is mounted as empty
    ///
    /// As rsync does. Subvolumes of Btrfs are filesystems in this sense, bind mounts of the same
    /// filesystem are not.
    #[arg(help_heading = "Reverse view", long)]
    pub one_file_system: bool,
    /// Let other machines mount the vault for writing at the same time
    ///
    /// All of them need this option, and the store needs locks that work between machines.
    /// docs/sharing.md says what one sees of another.
    #[arg(help_heading = "Access", long)]
    pub shared: bool,
    /// Let other users access the mount; file permissions apply
    #[arg(help_heading = "Access", long)]
    pub allow_other: bool,
    /// Engine that encrypts and decrypts
    ///
    /// auto: on the CPU or a GPU, whichever is faster.
    #[arg(help_heading = "Speed", long, value_enum, default_value_t)]
    pub engine: EngineArg,
    /// Protection from power failures
    ///
    /// strict: it never damages confirmed data. relaxed: overwrites are faster, but it may destroy the
    /// chunks being overwritten, which is detected.
    #[arg(help_heading = "Speed", long, value_enum, default_value_t)]
    pub durability: DurabilityArg,
    /// Files whose contents the kernel caches
    ///
    /// auto: all but files opened only for writing. kernel: all but those opened with O_DIRECT. direct:
    /// none. write-back: all, and it gathers small writes, with limits that docs/limits.md lists.
    #[arg(help_heading = "Speed", long, value_enum, default_value_t)]
    pub cache: CacheArg,
    /// Whether requests come over io_uring
    ///
    /// Small ones are much faster then, a lone stream a little slower. auto: where the kernel offers it
    /// to FUSE; a mount by root switches that on.
    #[arg(help_heading = "Speed", long, value_enum, default_value_t)]
    pub io_uring: IoUringArg,
    /// Memory for file contents in transit between programs and the vault, in MiB
    #[arg(help_heading = "Speed", long, value_name = "MIB", default_value_t = MEMORY_DEFAULT_MIB, value_parser = value_parser!(u32).range(MEMORY_MIN_MIB..=MEMORY_MAX_MIB))]
    pub memory: u32,
    /// Detect a store that was rolled back, by comparing it with the confirmed state in this file
    ///
    /// The file belongs outside of the vault, on a disk that you trust. If there is none, the vault is
    /// trusted as it is, and the file is made.
    #[arg(help_heading = "Safety", long, value_name = "FILE")]
    pub anchor: Option<PathBuf>,
    /// Lock the vault after this time without a request: 30s, 10m, 2h
    ///
    /// `warpcrypt unlock` unlocks it.
    #[arg(help_heading = "Safety", long, value_name = "TIME", value_parser = values::duration)]
    pub idle: Option<Duration>,
    /// Unmount the vault after this time without a request, once no program uses it: 30s, 10m, 2h
    ///
    /// A program uses it if it has a file open or its working directory is in the vault.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub idle_unmount: Option<Duration>,
    /// Log to this file instead of the system log
    ///
    /// A log that cannot be opened does not prevent the mount.
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Mount options, as in fstab
    ///
    /// They are ro, rw, reverse, shared, allow_other, default_permissions, nonempty, any-path,
    /// any-kdf-memory, for-uid=UID, uid=UID, gid=GID, exclude=PATTERN, exclude-from=F, one-file-system,
    /// noexec, nosuid, nodev, noatime, password-file=F, password-command=C, key-file=F, log-file=F,
    /// engine=E, durability=D, cache=C, io-uring=U, memory=MIB, anchor=F, idle=TIME, idle-unmount=TIME.
    /// In a value, write a comma as `\,` and a backslash as `\\`. Root refuses a mount point behind a
    /// symbolic link or a directory that others can write to: for-uid lets that user own them and the
    /// mount point, any-path checks nothing. uid and gid show all files as owned by that user and
    /// group, which gives the mount no more access to the store.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// The patterns of `exclude` and of the files in `exclude_from`, once they have been read.
    #[arg(skip)]
    pub patterns: Patterns,
    /// Whether the mount may hide what is in the directory; an option of `-o` only.
    #[arg(skip)]
    pub nonempty: bool,
    /// Whether root mounts whatever the path leads through; an option of `-o` only.
    #[arg(skip)]
    pub any_path: bool,
    /// Whether a password may take any memory, as the option of that name allows it; here an option of
    /// `-o` only.
    #[arg(skip)]
    pub any_kdf_memory: bool,
    /// The user whose directories root may pass, and to whom the mount point belongs; an option of `-o` only.
    #[arg(skip)]
    pub for_uid: Option<u32>,
    /// The owners to show instead of the stored ones; options of `-o` only.
    #[arg(skip)]
    pub owners: Owners,
    /// Secret that opens the vault.
    #[command(flatten, next_help_heading = "Secret")]
    pub unlock: UnlockArgs,
}

impl MountArgs {
    /// The owners accepted for the directories above the mount point. For ordinary users, fusermount3
    /// does the checks. Root in a user namespace cannot tell who owns what, so nothing is checked there
    /// either.
    pub fn trust(&self) -> Trust {
        match self.for_uid {
            _ if self.any_path || !is_system_root() => Trust::All,
            Some(user) => Trust::User(user),
            None => Trust::Root,
        }
    }

    /// A private read-write mount with all defaults.
    pub fn plain(vault: &Path, mount: &Path) -> Self {
        MountArgs {
            vault: vault.to_owned(),
            mount: mount.to_owned(),
            foreground: false,
            read_only: false,
            reverse: false,
            exclude: Vec::new(),
            exclude_from: Vec::new(),
            one_file_system: false,
            shared: false,
            allow_other: false,
            engine: EngineArg::default(),
            durability: DurabilityArg::default(),
            cache: CacheArg::default(),
            io_uring: IoUringArg::default(),
            memory: MEMORY_DEFAULT_MIB,
            anchor: None,
            idle: None,
            idle_unmount: None,
            log_file: None,
            options: Vec::new(),
            patterns: Patterns::default(),
            nonempty: false,
            any_path: false,
            any_kdf_memory: false,
            for_uid: None,
            owners: Owners::default(),
            unlock: UnlockArgs::default(),
        }
    }
}

fn is_system_root() -> bool {
    const WHOLE: [&str; 3] = ["0", "0", "4294967295"];
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && users.split_whitespace().eq(WHOLE)
}

/// Arguments of `umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The mount point, or the vault's directory
    pub place: PathBuf,
}

/// Arguments of `lock`.
#[derive(Debug, Args)]
pub struct LockArgs {
    /// Mount point or vault directory
    #[arg(required_unless_present = "all")]
    pub place: Option<PathBuf>,
    /// All mounted vaults. Only root can include vaults mounted by other users
    #[arg(long, conflicts_with = "place")]
    pub all: bool,
    /// End the mount instead: programs that have something open on it get errors. One whose process
    /// cannot be reached is unmounted by force, and the command fails
    #[arg(long)]
    pub end: bool,
}

/// Arguments of `unlock`.
#[derive(Debug, Args)]
pub struct UnlockMountArgs {
    /// Mount point or vault directory
    pub place: PathBuf,
    /// Secret that opens the vault.
    #[command(flatten)]
    pub unlock: UnlockArgs,
}

/// Arguments of `freeze`.
#[derive(Debug, Args)]
pub struct FreezeArgs {
    /// Mount point or vault directory
    pub place: PathBuf,
    /// Thaw the vault automatically after this time, in which case `thaw` fails: 30s, 10m or 2h
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "1h")]
    pub timeout: Duration,
    /// Run this command while the vault is frozen, then thaw the vault and exit with the command's
    /// status. The command must not use the mount
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// Directory of the vault, or where it is mounted
    pub place: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// The mount point, or the vault's directory
    pub place: PathBuf,
    /// Show every kind of request, store call, engine and cache
    #[arg(long)]
    pub all: bool,
    /// Repeat, by default every second; rates are since the previous output
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub watch: Option<u64>,
    /// Print JSON; with --watch one line each time
    #[arg(long)]
    pub json: bool,
    /// Write the numbers in the format of Prometheus to this file, atomically; `-` prints them
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub prometheus: Option<PathBuf>,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Directory of the vault
    pub vault: PathBuf,
    /// Verify every byte, not only headers, names and trees
    #[arg(long)]
    pub full: bool,
    /// Rebuild what can be rebuilt, and move the rest to a directory warpcrypt.aside.* in the vault's
    /// store; a report is left in the root of the vault. Nothing is deleted
    #[arg(long)]
    pub repair: bool,
    /// Move files that are not the vault's to that directory, too
    #[arg(long)]
    pub move_strays: bool,
    /// Compare the vault with this anchor: old, lost, added and exchanged files are named
    #[arg(long, value_name = "FILE", conflicts_with_all = ["repair", "move_strays"])]
    pub anchor: Option<PathBuf>,
    /// Then accept the vault's current state as the new baseline, for example after restoring a backup
    /// or mounting without the anchor
    #[arg(long, requires = "anchor", conflicts_with = "resume")]
    pub accept: bool,
    /// Record the progress of an interrupted check in this file, and resume from it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["repair", "move_strays"])]
    pub resume: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Secret that opens the vault.
    #[command(flatten)]
    pub unlock: UnlockArgs,
}

/// Arguments of `passwd`.
#[derive(Debug, Args)]
pub struct PasswdArgs {
    /// Directory of the vault
    pub vault: PathBuf,
    /// Secret that opens the vault.
    #[command(flatten)]
    pub unlock: UnlockArgs,
    /// The new password.
    #[command(flatten)]
    pub new: NewPasswordArgs,
    /// Its cost.
    #[command(flatten)]
    pub cost: CostArgs,
}

/// Arguments of `key`.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// The action.
    #[command(subcommand)]
    pub action: KeyAction,
}

/// The actions of `key`.
#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// List the key slots; needs no password
    List {
        /// Directory of the vault
        vault: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a password or a key file
    Add {
        /// Directory of the vault
        vault: PathBuf,
        /// A label for the slot, at most 64 bytes; it is not secret
        #[arg(long)]
        label: Option<String>,
        /// Secret that opens the vault.
        #[command(flatten)]
        unlock: UnlockArgs,
        /// The new slot.
        #[command(flatten)]
        new: NewSecretArgs,
        /// Cost of its password.
        #[command(flatten)]
        cost: CostArgs,
    },
    /// Remove a key slot; the last one cannot be removed
    Remove {
        /// Directory of the vault
        vault: PathBuf,
        /// Number of the slot, as shown by `key list`
        slot: u32,
        /// Secret that opens the vault.
        #[command(flatten)]
        unlock: UnlockArgs,
    },
    /// Add a recovery key and print it; it is not shown again
    Recovery {
        /// Directory of the vault
        vault: PathBuf,
        /// Secret that opens the vault.
        #[command(flatten)]
        unlock: UnlockArgs,
    },
    /// Copy the configuration, with the key slots, to a file; needs no password
    Backup {
        /// Directory of the vault
        vault: PathBuf,
        /// The new file
        file: PathBuf,
    },
    /// Restore a lost configuration from a backup or with the master secret
    Restore(RestoreArgs),
    /// Give the vault a new master key and a new password or key file, and rewrite everything; run it
    /// again to resume after an interruption
    Rotate(RotateArgs),
    /// Print the master secret, which opens the vault even if its configuration and passwords are lost
    Master {
        /// Directory of the vault
        vault: PathBuf,
        /// Secret that opens the vault.
        #[command(flatten)]
        unlock: UnlockArgs,
    },
}

/// Arguments of `key rotate`.
#[derive(Debug, Args)]
pub struct RotateArgs {
    /// Directory of the vault
    pub vault: PathBuf,
    /// Keep this anchor up to date, which mounts of the vault may use. If the vault is mounted, the
    /// mount updates its own anchor
    #[arg(long, value_name = "FILE")]
    pub anchor: Option<PathBuf>,
    /// Remove all key slots except the one that opens the vault now: they cannot open the new key
    #[arg(long)]
    pub drop_other_slots: bool,
    /// The secret that opens the vault now.
    #[command(flatten)]
    pub unlock: UnlockArgs,
    /// The secret that opens the vault afterwards. It must not open any current key slot: someone who
    /// has the old master key could otherwise make an old vault open with it.
    #[command(flatten)]
    pub new: NewSecretArgs,
    /// Cost of its password.
    #[command(flatten)]
    pub cost: CostArgs,
}

/// Arguments of `key restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Directory of the vault
    pub vault: PathBuf,
    /// A backup of its configuration
    #[arg(required_unless_present = "master")]
    pub file: Option<PathBuf>,
    /// Ask for the master secret and a new password instead; all previous key slots are removed
    #[arg(long, conflicts_with_all = ["file", "unlock", "secret"])]
    pub master: bool,
    /// Replace even a newer configuration with the backup: key slots removed since then will open the
    /// vault again
    #[arg(long, conflicts_with = "master")]
    pub older: bool,
    /// Secret that opens the backup.
    #[command(flatten)]
    pub unlock: UnlockArgs,
    /// The new slot.
    #[command(flatten)]
    pub new: NewSecretArgs,
    /// Cost of its password.
    #[command(flatten)]
    pub cost: CostArgs,
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
