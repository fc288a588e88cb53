//! Maps errors to errno values, and logs damage. No other module creates an errno.

use content::{Error, Result};
use fuser::Errno;
use log::error;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

/// Minimum interval between two log lines about the same damage.
const QUIET: Duration = Duration::from_secs(60);
/// Maximum number of damages remembered. Beyond it, expired ones are forgotten, or all if none has
/// expired.
const REMEMBERED: usize = 4096;

/// Answer to the kernel: a value or an errno.
pub type Answer<T> = std::result::Result<T, Errno>;

/// No such name, or a node whose names are all gone.
pub fn no_entry() -> Error {
    Error::os(libc::ENOENT)
}

/// A node number that is unknown, or a node that moved during the lookup.
pub fn stale() -> Error {
    Error::os(libc::ESTALE)
}

/// A handle that was never handed out, or one of the wrong kind.
pub fn bad_handle() -> Error {
    Error::os(libc::EBADF)
}

/// A file operation on a directory.
pub fn is_dir() -> Error {
    Error::os(libc::EISDIR)
}

/// A directory operation on something else.
pub fn not_dir() -> Error {
    Error::os(libc::ENOTDIR)
}

/// An operation that the node's permission bits forbid.
pub fn no_access() -> Error {
    Error::os(libc::EACCES)
}

/// A change that no user of the mount may make.
pub fn not_permitted() -> Error {
    Error::os(libc::EPERM)
}

/// Whether the store found no such name.
pub fn is_no_entry(e: &Error) -> bool {
    matches!(e, Error::Store(e) if e.raw_os_error() == Some(libc::ENOENT))
}

/// Whether the store has the name already.
pub fn is_taken(e: &Error) -> bool {
    matches!(e, Error::Store(e) if e.raw_os_error() == Some(libc::EEXIST))
}

/// The request is not supported, and the kernel need not send it again.
pub const UNSUPPORTED_REQUEST: Errno = Errno::ENOSYS;
/// An extended attribute that does not fit the caller's buffer.
pub const VALUE_TOO_LARGE: Errno = Errno::ERANGE;

/// A request that no correct kernel sends.
pub const MALFORMED_REQUEST: Errno = Errno::EINVAL;
/// A request whose answer was lost, or does not fit.
pub const UNANSWERED: Errno = Errno::EIO;

/// The calling program was killed.
pub const INTERRUPTED: Errno = Errno::EINTR;
/// The mount was locked and is ending.
pub const ENDED: Errno = Errno::EIO;
/// The vault was locked or frozen before a request that has no effect on a closed vault. No program sees
/// this.
pub const SHUT: Errno = Errno::EAGAIN;

/// A mount that the caller may not access.
pub const CLOSED: Errno = Errno::EACCES;

/// Whether an errno means that something went wrong, and not just that a program asked for something that
/// does not exist.
pub fn is_failure(answer: Errno) -> bool {
    let failures = [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::ENOMEM, libc::EMFILE, libc::ENFILE];
    failures.contains(&answer.code())
}

/// A virtual extended attribute, which cannot be set.
pub const READ_ONLY_ATTRIBUTE: Errno = Errno::EOPNOTSUPP;

/// Answers requests: converts the vault's errors to errno values and logs damage.
#[derive(Default)]
pub struct Reporter {
    logged: Mutex<HashMap<(u64, String), Instant>>,
}

impl Reporter {
    /// Runs `work` for a request on `node`. An error becomes its errno, a panic becomes EIO. Damage and
    /// panics are logged with the node's description from `describe`.
    pub fn answer<T>(
        &self,
        node: u64,
        describe: impl FnOnce() -> String,
        work: impl FnOnce() -> Result<T>,
    ) -> Answer<T> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(e)) => {
                match &e {
                    Error::Damaged(damage) if self.is_news(node, &damage.to_string(), Instant::now()) => {
                        error!("damaged: {}: {damage}", describe());
                    }
                    Error::Refused(refused) if self.is_news(node, &refused.to_string(), Instant::now()) => {
                        error!("refused: {}", refused.at(describe));
                    }
                    _ => {}
                }
                Err(number(&e))
            }
            Err(_) => {
                // The panic message was written to standard error, which is lost for a mount in the
                // background.
                error!("a request failed because of an internal error: {}", describe());
                Err(Errno::EIO)
            }
        }
    }

    fn is_news(&self, node: u64, damage: &str, now: Instant) -> bool {
        let mut logged = self.logged.lock();
        if logged.len() >= REMEMBERED {
            logged.retain(|_, at| now.duration_since(*at) < QUIET);
            if logged.len() >= REMEMBERED {
                logged.clear();
            }
        }
        let last = logged.get(&(node, damage.to_owned()));
        if last.is_some_and(|at| now.duration_since(*at) < QUIET) {
            return false;
        }
        logged.insert((node, damage.to_owned()), now);
        true
    }
}

