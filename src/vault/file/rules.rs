//! The rules of the commit protocol, by name.
//!
//! `docs/format.md`, "Why each rule is there", says what each is for. A test build can break any one of them: the explorer
//! must then find a crash or a fault after which something is lost. In every other build all of them hold.

use crate::vault::breakable::breakable;

/// A rule of flush, commit, cut, rest or recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A chunk that has a slot above the base is not written again before a commit.
    OneSlotAboveBase,
    /// Under a clean record, a dirty one is durable before any slot is written.
    DirtyRecordFirst,
    /// A new slot never takes the place of the base's.
    KeepBaseSlot,
    /// Slots are durable before data of the base is overwritten.
    SyncBeforeOverwrite,
    /// The stored file has its new length before that sync.
    LengthBeforeSync,
    /// Entries between the old and the new end are erased when a file grows.
    EraseWhereGrown,
    /// Each flush has an epoch of its own.
    EpochPerFlush,
    /// What a failed flush left is erased with the next record.
    EraseLeftovers,
    /// A sync after a failed flush writes a record, although nothing else is to be flushed.
    FlushAfterFailure,
    /// A stored file that may be too long is cut before it grows.
    CutBeforeGrowth,
    /// A version becomes the base only after a sync.
    SyncBeforeBase,
    /// After a commit there is a record with the new base.
    RecordAfterCommit,
    /// Overwrites that failed half-way are completed before anything else.
    FinishOverwrites,
    /// The chunk that a version ends in is written again, or is a hole, before the version grows past it.
    EndBeforeGrowth,
    /// What was flushed is committed before a cut.
    CommitBeforeCut,
    /// A cut is durable before the stored file is cut.
    SyncBeforeCut,
    /// A cut that is durable has happened, whatever becomes of the stored file's length.
    CutHasHappened,
    /// The chunk that a cut leaves shorter gets a slot for its first part.
    RetagAtCut,
    /// The clean record comes after a sync of everything.
    SyncBeforeClean,
    /// Slots that are not current are erased before the clean record.
    EraseOlderSlots,
    /// Node pages are written before the clean record.
    NodesBeforeClean,
    /// Under a clean record the stored file has exactly its length.
    ExactLength,
    /// The clean record stands in both sectors.
    CleanTwice,
    /// A sequence number whose record could not be written is not used again.
    BurnSequence,
    /// After a failed sync the file takes no writes.
    StopAfterFailedSync,
    /// A record with the base as its target, too, stands in both sectors.
    BaseRecordTwice,
    /// A dirty record names the version that was flushed before.
    NamePrevious,
    /// A dirty record names the newest version that was flushed over data of the base.
    NameBarrier,
    /// A slot above the base counts only at a version that the slots prove.
    OnlyProven,
    /// Recovery keeps a slot above the base only where the stored bytes verify under it.
    VerifyData,
    /// A chunk without a slot is a hole only where a proven version says so; else the file ends before it.
    ProvenHoles,
    /// Recovery writes slots again, and syncs, before it trusts them.
    RewriteSlots,
    /// Recovery writes the data that it keeps again, and syncs.
    RewriteData,
    /// Recovery erases the slots that it rejects.
    EraseRejected,
    /// A recovery record is durable before recovery erases slots.
    RecordBeforeErasing,
    /// At a recovery record a slot above the base counts only where the stored bytes verify under it.
    VerifyAtRecovery,
    /// At a recovery record no slot counts that is newer than the version that recovery began with.
    LimitOfRecovery,
    /// A recovery record names the chunks that are lost.
    NameUnreadable,
    /// The new form of a file that is rewritten is durable before its records replace those of the old one.
    NewFormDurable,
    /// These records are durable before anything else of the old form changes.
    NewRecordsFirst,
    /// A new form counts only while neither record of the file is newer.
    NoNewerRecord,
    /// The new form is removed durably before the file is used.
    RemovalDurable,
    /// A record is called durable only after a sync that followed it.
    BoundAfterSync,
    /// A chunk in flight is completed before it is read.
    CompleteBeforeReading,
    /// A chunk in flight is completed before a part of it is changed.
    CompleteBeforeChanging,
    /// A chunk in flight does not go again in the same epoch.
    ApartInEpoch,
    /// What a failed write gives back does not take the place of what was written since.
    KeepNewer,
    /// Slots that readers loaded belong to what is changed.
    TakeInLoaded,
    /// A read-ahead window is used only for the content that it was opened of.
    SameContent,
    /// A chunk that does not verify while others may write the file is read again while they may not.
    ReadAgainHeld,
    /// A step on the way to a clean record is void if the file changed since the one before.
    CleanStepIsVoid,
    /// So it is if a change failed and left something in the store.
    FailureVoidsCleanStep,
    /// Nothing is in flight while the file is synced on that way: the store says only once that a sync failed.
    CompleteBeforeSync,
}

breakable!();

/// All that matter to one thread alone; the explorer of interleavings has the others.
#[cfg(test)]
pub(super) const ALL: [Rule; 39] = {
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
        RewriteData,
        EraseRejected,
        RecordBeforeErasing,
        VerifyAtRecovery,
        LimitOfRecovery,
        TakeInLoaded,
        FailureVoidsCleanStep,
    ]
};
