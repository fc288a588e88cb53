//! The rules of the commit protocol, by name.
//!
//! `docs/format.md`, "Why each rule is there", gives the reason for each. A test build can break any one
//! of them, and the explorer must then find a crash or fault that loses data. All other builds obey all
//! of them.

use crate::breakable;

/// A rule of flush, commit, truncation, rest or recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A chunk with a slot above the base is not written again before a commit.
    OneSlotAboveBase,
    /// If the newest record is clean, a dirty one is made durable before any slot is written.
    DirtyRecordFirst,
    /// A new slot never overwrites the base's slot.
    KeepBaseSlot,
    /// Slots are durable before data of the base is overwritten.
    SyncBeforeOverwrite,
    /// The stored file has its new length before that sync.
    LengthBeforeSync,
    /// When a file grows, the entries between the old and the new end are erased.
    EraseWhereGrown,
    /// Each flush uses a new epoch.
    EpochPerFlush,
    /// The next record also erases the leftovers of a failed flush.
    EraseLeftovers,
    /// A sync after a failed flush writes a record even if there is nothing else to flush.
    FlushAfterFailure,
    /// A stored file that may be too long is truncated before it grows.
    CutBeforeGrowth,
    /// A version becomes the base only after a sync.
    SyncBeforeBase,
    /// A commit is followed by a record that names the new base.
    RecordAfterCommit,
    /// Overwrites that failed half-way are completed before anything else is written.
    FinishOverwrites,
    /// A version's last chunk is written again, or made a hole, before the version grows past it.
    EndBeforeGrowth,
    /// Flushed data is committed before a truncation.
    CommitBeforeCut,
    /// A truncation is durable before the stored file is truncated.
    SyncBeforeCut,
    /// A durable truncation counts as done even if the stored file could not be shortened.
    CutHasHappened,
    /// The chunk that a truncation shortens gets a new slot for its remaining part.
    RetagAtCut,
    /// The clean record is written after a sync of everything else.
    SyncBeforeClean,
    /// Slots that are not current are erased before the clean record is written.
    EraseOlderSlots,
    /// Node pages are written before the clean record.
    NodesBeforeClean,
    /// Under a clean record, the stored file has exactly its length.
    ExactLength,
    /// The clean record is in both sectors.
    CleanTwice,
    /// The sequence number of a record that could not be written is not reused.
    BurnSequence,
    /// After a failed sync, the file accepts no writes.
    StopAfterFailedSync,
    /// A record that has the base as its target, too, is in both sectors.
    BaseRecordTwice,
    /// A dirty record names the version that was flushed before.
    NamePrevious,
    /// A dirty record names the newest version that was flushed over data of the base.
    NameBarrier,
    /// A slot above the base counts only at a version that is proven.
    OnlyProven,
    /// Recovery keeps a slot above the base only if the stored bytes verify under it.
    VerifyData,
    /// A chunk without a slot is a hole only if a proven version says so; otherwise the file ends before
    /// it.
    ProvenHoles,
    /// Recovery rewrites slots and syncs them before it trusts them.
    RewriteSlots,
    /// Recovery rewrites the end of the stored file, which makes its length durable.
    RewriteEnd,
    /// Recovery rewrites the data that it keeps, and syncs it.
    RewriteData,
    /// Recovery erases the slots that it rejects.
    EraseRejected,
    /// A recovery record is durable before recovery erases slots.
    RecordBeforeErasing,
    /// At a recovery record, a slot above the base counts only if the stored bytes verify under it.
    VerifyAtRecovery,
    /// At a recovery record, slots newer than the version from which recovery started do not count.
    LimitOfRecovery,
    /// A recovery record names the chunks that are lost.
    NameUnreadable,
    /// The new form of a rewritten file is durable before its records replace those of the old form.
    NewFormDurable,
    /// These records are durable before anything else of the old form changes.
    NewRecordsFirst,
    /// A new form counts only while neither record of the file is newer.
    NoNewerRecord,
    /// The removal of a new form is durable before the file is used.
    RemovalDurable,
    /// A record counts as durable only after a sync that followed its write.
    BoundAfterSync,
    /// A chunk in flight is stored before it is read.
    CompleteBeforeReading,
    /// A chunk in flight is stored before part of it is changed.
    CompleteBeforeChanging,
    /// A chunk in flight is not written a second time in the same epoch.
    ApartInEpoch,
    /// The chunks that a failed write returns to the buffer do not replace newer content.
    KeepNewer,
    /// Slots loaded by readers are merged into the tree before it is changed.
    TakeInLoaded,
    /// A read-ahead window is used only for the content that it was opened for.
    SameContent,
    /// If a chunk fails to verify while others may write the file, it is read again under the lock.
    ReadAgainHeld,
    /// A step towards a clean record is void if the file has changed since the previous step.
    CleanStepIsVoid,
    /// It is also void if a change failed and left something in the store.
    FailureVoidsCleanStep,
    /// No writes are in flight during the sync before a clean record: the store reports a failed sync
    /// only once.
    CompleteBeforeSync,
}

breakable!(Rule if test);

/// The rules that matter to a single thread. Other tests break the rest: the explorer of interleavings, and
/// the tests of rewriting and of bounds.
#[cfg(test)]
pub(super) const ALL: [Rule; 40] = {
    use Rule::*;
    [
        OneSlotAboveBase,
        DirtyRecordFirst,
        KeepBaseSlot,
        SyncBeforeOverwrite,
        LengthBeforeSync,
        EraseWhereGrown,
        EpochPerFlush,
        EraseLeftovers,
        FlushAfterFailure,
        CutBeforeGrowth,
        SyncBeforeBase,
        RecordAfterCommit,
        FinishOverwrites,
        EndBeforeGrowth,
        CommitBeforeCut,
        SyncBeforeCut,
        CutHasHappened,
        RetagAtCut,
        SyncBeforeClean,
        EraseOlderSlots,
        NodesBeforeClean,
        ExactLength,
        CleanTwice,
        BurnSequence,
        StopAfterFailedSync,
        BaseRecordTwice,
        NamePrevious,
        NameBarrier,
        OnlyProven,
        VerifyData,
        ProvenHoles,
        RewriteSlots,
        RewriteEnd,
        RewriteData,
        EraseRejected,
        RecordBeforeErasing,
        VerifyAtRecovery,
        LimitOfRecovery,
        TakeInLoaded,
        FailureVoidsCleanStep,
    ]
};
