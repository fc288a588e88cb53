//! Descriptors that run out, for tests: an open of the store fails, and others do not.

use rustix::io::Errno;
use std::cell::Cell;

thread_local! {
    /// Opens before the one that fails, and how it does.
    static NEXT: Cell<Option<(u64, Errno)>> = const { Cell::new(None) };
}

/// Lets the `nth` open of this thread fail (0: the next one).
pub fn fail_open(nth: u64, errno: Errno) {
    NEXT.set(Some((nth, errno)));
}

/// No open fails; whether one did since `fail_open`.
pub fn end() -> bool {
    NEXT.take().is_none()
}

/// Counts an open.
pub(super) fn ask() -> Result<(), Errno> {
    match NEXT.take() {
        Some((0, errno)) => Err(errno),
        Some((more, errno)) => {
            NEXT.set(Some((more - 1, errno)));
            Ok(())
        }
        None => Ok(()),
    }
}
