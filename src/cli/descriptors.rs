//! Keeps descriptors that this process was given from the process behind a mount: it would hold a lock or a
//! pipe of its starter for as long as the mount stands.

/// Marks every descriptor but the standard three to be closed when a program is started. A kernel before
/// 5.11 does not know the call; descriptors are then handed on.
pub fn hand_none_on() {
    const FIRST: u32 = 3;
    // SAFETY: the call takes three numbers and no pointer, and closes nothing here and now: every owner
    // of a descriptor in this process keeps it.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}
