//! The rules of lists, by name. A test build can break any one of them: the explorer must then find an attribute lost or come
//! back.

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// The content of a list is durable before its name is.
    ContentFirst,
    /// The name of a list is durable before anything older goes.
    NamesFirst,
    /// An attribute is in the list before it leaves the node.
    ListFirst,
    /// An older value leaves the node before the one in the list goes,
    OlderValueFirst,
    /// and durably so.
    SyncOlderValue,
    /// Of two lists, that under the present keys goes last.
    PresentLast,
    /// What a failed change left is made durable before anything else changes.
    CertainFirst,
}

/// Whether a rule holds.
#[cfg(not(test))]
pub(super) const fn holds(_: Rule) -> bool {
    true
}

#[cfg(test)]
pub(super) use breakable::{ALL, break_rule, holds};

#[cfg(test)]
mod breakable {
    use super::Rule::{self, *};
    use std::cell::Cell;

    thread_local! {
        static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    /// Whether a rule holds on this thread.
    pub(in crate::vault::xattr_list) fn holds(rule: Rule) -> bool {
        BROKEN.get() != Some(rule)
    }

    /// Breaks one rule on this thread, or none.
    pub(in crate::vault::xattr_list) fn break_rule(rule: Option<Rule>) {
        BROKEN.set(rule);
    }

    pub(in crate::vault::xattr_list) const ALL: [Rule; 7] =
        [ContentFirst, NamesFirst, ListFirst, OlderValueFirst, SyncOlderValue, PresentLast, CertainFirst];
}
