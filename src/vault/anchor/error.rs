//! Why an anchor cannot be used. Each message says what its reader can do.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why an anchor cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    /// It lies where it proves nothing.
    #[error("the anchor {} lies inside of {}: keep it elsewhere, where nobody can change it together with the vault", .0.display(), .1.display())]
    Inside(PathBuf, PathBuf),
    /// There is none, and none is to be made.
    #[error("there is no anchor {}: a mount for writing makes it, or `warpcrypt check --accept`", .0.display())]
    Missing(PathBuf),
    /// Another process writes to it.
    #[error("the anchor {} is in use: unmount the vault first", .0.display())]
    InUse(PathBuf),
    /// It is another kind of file.
    #[error("{} is no anchor, or damaged: name another file", .0.display())]
    NotAnAnchor(PathBuf),
    /// It belongs to another vault.
    #[error("{} is the anchor of another vault: name another file", .0.display())]
    OtherVault(PathBuf),
    /// It is under a master key that the vault had before.
    #[error("the anchor {} is from before the vault got another master key: `warpcrypt check --anchor FILE --accept` takes the vault as it is now", .0.display())]
    OtherKey(PathBuf),
    /// Another directory stands where the vault's root was.
    #[error("the vault's root is not the directory that the anchor {} knows. If that is meant to be so, `warpcrypt check --anchor FILE --accept` takes the vault as it is now", .0.display())]
    OtherRoot(PathBuf),
    /// The configuration was put back as it once was.
    #[error("the vault is older than the anchor {} says: its configuration is number {found}, and {confirmed} was confirmed. If that is meant to be so, `warpcrypt check --anchor FILE --accept` takes the vault as it is now", .path.display())]
    OldConfiguration {
        /// The anchor.
        path: PathBuf,
        /// Generation of the configuration.
        found: u64,
        /// The least that it may be.
        confirmed: u64,
    },
    /// The file fails.
    #[error("the anchor {}: {source}", .path.display())]
    File {
        /// The anchor.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
}

impl AnchorError {
    /// Whether there is no room for it.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, AnchorError::File { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    pub(super) fn at(path: &Path, source: io::Error) -> Self {
        AnchorError::File { path: path.to_owned(), source }
    }
}
