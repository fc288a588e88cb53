//! What can go wrong in a vault. `fuse::errno` turns it into an errno, and nothing else does.

use super::sharing::{Rule, holds};
use rustix::io::Errno;
use std::io;

/// Result of a vault operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What was found damaged: the one log line of guarantee G1.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct Damage {
    /// The thing: "chunk 17", "leaf page 3", "commit record", "name", …
    pub what: String,
    /// Why: "tag does not verify", …
    pub reason: &'static str,
}

/// What the anchor says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Mismatch {
    /// The content was put back as it once was, or continued from there.
    #[error("is older than what was confirmed: commit record {found}, where the anchor has {confirmed}")]
    Old {
        /// Key generation and sequence number of the newest record.
        found: RecordOrder,
        /// The least that it may be.
        confirmed: RecordOrder,
    },
    /// A name that was confirmed is not there.
    #[error("is missing: the anchor has it as {0}")]
    Lost(&'static str),
    /// A name is there that was never confirmed, or whose removal was.
    #[error("is {0} that the anchor does not have")]
    Added(&'static str),
    /// Something else has the name.
    #[error("is {found}, where the anchor has {confirmed}")]
    Exchanged {
        /// What has it.
        found: &'static str,
        /// What was confirmed.
        confirmed: &'static str,
    },
}

/// Place of a commit record in the order of a file's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{sequence} of key generation {generation}")]
pub struct RecordOrder {
    /// Key generation.
    pub generation: u32,
    /// Sequence number.
    pub sequence: u64,
}

/// Something that is not what an anchor says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{mismatch}")]
pub struct Refused {
    /// Where it is in the store; `None` where whoever asked knows that.
    pub place: Option<String>,
    /// What the anchor says.
    pub mismatch: Mismatch,
}

impl Refused {
    /// For a log line. `place` says where it is, if this does not know.
    pub fn at(&self, place: impl FnOnce() -> String) -> String {
        format!("{} {}", self.place.clone().unwrap_or_else(place), self.mismatch)
    }
}

/// A vault error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store said so (ENOENT, ENOSPC, EIO, EXDEV, … pass through unchanged).
    #[error("{0}")]
    Store(#[from] io::Error),
    /// Stored bytes do not authenticate. An application sees EIO.
    #[error("{0}")]
    Damaged(#[from] Damage),
    /// Authentic, but not what an anchor says. An application sees EIO.
    #[error("{0}")]
    Refused(Refused),
    /// A name, link target or attribute is too long to be stored.
    #[error("name too long")]
    NameTooLong,
    /// The mount is read-only.
    #[error("mounted read-only")]
    ReadOnly,
    /// A combination of arguments that has no meaning.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The operation is not to be had here.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// Past the largest file size.
    #[error("file too large")]
    TooLarge,
    /// No such attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// No data or hole past that offset.
    #[error("no more data")]
    NoData,
    /// No engine could do the work.
    #[error("{0}")]
    Engine(#[from] crate::engine::EngineError),
}

impl Error {
    /// The store's error with this number.
    pub fn os(errno: i32) -> Self {
        Error::Store(io::Error::from_raw_os_error(errno))
    }
}

/// The store's errors as they are, others as text.
impl From<Error> for io::Error {
    fn from(e: Error) -> Self {
        match e {
            Error::Store(e) => e,
            Error::NameTooLong => Errno::NAMETOOLONG.into(),
            Error::NotSupported(_) => io::Error::new(io::ErrorKind::Unsupported, e.to_string()),
            other => io::Error::other(other.to_string()),
        }
    }
}

impl From<Errno> for Error {
    fn from(e: Errno) -> Self {
        Error::Store(e.into())
    }
}

/// Whether a file or its directory was removed. NFS says so of a directory that is known but was removed.
pub(super) fn is_gone(e: &io::Error) -> bool {
    let stale = e.kind() == io::ErrorKind::StaleNetworkFileHandle && holds(Rule::StaleIsGone);
    stale || e.kind() == io::ErrorKind::NotFound
}
