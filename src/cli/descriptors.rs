//! Keeps descriptors that this process was given from the process behind a mount: it would hold a lock or a
//! pipe of its starter for as long as the mount stands.

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    io::Errno,
};

/// The first descriptor after the standard three.
const FIRST: u32 = 3;

/// Marks every descriptor but the standard three to be closed when a program is started. A kernel before
/// 5.11 does not know the call; descriptors are then handed on.
pub fn hand_none_on() {
    // SAFETY: the call takes three numbers and no pointer, and closes nothing here and now: every owner
    // of a descriptor in this process keeps it.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Closes every descriptor but the standard three, for a process that has just begun and opened none. On a kernel before
/// 5.9, which does not know the call, they stay.
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
