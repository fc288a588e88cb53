//! Why an anchor cannot be used. Each message tells its reader what to do.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why an anchor cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    /// The anchor is inside the vault's directory, where it proves nothing.
    #[error("the anchor {} lies inside of {}: keep it elsewhere, where nobody can change it together with the vault", .0.display(), .1.display())]
    Inside(PathBuf, PathBuf),
    /// The anchor does not exist, and may not be created.
    #[error("there is no anchor {}: a mount for writing makes it, or `warpcrypt check --accept`", .0.display())]
    Missing(PathBuf),
    /// Another process holds the lock on the anchor.
    #[error("the anchor {} is in use: unmount the vault first", .0.display())]
    InUse(PathBuf),
    /// The file is not an anchor.
    #[error("{} is no anchor, or damaged: name another file", .0.display())]
    NotAnAnchor(PathBuf),
    /// The anchor belongs to another vault.
    #[error("{} is the anchor of another vault: name another file", .0.display())]
    OtherVault(PathBuf),
    /// The anchor is under a master key that the vault had before.
    #[error("the anchor {} is from before the vault got another master key: `warpcrypt check --anchor FILE --accept` takes the vault as it is now", .0.display())]
    OtherKey(PathBuf),
    /// The vault's root is another directory than before.
    #[error("the vault's root is not the directory recorded in the anchor {}. If that is intended, `warpcrypt check --anchor FILE --accept` accepts the vault's current state", .0.display())]
    OtherRoot(PathBuf),
    /// The configuration was replaced by an older one.
    #[error("the vault is older than the anchor {} says: its configuration is number {found}, and {confirmed} was confirmed. If that is meant to be so, `warpcrypt check --anchor FILE --accept` takes the vault as it is now", .path.display())]
    OldConfiguration {
        /// The anchor.
        path: PathBuf,
        /// Generation of the configuration.
        found: u64,
        /// The lowest generation allowed.
        confirmed: u64,
    },
    /// An error of the anchor's file.
    #[error("the anchor {}: {source}", .path.display())]
    File {
        /// The anchor.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl AnchorError {
    /// Whether the anchor's disk or quota is full.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, AnchorError::File { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    pub(super) fn at(path: &Path, source: io::Error) -> Self {
        AnchorError::File { path: path.to_owned(), source }
    }
}
