//! Filesystem behaviour that the kernel and programs rely on, on a mount.

mod attributes;
mod contents;
mod handles;
mod limits;
mod nameless;
mod names;
mod overlay;
mod owners;
mod set_id;
mod sizes;
mod threads;
mod times;
mod users;
mod write_back;

use rustix::fs::{Mode, OFlags, open};
use std::{
    fs,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
};

/// Opens a file for reading and writing, creating it if necessary.
fn create(path: &Path) -> OwnedFd {
    open(path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC, Mode::from_raw_mode(0o644)).expect("create")
}

/// The permission bits of a file.
fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).expect("stat").mode() & 0o7777
}
