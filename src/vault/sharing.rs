//! Rules of a vault that several machines write to, by name. A test breaks each, and has to notice.

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) enum Rule {
    /// Who changes a file has its lease, which nobody else has then.
    LeaseBeforeChange,
    /// Who takes a lease goes on from what the store has.
    LookUnderLease,
    /// Who opens a file looks at what the store has.
    LookAtOpen,
    /// A lease is given back when the store has all under a clean record.
    CleanBeforeGivingBack,
    /// What does not verify is read again under the lock of the stored file.
    ReadAgainLocked,
    /// Only who has the lock of a stored file recovers it.
    RecoverLocked,
    /// Who adds a name to a directory keeps others from removing the directory, by its lock.
    LockDirectory,
    /// A directory never gets another id.
    KeepIds,
}

/// Whether a rule holds.
#[cfg(not(test))]
pub(super) const fn holds(_: Rule) -> bool {
    true
}

#[cfg(test)]
pub(super) use breakable::{break_rule, broken, holds};

#[cfg(test)]
mod breakable {
    use super::Rule;
    use std::cell::Cell;

    thread_local! {
        static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    /// Whether a rule holds on this thread.
    pub(in crate::vault) fn holds(rule: Rule) -> bool {
        BROKEN.get() != Some(rule)
    }

    /// Breaks one rule on this thread, or none.
    pub(in crate::vault) fn break_rule(rule: Option<Rule>) {
        BROKEN.set(rule);
    }

    /// The rule that is broken on this thread.
    pub(in crate::vault) fn broken() -> Option<Rule> {
        BROKEN.get()
    }
}
