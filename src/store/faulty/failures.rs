//! Which calls of the store fail, and how.

use std::io;

/// What a store can be told to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// ENOSPC, EIO, EROFS, …: the call fails with this error number and changes nothing.
    Errno(i32),
    /// A write stops after its first page, then fails with this error number.
    Partial(i32),
    /// A write stops after so many sectors.
    Torn(i32, usize),
    /// The call does all that it should, and fails.
    Landed(i32),
    /// A sync marks what was written as clean, although it is not durable.
    Lost(i32),
}

impl Failure {
    /// What the caller sees of it.
    pub(super) fn error(self) -> io::Error {
        let (Failure::Errno(errno)
        | Failure::Partial(errno)
        | Failure::Torn(errno, _)
        | Failure::Landed(errno)
        | Failure::Lost(errno)) = self;
        io::Error::from_raw_os_error(errno)
    }
}

/// A call of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `read_at`
    Read,
    /// `write_at`
    Write,
    /// `set_len`
    SetLen,
    /// `len`
    Len,
    /// `sync_data`
    Sync,
    /// `punch`
    Punch,
    /// `reserve`
    Reserve,
    /// `mtime` or `set_mtime`
    Time,
    /// `attribute_names`, `set_attribute` or `remove_attribute`
    Attribute,
}

/// Failures of a few calls.
struct Few {
    /// Only these; without one, calls of any kind.
    only: Option<Call>,
    /// Calls before the first of them.
    after: u64,
    times: u64,
    failure: Failure,
}

/// The failures to come, and counts of the calls so far.
#[derive(Default)]
pub(super) struct Failures {
    /// Every changing call fails once so many were made.
    lasting: Option<(u64, Failure)>,
    few: Option<Few>,
    /// Calls since somebody asked.
    pub(super) asked: Vec<Call>,
    /// Calls that change something.
    pub(super) changes: u64,
    /// Calls that failed.
    pub(super) failed: u64,
    /// The last call is a sync that loses what it should have written.
    loses: bool,
}

impl Failures {
    /// Lets every changing call from the `nth` on fail.
    pub(super) fn from(&mut self, nth: u64, failure: Failure) {
        self.lasting = Some((self.changes + nth, failure));
    }

    /// Lets so many calls fail, from the `nth` on: of one kind, or of any.
    pub(super) fn at(&mut self, only: Option<Call>, nth: u64, times: u64, failure: Failure) {
        self.few = Some(Few { only, after: nth, times, failure });
    }

    /// No more failures of either kind.
    pub(super) fn mend(&mut self) {
        (self.lasting, self.few) = (None, None);
    }

    /// No more failures of a few calls.
    pub(super) fn calm(&mut self) {
        self.few = None;
    }

    /// Counts a call of any kind; `Err` if it is one that fails.
    pub(super) fn ask(&mut self, call: Call) -> Result<(), Failure> {
        self.asked.push(call);
        let Some(few) = &mut self.few else { return Ok(()) };
        if few.only.is_some_and(|only| only != call) {
            return Ok(());
        }
        if few.after > 0 {
            few.after -= 1;
            return Ok(());
        }
        let failure = few.failure;
        few.times -= 1;
        if few.times == 0 {
            self.few = None;
        }
        self.failed += 1;
        self.loses = call == Call::Sync && matches!(failure, Failure::Lost(_));
        Err(failure)
    }

    /// Counts a changing call; `Err` if it is one that fails.
    pub(super) fn change(&mut self) -> Result<(), Failure> {
        self.changes += 1;
        match self.lasting {
            Some((from, failure)) if self.changes > from => Err(failure),
            _ => Ok(()),
        }
    }

    /// Whether the last call was a sync that loses what it should have written; asked once.
    pub(super) fn take_loses(&mut self) -> bool {
        std::mem::take(&mut self.loses)
    }
}
