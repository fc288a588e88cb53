//! What can go wrong in a vault. `fuse::errno` turns it into an errno, and nothing else does.

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

/// A vault error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store said so (ENOENT, ENOSPC, EIO, EXDEV, … pass through unchanged).
    #[error("{0}")]
    Store(#[from] io::Error),
    /// Stored bytes do not authenticate. An application sees EIO.
    #[error("{0}")]
    Damaged(#[from] Damage),
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
