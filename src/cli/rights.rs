//! The rights of a command that reads what others may have written: it gives up all but those that it still needs.

use super::note;
use crate::{
    engine::{self, EngineChoice},
    fuse::{self, Reach},
    vault::{AnchorUse, OpenOptions},
};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::{
    fs, iter,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Symbolic links that the kernel follows one after the other, and the name that they begin with.
const LINKS: usize = 41;

/// Gives up all rights but those to `reach` and to what is opened with the vault. Call it while the process has a single thread, and
/// has read its arguments and secrets: it starts no program from here on. Keep `reach` until everything in it is open: the kernel
/// knows that by its inode, and some filesystems have another one each time that a name is looked up.
pub fn give_up(reach: &mut Reach, vault: &Path, options: &OpenOptions) {
    match options.read_only {
        true => reach.seen.extend(opened(vault)),
        false => reach.directories.extend(opened(vault)),
    }
    add_anchor(reach, options.anchor.as_ref());
    add_measurements(reach, options.engine);
    if options.engine != EngineChoice::Cpu
        && let Err(e) = engine::start_gpus_apart()
    {
        log::info!("no GPU can be used: {e}");
    }
    for left in fuse::confine(reach) {
        note(format_args!("the process {left}"));
    }
}

/// A descriptor that stands for what is at this path, following links; `None` if nothing is.
pub fn opened(path: &Path) -> Option<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// The anchor, and where it is made if it is new.
pub fn add_anchor(reach: &mut Reach, anchor: Option<&AnchorUse>) {
    let Some(AnchorUse { file, .. }) = anchor else { return };
    reach.files.extend(opened(file));
    if !fs::metadata(file).is_ok_and(|found| found.len() > 0) {
        add_place(reach, file);
    }
}

/// The directories in which a file is made: it is made where its name leads, and the directory of the name is synced.
pub fn add_place(reach: &mut Reach, file: &Path) {
    let made = end_of_links(file);
    reach.places.extend([&made, file].into_iter().filter_map(|file| opened(file.parent()?)));
}

/// The directory in which measurements of engines are kept.
pub fn add_measurements(reach: &mut Reach, engine: EngineChoice) {
    let dir = match engine {
        EngineChoice::Cpu => None,
        EngineChoice::Gpu => engine::measurements_dir(true).ok(),
        // Nothing is measured where there is no GPU. One that PCI does not list is measured each time until `devices --measure`
        // has made the directory.
        EngineChoice::Auto => engine::measurements_dir(engine::gpu_is_installed()).ok(),
    };
    reach.directories.extend(dir);
}

/// The path at the end of a chain of symbolic links, which need not exist.
fn end_of_links(name: &Path) -> PathBuf {
    let next = |at: &PathBuf| Some(at.parent()?.join(fs::read_link(at).ok()?));
    let links = iter::successors(Some(name.to_owned()), next);
    links.take(LINKS).last().unwrap_or_else(|| name.to_owned())
}
