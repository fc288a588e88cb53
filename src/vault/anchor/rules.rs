//! The rules by which a crash never leaves an anchor that refuses what is right. A test build can break each; the tests then
//! find a crash that does.

/// A rule of an anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// The anchor says that a directory is being changed before it is.
    MarkBeforeChange,
    /// It says so again if changes could not be brought to it: it may have them all the same.
    MarkAfterFailure,
    /// The store has the changes durably before the anchor has them.
    SyncBeforeKeep,
    /// What was found in a directory that was changed since is not kept.
    KeepWhatIsStill,
}

/// Whether a rule holds.
#[cfg(not(test))]
pub(super) const fn holds(_: Rule) -> bool {
    true
}

#[cfg(test)]
pub(super) use breakable::{break_rule, holds};

#[cfg(test)]
mod breakable {
    use super::Rule;
    use std::cell::Cell;

    thread_local! {
        static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    /// Whether a rule holds on this thread.
    pub(in crate::vault::anchor) fn holds(rule: Rule) -> bool {
        BROKEN.get() != Some(rule)
    }

    /// Breaks one rule on this thread, or none.
    pub(in crate::vault::anchor) fn break_rule(rule: Option<Rule>) {
        BROKEN.set(rule);
    }
}
