//! Keeps inherited descriptors out of the process behind a mount. Otherwise it would hold a lock or pipe
//! of the program that started it for the lifetime of the mount.

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    io::Errno,
};

/// The first descriptor after the standard three.
const FIRST: u32 = 3;

/// Marks every descriptor but the standard three close-on-exec. Kernels before 5.11 do not support this;
/// descriptors are then inherited.
pub fn hand_none_on() {
    // SAFETY: the call takes three numbers and no pointer. It closes nothing now, so every owner of a
    // descriptor in this process keeps it.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Closes every descriptor but the standard three. For a process that has just started and opened none
/// itself. Kernels before 5.9 do not support this; descriptors then stay open.
pub fn close_inherited() {
    // SAFETY: the call takes three numbers and no pointer. Nothing in this process owns a descriptor
    // yet.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, 0) };
}

/// Opens `/dev/null` for reading and writing.
///
/// # Errors
/// Those of open(2).
pub fn null() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}
