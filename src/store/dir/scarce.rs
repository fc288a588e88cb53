//! A store that is out of descriptors, that refuses changes of names, or that cannot be made durable as a whole, for tests.

use rustix::io::Errno;
use std::cell::Cell;

/// What is about to fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// An open. One fails, and others do not.
    Open,
    /// A change of a name. That one fails and all that follow.
    Change,
}

#[derive(Clone, Copy)]
struct Plan {
    call: Call,
    /// Such calls before the one that fails.
    before: u64,
    errno: Errno,
    has_failed: bool,
}

thread_local! {
    static PLAN: Cell<Option<Plan>> = const { Cell::new(None) };
    static LIKE_FUSE: Cell<bool> = const { Cell::new(false) };
}

/// Has every store be made durable file by file on this thread, as one of FUSE, or none.
pub fn like_fuse(on: bool) {
    LIKE_FUSE.set(on);
}

pub(super) fn is_like_fuse() -> bool {
    LIKE_FUSE.get()
}

/// Lets the `nth` open of this thread fail (0: the next one).
pub fn fail_open(nth: u64, errno: Errno) {
    PLAN.set(Some(Plan { call: Call::Open, before: nth, errno, has_failed: false }));
}

/// Lets changes of names of this thread fail from the `nth` on.
pub fn fail_changes(nth: u64, errno: Errno) {
    PLAN.set(Some(Plan { call: Call::Change, before: nth, errno, has_failed: false }));
}

/// Nothing fails; whether anything did since `fail_open` or `fail_changes`.
pub fn end() -> bool {
    PLAN.take().is_some_and(|plan| plan.has_failed)
}

/// Counts a call.
pub(super) fn ask(call: Call) -> Result<(), Errno> {
    if call == Call::Change {
        super::power::call()?;
    }
    let Some(mut plan) = PLAN.get().filter(|plan| plan.call == call) else { return Ok(()) };
    let fails = plan.before == 0 && !(call == Call::Open && plan.has_failed);
    plan.before = plan.before.saturating_sub(1);
    plan.has_failed |= fails;
    PLAN.set(Some(plan));
    if fails { Err(plan.errno) } else { Ok(()) }
}
