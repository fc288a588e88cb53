//! Errors of files and of the vault they are in. Only `fuse::errno` converts them to errno values.

use rustix::io::Errno;
use std::io;

/// The result of a vault operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A damaged part; displayed, it is the one log line of guarantee G1.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct Damage {
    /// The affected part: "chunk 17", "leaf page 3", "commit record", "name", …
    pub what: String,
    /// The reason: "tag does not verify", …
    pub reason: &'static str,
}

/// How the store differs from what the anchor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Mismatch {
    /// The content was reset to an earlier state, or continued from one.
    #[error("is older than what was confirmed: commit record {found}, where the anchor has {confirmed}")]
    Old {
        /// Key generation and sequence number of the newest record.
        found: RecordOrder,
        /// The oldest acceptable record.
        confirmed: RecordOrder,
    },
    /// A confirmed name is missing.
    #[error("is missing: the anchor has it as {0}")]
    Lost(&'static str),
    /// A name exists that was never confirmed, or whose removal was confirmed.
    #[error("is {0} that the anchor does not have")]
    Added(&'static str),
    /// The name leads to something else.
    #[error("is {found}, where the anchor has {confirmed}")]
    Exchanged {
        /// Describes the node that has the name now.
        found: &'static str,
        /// Describes the node that had the name when it was confirmed.
        confirmed: &'static str,
    },
}

/// Position of a commit record in the order of a file's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{sequence} of key generation {generation}")]
pub struct RecordOrder {
    /// Key generation.
    pub generation: u32,
    /// Sequence number.
    pub sequence: u64,
}

/// Something that differs from what an anchor has.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{mismatch}")]
pub struct Refused {
    /// Its path in the store; `None` if the caller knows it.
    pub place: Option<String>,
    /// The difference.
    pub mismatch: Mismatch,
}

impl Refused {
    /// Formats a log line. `place` supplies the path if this error lacks it.
    pub fn at(&self, place: impl FnOnce() -> String) -> String {
        format!("{} {}", self.place.clone().unwrap_or_else(place), self.mismatch)
    }
}

/// A vault error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the store (ENOENT, ENOSPC, EIO, EXDEV, …), passed through unchanged.
    #[error("{0}")]
    Store(#[from] io::Error),
    /// Stored bytes do not authenticate. An application sees EIO.
    #[error("{0}")]
    Damaged(#[from] Damage),
    /// Authentic, but not what an anchor has. An application sees EIO.
    #[error("{0}")]
    Refused(Refused),
    /// A name, link target or attribute is too long to be stored.
    #[error("name too long")]
    NameTooLong,
    /// The mount is read-only.
    #[error("mounted read-only")]
    ReadOnly,
    /// A meaningless combination of arguments.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The vault or its store does not support the operation.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// Beyond the maximum file size.
    #[error("file too large")]
    TooLarge,
    /// No such attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// No data or hole after that offset.
    #[error("no more data")]
    NoData,
    /// No engine could do the work.
    #[error("{0}")]
    Engine(#[from] engine::EngineError),
}

impl Error {
    /// The store's error with this errno value.
    pub fn os(errno: i32) -> Self {
        Error::Store(io::Error::from_raw_os_error(errno))
    }
}

/// Keeps the store's errors as they are, and converts most others to text.
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
