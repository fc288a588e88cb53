//! Queue of small reads that wait for a batch ([`super::small_reads`]).

use super::{gate::RequestGuard, handles::FileHandle, stale::PageRead};
use fuser::ReplyData;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum length of a small read in bytes; mostly one chunk.
pub const SMALL: usize = 4096;
/// Maximum reads per batch, equal to the lanes of the widest vector.
pub const MOST_TOGETHER: usize = 8;

/// A queued read request.
pub struct QueuedRead<R> {
    /// The file.
    pub file: FileHandle,
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes, at most [`SMALL`].
    pub len: usize,
    /// Destination of the answer.
    pub reply: R,
    /// Held until the read is answered, if it is a read of pages.
    pub page: Option<PageRead>,
    /// Held until the read is answered.
    pub pass: RequestGuard,
}

/// The queued reads.
#[derive(Default)]
pub struct ReadQueue {
    reads: Mutex<Vec<QueuedRead<ReplyData>>>,
    any: AtomicBool,
}

impl ReadQueue {
    /// Adds a read; returns the number queued.
    pub fn push(&self, read: QueuedRead<ReplyData>) -> usize {
        let mut reads = self.reads.lock();
        reads.push(read);
        self.any.store(true, Ordering::Release);
        reads.len()
    }

    /// Takes all reads.
    pub fn take(&self) -> Vec<QueuedRead<ReplyData>> {
        let mut reads = self.reads.lock();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *reads)
    }

    /// Whether any read is queued.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}
