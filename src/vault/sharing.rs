//! Rules of a vault on a store between machines, by name. A test breaks each, and has to notice.

use super::breakable::breakable;

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
    /// A descriptor that has a lock is not exchanged for another, which would not have it.
    KeepLockedDescriptor,
    /// A lease is given back when the store has all under a clean record.
    CleanBeforeGivingBack,
    /// What does not verify is read again under the lock of the stored file.
    ReadAgainLocked,
    /// Only who has the lock of a stored file recovers it.
    RecoverLocked,
    /// Who lost a lease does not go on from what he had in memory.
    FailWithoutLease,
    /// A lease that the store may have taken away is looked at when the file is opened.
    CheckLeaseAtOpen,
    /// Who took a lost lease again knows by the records whether another had it.
    KnowOwnRecords,
    /// A file is opened anew where the store does not know its descriptor any more.
    OpenAnew,
    /// Who took the lock of the vault again knows by its mark whether another had it alone.
    KnowOwnMark,
    /// Who had lost it is asked before something is written.
    AskBeforeWriting,
    /// Who adds a name to a directory keeps others from removing the directory, by its lock.
    LockDirectory,
    /// A directory never gets another id.
    KeepIds,
    /// A locked id file leaves its directory before it is removed.
    MoveIdAside,
    /// A directory that is stale was removed: it needs no sync.
    StaleIsGone,
}

breakable!();

/// The rule that is broken on this thread.
#[cfg(test)]
pub(super) fn broken() -> Option<Rule> {
    BROKEN.get()
}
