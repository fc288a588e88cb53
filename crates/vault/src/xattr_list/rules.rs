//! Rules for lists of attributes. A test build can break any one of them. The explorer must then find an
//! attribute that is lost or comes back.

use content::breakable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListRule {
    /// The content of a list is durable before its name is.
    ContentFirst,
    /// The name of a list is durable before anything older is removed.
    NamesFirst,
    /// An attribute is in the list before it is removed from the node.
    ListFirst,
    /// An older value is removed from the node before the one in the list.
    OlderValueFirst,
    /// The removal of the older value is durable before the one in the list is removed.
    SyncOlderValue,
    /// If there are two lists, the one under the present keys is removed last.
    PresentLast,
    /// The result of a failed change is made durable before anything else changes.
    CertainFirst,
}

breakable!(ListRule if test);

#[cfg(test)]
pub(super) const ALL: [ListRule; 7] = {
    use ListRule::*;
    [ContentFirst, NamesFirst, ListFirst, OlderValueFirst, SyncOlderValue, PresentLast, CertainFirst]
};
