//! Rules for files that several machines share. A test breaks each one and has to detect it.

use crate::breakable;

/// A rule of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(any(test, feature = "testing")), allow(dead_code))]
pub enum LeaseRule {
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
}

breakable!(LeaseRule if any(test, feature = "testing"));

/// The rule that is broken on this thread.
#[cfg(any(test, feature = "testing"))]
pub fn broken() -> Option<LeaseRule> {
    BROKEN.get()
}
