//! The options for passwords and keys.

use clap::{Args, value_parser};
use crypto::kdf::Argon2Cost;
use format::key_slot::DEFAULT_COST;
use std::path::PathBuf;

/// Source of a password or key. Prompts if none is given.
#[derive(Debug, Default, Clone, Args)]
#[group(id = "secret", multiple = true)]
pub struct SecretArgs {
    /// Read the password from a file with one line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["password_stdin", "password_command"])]
    pub password_file: Option<PathBuf>,
    /// Use the content of a file as the key (at least 16 random bytes), or with a password as a part of it
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Read the password from the first line of standard input
    #[arg(long, conflicts_with = "password_command")]
    pub password_stdin: bool,
    /// Run a command with `sh -c` and use the first line it prints as the password
    #[arg(long, value_name = "COMMAND")]
    pub password_command: Option<String>,
}

/// Secret that opens a vault. Prompts for the password if none is given.
#[derive(Debug, Default, Clone, Args)]
#[group(id = "unlock", multiple = false)]
pub struct UnlockArgs {
    /// Source of the password or key.
    #[command(flatten)]
    pub secret: SecretArgs,
    /// Ask for the recovery key instead of a password
    #[arg(long, conflicts_with = "secret")]
    pub recovery_key: bool,
}

/// Source of a new password. Prompts twice if none is given.
#[derive(Debug, Default, Clone, Args)]
#[group(id = "new", multiple = false)]
pub struct NewPasswordArgs {
    /// Read the new password from a file with one line
    #[arg(long, value_name = "FILE")]
    pub new_password_file: Option<PathBuf>,
    /// Read the new password from a line of standard input (the second line with --password-stdin)
    #[arg(long)]
    pub new_password_stdin: bool,
    /// Run a command with `sh -c` and use the first line it prints as the new password
    #[arg(long, value_name = "COMMAND")]
    pub new_password_command: Option<String>,
}

impl NewPasswordArgs {
    /// Whether the new password can be read before the present secret: it is not typed, and it is not
    /// the next line of standard input.
    pub fn is_early(&self) -> bool {
        self.new_password_file.is_some() || self.new_password_command.is_some()
    }
}

/// Source of a new password or key. Prompts twice if none is given.
#[derive(Debug, Default, Clone, Args)]
pub struct NewSecretArgs {
    /// A new password.
    #[command(flatten)]
    pub password: NewPasswordArgs,
    /// Use the content of a file as the new key (at least 16 random bytes), or with a new password as a
    /// part of it
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,
    /// Ask for a new password besides the new key file: only both together open the slot
    #[arg(long, requires = "new_key_file", conflicts_with = "new")]
    pub both: bool,
}

impl NewSecretArgs {
    /// As for [`NewPasswordArgs::is_early`].
    pub fn is_early(&self) -> bool {
        let key_file_alone = self.new_key_file.is_some() && !self.both && !self.password.new_password_stdin;
        self.password.is_early() || key_file_alone
    }
}

/// Cost of trying a new password.
#[derive(Debug, Clone, Args)]
pub struct CostArgs {
    /// Memory needed to try a new password, in MiB. Less makes guessing cheaper: only for machines that
    /// have little
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_COST.memory_kib >> 10, value_parser = value_parser!(u32).range(1..=4096))]
    pub kdf_memory: u32,
}

impl CostArgs {
    /// The Argon2id cost parameters.
    pub fn cost(&self) -> Argon2Cost {
        Argon2Cost { memory_kib: self.kdf_memory << 10, ..DEFAULT_COST }
    }
}
