//! For tests: a store that runs out of descriptors, refuses changes of names, or cannot be synced as a whole.

use rustix::io::Errno;
use std::cell::Cell;

/// The kind of call that fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// An open. Exactly one fails.
    Open,
    /// A change of a name. One fails, and so do all later ones.
    Change,
}

#[derive(Clone, Copy)]
struct FailurePlan {
    call: Call,
    /// Number of calls that succeed first.
    before: u64,
    errno: Errno,
    has_failed: bool,
}

thread_local! {
    static PLAN: Cell<Option<FailurePlan>> = const { Cell::new(None) };
    static LIKE_FUSE: Cell<bool> = const { Cell::new(false) };
}

/// Makes every store of this thread lack syncfs, like FUSE, or ends that.
pub fn like_fuse(on: bool) {
    LIKE_FUSE.set(on);
}

pub(super) fn is_like_fuse() -> bool {
    LIKE_FUSE.get()
}

/// Makes the `nth` open of this thread fail (0: the next one).
pub fn fail_open(nth: u64, errno: Errno) {
    PLAN.set(Some(FailurePlan { call: Call::Open, before: nth, errno, has_failed: false }));
}

/// Makes all changes of names of this thread fail from the `nth` on.
pub fn fail_changes(nth: u64, errno: Errno) {
    PLAN.set(Some(FailurePlan { call: Call::Change, before: nth, errno, has_failed: false }));
}

/// Ends the failures. Returns whether any call failed since `fail_open` or `fail_changes`.
pub fn end() -> bool {
    PLAN.take().is_some_and(|plan| plan.has_failed)
}

/// Counts a call; `Err` if it must fail.
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
