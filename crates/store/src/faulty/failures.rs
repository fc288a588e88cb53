//! Scheduled failures of calls to the store.

use std::io;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The call fails with this error number (ENOSPC, EIO, EROFS, …) and changes nothing.
    Errno(i32),
    /// A write fails with this error number after its first page.
    Partial(i32),
    /// A write fails with this error number after this many sectors.
    Torn(i32, usize),
    /// The call takes full effect, but reports this error number.
    Landed(i32),
    /// A sync fails and marks written data clean although it is not durable.
    Lost(i32),
}

impl Failure {
    /// The error that the caller gets.
    pub(super) fn error(self) -> io::Error {
        let (Failure::Errno(errno)
        | Failure::Partial(errno)
        | Failure::Torn(errno, _)
        | Failure::Landed(errno)
        | Failure::Lost(errno)) = self;
        io::Error::from_raw_os_error(errno)
    }
}

/// Kinds of call to the store.
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

/// Failures of a limited number of calls.
struct Few {
    /// The kind of call that fails; `None` for any kind.
    only: Option<Call>,
    /// Number of calls that succeed first.
    after: u64,
    times: u64,
    failure: Failure,
}

/// The scheduled failures, and counts of the calls so far.
#[derive(Default)]
pub(super) struct Failures {
    /// Every changing call fails after this many.
    lasting: Option<(u64, Failure)>,
    few: Option<Few>,
    /// Calls since the list was last taken.
    pub(super) asked: Vec<Call>,
    /// Number of changing calls.
    pub(super) changes: u64,
    /// Number of failed calls.
    pub(super) failed: u64,
    /// Whether the last failure was a sync that loses data.
    loses: bool,
}

impl Failures {
    /// Makes every changing call fail from the `nth` on.
    pub(super) fn from(&mut self, nth: u64, failure: Failure) {
        self.lasting = Some((self.changes + nth, failure));
    }

    /// Makes `times` calls fail from the `nth` on, of one kind or of any.
    pub(super) fn at(&mut self, only: Option<Call>, nth: u64, times: u64, failure: Failure) {
        self.few = Some(Few { only, after: nth, times, failure });
    }

    /// Ends all failures.
    pub(super) fn mend(&mut self) {
        (self.lasting, self.few) = (None, None);
    }

    /// Ends the failures scheduled by `at`.
    pub(super) fn calm(&mut self) {
        self.few = None;
    }

    /// Counts a call of any kind; `Err` if it must fail.
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

    /// Counts a changing call; `Err` if it must fail.
    pub(super) fn change(&mut self) -> Result<(), Failure> {
        self.changes += 1;
        match self.lasting {
            Some((from, failure)) if self.changes > from => Err(failure),
            _ => Ok(()),
        }
    }

    /// Whether the last failure was a sync that loses data. Resets the flag.
    pub(super) fn take_loses(&mut self) -> bool {
        std::mem::take(&mut self.loses)
    }
}
