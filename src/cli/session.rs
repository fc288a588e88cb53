//! An unlocked vault on its mount point, from the mount to the end of its last flush.

use super::exit::Outcome;
use crate::vault::{OpenOptions, Unlock};
use std::path::{Path, PathBuf};

/// What is mounted where, and how.
pub struct Plan {
    /// The vault.
    pub vault: PathBuf,
    /// The mount point.
    pub mount: PathBuf,
    /// How the vault is opened.
    pub open: OpenOptions,
    /// Other users may enter.
    pub allow_other: bool,
    /// Options of the kernel's.
    pub kernel: Vec<String>,
}

impl Plan {
    /// A private read-write mount with every default.
    pub fn plain(vault: &Path, mount: &Path) -> Self {
        Plan {
            vault: vault.to_owned(),
            mount: mount.to_owned(),
            open: OpenOptions::default(),
            allow_other: false,
            kernel: Vec::new(),
        }
    }
}

/// A mount that answers.
pub struct Mounted;

impl Mounted {
    /// Unlocks, mounts, and waits until the mount answers.
    pub fn start(_plan: &Plan, _unlock: &Unlock) -> Outcome<Mounted> {
        todo!()
    }

    /// Unmounts, and stores what is not stored yet.
    pub fn unmount(self) -> Outcome {
        todo!()
    }
}
