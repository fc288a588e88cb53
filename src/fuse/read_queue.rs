//! Small reads that wait to be done as a batch ([`super::small_reads`]).

use super::{gate::Pass, handles::FileHandle, stale::PageRead};
use fuser::ReplyData;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a small read at most: one chunk, mostly.
pub const SMALL: usize = 4096;
/// Reads of a batch at most: as many as the widest vector has lanes.
pub const MOST_TOGETHER: usize = 8;

/// A read request.
pub struct QueuedRead<R> {
    /// The file.
    pub file: FileHandle,
    /// Where in the file.
    pub offset: u64,
    /// Bytes, at most [`SMALL`].
    pub len: usize,
    /// Where the answer goes.
    pub reply: R,
    /// Lives until the read is answered, if it is a read of pages.
    pub page: Option<PageRead>,
    /// The same.
    pub pass: Pass,
}

/// The reads that wait.
#[derive(Default)]
pub struct ReadQueue {
    reads: Mutex<Vec<QueuedRead<ReplyData>>>,
    any: AtomicBool,
}

impl ReadQueue {
    /// Adds a read; returns how many there are.
    pub fn push(&self, read: QueuedRead<ReplyData>) -> usize {
        let mut reads = self.reads.lock();
        reads.push(read);
        self.any.store(true, Ordering::Release);
        reads.len()
    }

    /// Takes all.
    pub fn take(&self) -> Vec<QueuedRead<ReplyData>> {
        let mut reads = self.reads.lock();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *reads)
    }

    /// Whether any read waits.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}
