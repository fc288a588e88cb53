//! The rules of lists, by name. A test build can break any one of them: the explorer must then find an attribute lost or come
//! back.

use crate::vault::breakable::breakable;

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

breakable!();

#[cfg(test)]
pub(super) const ALL: [Rule; 7] = {
    use Rule::*;
    [ContentFirst, NamesFirst, ListFirst, OlderValueFirst, SyncOlderValue, PresentLast, CertainFirst]
};
