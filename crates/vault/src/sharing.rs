//! Rules for a vault that several machines share. A test breaks each one and has to detect it.

use content::breakable;
use std::io;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) enum SharingRule {
    /// A file is reopened if the store no longer knows its descriptor.
    OpenAnew,
    /// A machine that takes the vault's lock again sees from its mark whether another process held the
    /// vault exclusively.
    KnowOwnMark,
    /// A machine that may have lost the vault's lock checks the lock before it writes.
    AskBeforeWriting,
    /// A machine that adds a name to a directory locks the directory, so that others cannot remove it.
    LockDirectory,
    /// A directory never gets another id.
    KeepIds,
    /// A locked id file is moved out of its directory before it is removed.
    MoveIdAside,
    /// A stale directory was removed, and needs no sync.
    StaleIsGone,
}

breakable!(SharingRule if test);

/// The rule that is broken on this thread.
#[cfg(test)]
pub(super) fn broken() -> Option<SharingRule> {
    BROKEN.get()
}

/// Whether a file or its directory was removed. NFS reports ESTALE for a known directory that was
/// removed.
pub(super) fn is_gone(e: &io::Error) -> bool {
    let stale = e.kind() == io::ErrorKind::StaleNetworkFileHandle && holds(SharingRule::StaleIsGone);
    stale || e.kind() == io::ErrorKind::NotFound
}
