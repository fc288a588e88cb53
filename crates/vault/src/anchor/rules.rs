//! Rules that keep a crash from leaving an anchor that refuses valid data. A test build can break each
//! one. The tests then find such a crash.

use content::breakable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnchorRule {
    /// The anchor marks a directory as being changed before the first change.
    MarkBeforeChange,
    /// The mark is written again after a failed write of changes, which may have removed it.
    MarkAfterFailure,
    /// The store has changes durably before the anchor records them.
    SyncBeforeKeep,
    /// Findings about a directory that has changed since are discarded.
    KeepWhatIsStill,
}

breakable!(AnchorRule if test);
