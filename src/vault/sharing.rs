//! Rules for a vault that several machines share. A test breaks each one and has to detect it.

use super::breakable::breakable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) enum Rule {
    /// A file is changed only under its lease, which nobody else holds at that time.
    LeaseBeforeChange,
    /// After taking a lease, a machine continues from the state in the store.
    LookUnderLease,
    /// Opening a file reads its state in the store.
    LookAtOpen,
    /// A descriptor that holds a lock is not replaced by another, which would not hold it.
    KeepLockedDescriptor,
    /// A lease is released only when the store has everything under a clean record.
    CleanBeforeGivingBack,
    /// Data that does not verify is read again under the lock of the stored file.
    ReadAgainLocked,
    /// A stored file is recovered only under its lock.
    RecoverLocked,
    /// A machine that lost a lease does not continue from its state in memory.
    FailWithoutLease,
    /// A lease that the store may have taken away is checked when the file is opened.
    CheckLeaseAtOpen,
    /// A machine that takes a lost lease again sees from the records whether another machine held it.
    KnowOwnRecords,
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

breakable!();

/// The rule that is broken on this thread.
#[cfg(test)]
pub(super) fn broken() -> Option<Rule> {
    BROKEN.get()
}
