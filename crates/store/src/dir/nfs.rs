//! For tests: a store that behaves like an NFS client. A file removed while open stays in its directory
//! under another name until it is closed. Operations on a removed directory fail with ESTALE.

use super::StoreDir;
use rustix::{
    fs::{AtFlags, FileType, fstat},
    io::Errno,
};
use std::{
    cell::Cell,
    ffi::{OsStr, OsString},
    fs, io,
    os::fd::{AsRawFd, RawFd},
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Prefix of the names of such files.
const KEPT: &str = ".nfs";

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
}

/// Files that were removed while open, and have not been swept yet.
static LEFT: Mutex<Vec<(StoreDir, OsString)>> = Mutex::new(Vec::new());

/// Turns this behaviour on or off for the current thread.
pub fn like_nfs(on: bool) {
    sweep();
    ON.set(on);
}

/// Whether this is the name of a file that was removed while open.
pub fn is_kept(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(KEPT.as_bytes())
}

/// Renames `name` out of the way if it is an open file. Returns whether it did.
pub(super) fn keep(dir: &StoreDir, name: &OsStr) -> io::Result<bool> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if !ON.get() || is_dir(dir, name) || !is_open(dir, name) {
        return Ok(false);
    }
    let kept = OsString::from(format!("{KEPT}{:016x}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    rustix::fs::renameat(dir, name, dir, &kept)?;
    LEFT.lock().unwrap().push((dir.try_clone()?, kept));
    Ok(true)
}

/// Applies `keep` to the target that a rename would replace.
pub(super) fn keep_replaced(dir: &StoreDir, name: &OsStr, to: &StoreDir, new: &OsStr) -> io::Result<()> {
    let (Ok(moved), Ok(replaced)) = (dir.stat(name), to.stat(new)) else { return Ok(()) };
    if moved.st_ino != replaced.st_ino && !is_dir(dir, name) {
        keep(to, new)?;
    }
    Ok(())
}

/// Removes the files that have been closed since.
pub fn sweep() {
    if ON.get() {
        LEFT.lock().unwrap().retain(|(dir, name)| {
            let open = is_open(dir, name);
            if !open {
                let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty()); // the directory may be gone
            }
            open
        });
    }
}

/// Fails with ESTALE if the directory was removed.
pub(super) fn known(dir: &StoreDir) -> Result<(), Errno> {
    if ON.get() && fstat(dir)?.st_nlink == 0 { Err(Errno::STALE) } else { Ok(()) }
}

fn is_dir(dir: &StoreDir, name: &OsStr) -> bool {
    dir.stat(name).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Whether this process has the file open under this name.
fn is_open(dir: &StoreDir, name: &OsStr) -> bool {
    let Some(path) = path_of(dir.fd.as_raw_fd()).map(|dir| dir.join(name)) else { return false };
    let open = fs::read_dir("/proc/self/fd").expect("the open files").flatten();
    open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|open| open == path)
}

fn path_of(fd: RawFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{fd}")).ok()
}