fn number(error: &Error) -> Errno {
    match error {
        Error::Store(e) => Errno::from_i32(answerable(e.raw_os_error().unwrap_or(libc::EIO))),
        Error::Damaged(_) | Error::Refused(_) | Error::Engine(_) => Errno::EIO,
        Error::NameTooLong => Errno::ENAMETOOLONG,
        Error::ReadOnly => Errno::EROFS,
        Error::Invalid(_) => Errno::EINVAL,
        Error::NotSupported(_) => Errno::EOPNOTSUPP,
        Error::TooLarge => Errno::EFBIG,
        Error::NoAttribute => Errno::ENODATA,
        Error::NoData => Errno::ENXIO,
    }
}

/// Converts a store's errno to one that the kernel accepts for a single request. After ENOSYS the kernel
/// would never send that kind of request again, an fsync for example, and would treat it as successful.
/// It rejects errno values internal to kernels, and then the program would wait forever.
fn answerable(number: i32) -> i32 {
    match number {
        libc::ENOSYS => libc::EOPNOTSUPP,
        1..512 => number,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use content::{Damage, Mismatch, Refused};

    #[test]
    fn every_error_has_its_number() {
        let table = [
            (Error::os(libc::ENOSPC), libc::ENOSPC),
            (Error::os(libc::ENOSYS), libc::EOPNOTSUPP),
            (Error::os(524), libc::EIO),
            (Error::os(0), libc::EIO),
            (Error::Store(std::io::ErrorKind::UnexpectedEof.into()), libc::EIO),
            (Error::NameTooLong, libc::ENAMETOOLONG),
            (Error::ReadOnly, libc::EROFS),
            (Error::Invalid("x"), libc::EINVAL),
            (Error::NotSupported("x"), libc::EOPNOTSUPP),
            (Error::TooLarge, libc::EFBIG),
            (Error::NoAttribute, libc::ENODATA),
            (Error::NoData, libc::ENXIO),
            (Damage { what: "chunk 1".into(), reason: "tag" }.into(), libc::EIO),
            (Error::Refused(Refused { place: None, mismatch: Mismatch::Lost("a file") }), libc::EIO),
        ];
        let reporter = Reporter::default();
        for (error, expected) in table {
            let said = format!("{error:?}");
            let answer: Answer<()> = reporter.answer(2, String::new, || Err(error));
            assert_eq!(answer.map_err(Errno::code), Err(expected), "{said}");
        }
        assert_eq!(reporter.answer(2, String::new, || Ok(5)).map_err(Errno::code), Ok(5));
    }

    #[test]
    fn a_panic_is_an_input_output_error() {
        let reporter = Reporter::default();
        let answer: Answer<()> = reporter.answer(2, String::new, || panic!("expected by this test"));
        assert_eq!(answer.map_err(Errno::code), Err(libc::EIO));
    }

    #[test]
    fn the_same_damage_is_news_once_a_minute() {
        let reporter = Reporter::default();
        let start = Instant::now();
        assert!(reporter.is_news(2, "chunk 1", start));
        assert!(!reporter.is_news(2, "chunk 1", start + QUIET / 2));
        assert!(reporter.is_news(2, "chunk 2", start));
        assert!(reporter.is_news(3, "chunk 1", start));
        assert!(reporter.is_news(2, "chunk 1", start + QUIET));
    }

    #[test]
    fn memory_of_damages_is_bounded() {
        let reporter = Reporter::default();
        let now = Instant::now();
        for node in 0..3 * REMEMBERED as u64 {
            reporter.is_news(node, "", now);
        }
        assert!(reporter.logged.lock().len() <= REMEMBERED);
    }
}
