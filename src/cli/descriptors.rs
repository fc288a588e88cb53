//! Keeps inherited descriptors from the process behind a mount: it would hold a lock or a pipe of the program that
//! started it for as long as the mount exists.

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    io::Errno,
};

/// The first descriptor after the standard three.
const FIRST: u32 = 3;

/// Marks every descriptor but the standard three to be closed when a program is started. A kernel before
/// 5.11 does not know the call; descriptors are then inherited.
pub fn hand_none_on() {
    // SAFETY: the call takes three numbers and no pointer, and closes nothing now: every owner
    // of a descriptor in this process keeps it.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Closes every descriptor but the standard three, for a process that has just begun and opened none. A kernel before
/// 5.9 does not know the call; descriptors then stay open.
pub fn close_inherited() {
    // SAFETY: takes three numbers and no pointer. Nothing in this process owns a descriptor yet.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, 0) };
}

/// `/dev/null`, for reading and writing.
///
/// # Errors
/// What the system says.
pub fn null() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}
