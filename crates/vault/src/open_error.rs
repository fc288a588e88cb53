//! Why a vault does not open. Each message tells its reader what to do.

use super::AnchorError;
use content::Damage;
use engine::EngineError;
use format::{
    config::{ConfigError, VERSION},
    key_slot::SlotKind,
};
use std::{io, path::PathBuf};

/// Why a vault could not be opened, created or changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no `warpcrypt.json`.
    #[error("{} is not a vault (it has no warpcrypt.json): give the vault's directory, or make one with `warpcrypt init`", .0.display())]
    NotAVault(PathBuf),
    /// The rest of a vault is there, but both `warpcrypt.json` and its copy are missing, or only a
    /// damaged copy is left.
    #[error("the vault in {} has lost its configuration, warpcrypt.json and warpcrypt.json.copy: `warpcrypt key restore` brings it back from a backup or from the printed master secret", .0.display())]
    NoConfig(PathBuf),
    /// The configuration belongs to another vault.
    #[error("the configuration is not that of the vault in {}: the vault's root directory does not authenticate with it", .0.display())]
    OtherVault(PathBuf),
    /// The configuration has an unknown format version.
    #[error("the vault has format version {0}, which this program does not know: {advice}", advice = advice(*.0))]
    UnknownVersion(u64),
    /// The configuration cannot be parsed.
    #[error("warpcrypt.json is malformed ({0}): restore it from a backup")]
    Malformed(String),
    /// The secret opens none of the key slots of its kind.
    #[error("wrong {0}: no key slot opens with it")]
    WrongSecret(SlotKind),
    /// There is no key slot for this kind of secret.
    #[error("the vault has no key slot for a {0}: `warpcrypt key list` shows what it has")]
    NoSlot(SlotKind),
    /// The secret was right, but the configuration's MAC is not.
    #[error(
        "warpcrypt.json was edited: it does not authenticate under the vault's key; restore it from a backup"
    )]
    Edited,
    /// Without a secret it is impossible to tell which of the two is right.
    #[error(
        "warpcrypt.json and warpcrypt.json.copy differ: mount the vault for writing, which makes them equal, and try again"
    )]
    CopiesDiffer,
    /// Only one of the two can be the vault's.
    #[error(
        "warpcrypt.json and warpcrypt.json.copy have diverged (this key opens generation {0}, the other file has generation {1}): one of them came from a backup or from someone who has an old key; move the wrong one out of the vault and try again"
    )]
    TwoHistories(u64, u64),
    /// Another problem with a secret, or with a change to the configuration.
    #[error("{0}")]
    Config(ConfigError),
    /// Another process has the vault open for writing.
    #[error("the vault is already mounted for writing: unmount it first, or mount it with --read-only")]
    Locked,
    /// Another process is changing the keys, and may be about to give the vault another master key.
    #[error(
        "another process is changing the vault's keys, with `warpcrypt passwd` or `warpcrypt key`: try again when it has finished"
    )]
    Changing,
    /// Other machines, or other mounts on this one, share the vault.
    #[error(
        "the vault is mounted with --shared: unmount it everywhere first, or mount it with --shared or --read-only"
    )]
    Shared,
    /// The vault cannot be shared, for the given reason.
    #[error("the vault cannot be mounted with --shared: {0}")]
    NotShared(&'static str),
    /// Writing was requested, but the store is read-only.
    #[error("the vault is on a read-only filesystem: mount it with --read-only")]
    ReadOnlyStore,
    /// Plain names on a filesystem that treats `a` and `A` as the same name.
    #[error("the filesystem of {} is case-insensitive and the names are not encrypted: files would overwrite one another; use another filesystem or encrypted names (to read, mount with --read-only)", .0.display())]
    FoldsCase(PathBuf),
    /// The filesystem refuses even short stored names.
    #[error("the filesystem of {} refuses names of 128 bytes, which encrypted names need: choose another filesystem, or --names plain", .0.display())]
    NamesTooShort(PathBuf),
    /// A new vault was requested in a place that is not an empty directory.
    #[error("{} is not an empty directory: a vault can be created only in a new or empty directory", .0.display())]
    NotEmpty(PathBuf),
    /// A new vault was requested where there already is one.
    #[error("{} is a vault already: mount it, or choose another directory", .0.display())]
    AlreadyVault(PathBuf),
    /// The root directory is damaged.
    #[error(
        "the vault's root directory is damaged ({0}): restore its id file from a backup, or run `warpcrypt check --repair`"
    )]
    DamagedRoot(#[from] Damage),
    /// The anchor cannot be used, or shows that the vault is older than its last confirmed state.
    #[error("{0}")]
    Anchor(#[from] AnchorError),
    /// The store returned an error.
    #[error("{action} {}: {source}", .path.display())]
    Store {
        /// The attempted action, such as "cannot open".
        action: &'static str,
        /// The path it failed on.
        path: PathBuf,
        /// The store's error.
        source: io::Error,
    },
    /// The chosen engine is not available.
    #[error("{0}")]
    Engine(#[from] EngineError),
}

/// Advice for a vault of another format version.
fn advice(version: u64) -> &'static str {
    if version < u64::from(VERSION) {
        "it was made before the first release. Copy its files out with the program that made it, and into a new vault"
    } else {
        "use a newer warpcrypt"
    }
}

impl From<ConfigError> for OpenError {
    fn from(e: ConfigError) -> Self {
        match e {
            ConfigError::WrongSecret(kind) => OpenError::WrongSecret(kind),
            ConfigError::NoSlotOfThatKind(kind) => OpenError::NoSlot(kind),
            ConfigError::UnknownVersion(version) => OpenError::UnknownVersion(version),
            ConfigError::Damaged { what } => OpenError::Malformed(what),
            ConfigError::Edited => OpenError::Edited,
            other => OpenError::Config(other),
        }
    }
}
