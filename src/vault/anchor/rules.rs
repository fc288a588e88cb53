//! The rules by which a crash never leaves an anchor that refuses what is right. A test build can break each; the tests then
//! find a crash that does.

use crate::vault::breakable::breakable;

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

breakable!();
