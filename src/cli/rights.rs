//! Confinement of commands that read data others may have written: they give up all rights that they no
//! longer need.

use super::note;
use engine::EngineChoice;
use fuse::Reach;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::{
    fs, iter,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};
use vault::{AnchorUse, OpenOptions};

/// Maximum chain: the 40 symbolic links that the kernel follows, and the initial name.
const LINKS: usize = 41;

/// Gives up all rights except to `reach` and to the files that opening the vault needs. Call it while
/// the process has a single thread and after it has read its arguments and secrets, because it can start
/// no program afterwards. Keep `reach` until everything in it has been opened: the kernel identifies
/// files by inode, and some filesystems assign a new inode each time a name is looked up.
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

/// An `O_PATH` descriptor for this path, following links; `None` if it cannot be opened.
pub fn opened(path: &Path) -> Option<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Adds the anchor to `reach`, and the directories for creating it if it is new.
pub fn add_anchor(reach: &mut Reach, anchor: Option<&AnchorUse>) {
    let Some(AnchorUse { file, .. }) = anchor else { return };
    reach.files.extend(opened(file));
    if !fs::metadata(file).is_ok_and(|found| found.len() > 0) {
        add_place(reach, file);
    }
}

/// Adds the directories needed to create a file: the one where its name leads, in which it is created,
/// and the one that contains the name, which is synced.
pub fn add_place(reach: &mut Reach, file: &Path) {
    let made = end_of_links(file);
    reach.places.extend([&made, file].into_iter().filter_map(|file| opened(file.parent()?)));
}

/// Adds the directory that stores the measurements of engines.
pub fn add_measurements(reach: &mut Reach, engine: EngineChoice) {
    let dir = match engine {
        EngineChoice::Cpu => None,
        EngineChoice::Gpu => engine::measurements_dir(true).ok(),
        // Without a GPU nothing is measured. A GPU that PCI does not list is measured each time, until
        // `devices --measure` has created the directory.
        EngineChoice::Auto => engine::measurements_dir(engine::gpu_is_installed()).ok(),
    };
    reach.directories.extend(dir);
}

/// The path at the end of a chain of symbolic links. It need not exist.
fn end_of_links(name: &Path) -> PathBuf {
    let next = |at: &PathBuf| Some(at.parent()?.join(fs::read_link(at).ok()?));
    let links = iter::successors(Some(name.to_owned()), next);
    links.take(LINKS).last().unwrap_or_else(|| name.to_owned())
}
