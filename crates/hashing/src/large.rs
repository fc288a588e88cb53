//! Files that are too long for a batch, and the results of their functions.

use super::source::Content;
use crypto::hash::Digest;
use parking_lot::Mutex;
use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// An open long file.
pub(super) struct Large<C> {
    /// Number in the order of the output.
    pub number: u64,
    pub path: PathBuf,
    pub content: C,
    pub size: u64,
    results: Mutex<DigestProgress>,
}

/// The digests so far, and the number of functions that are not done.
struct DigestProgress {
    digests: Vec<Option<Digest>>,
    left: usize,
    failed: Option<io::Error>,
}

impl<C> Large<C> {
    pub(super) fn new(number: u64, path: PathBuf, content: C, size: u64, functions: usize) -> Self {
        let results = DigestProgress { digests: vec![None; functions], left: functions, failed: None };
        Large { number, path, content, size, results: Mutex::new(results) }
    }

    /// Stores the result of one function. Returns all of them once the last one is in.
    pub(super) fn finish(
        &self,
        function: usize,
        result: io::Result<Digest>,
    ) -> Option<io::Result<Vec<Digest>>> {
        let mut results = self.results.lock();
        match result {
            Ok(digest) => results.digests[function] = Some(digest),
            Err(e) => results.failed = Some(e),
        }
        results.left -= 1;
        if results.left > 0 {
            return None;
        }
        Some(match results.failed.take() {
            Some(e) => Err(e),
            None => Ok(results.digests.iter().flatten().copied().collect()),
        })
    }
}

/// A long file and one of the functions that hash it.
pub(super) struct Pass<C: Content> {
    pub large: Arc<Large<C>>,
    /// Index of the function.
    pub function: usize,
}

/// Reads exactly these bytes of a long file, unless `stop` is set.
pub(super) fn read_exactly(
    content: &impl Content,
    out: &mut [u8],
    offset: u64,
    stop: &AtomicBool,
) -> io::Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    match content.read_full(out, offset)? {
        read if read == out.len() => Ok(()),
        _ => Err(io::Error::other("it became shorter while it was read")),
    }
}
