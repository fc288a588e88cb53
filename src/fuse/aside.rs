//! Small reads that lie aside, until [`super::together`] does several of them at once.

use super::{handles::FileHandle, stale::PageRead};
use fuser::ReplyData;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a small read at most: one chunk, mostly.
pub const SMALL: usize = 4096;
/// Reads that are worth being done together: as many as the widest vector has lanes.
pub const MOST: usize = 8;

/// A read that was asked for.
pub struct Asked {
    /// Of this file.
    pub file: FileHandle,
    /// From here.
    pub offset: u64,
    /// So many bytes, at most [`SMALL`].
    pub len: usize,
    /// Where the answer goes.
    pub reply: ReplyData,
    /// Under way until it is answered, if it is one of pages.
    pub page: Option<PageRead>,
}

/// The reads that lie aside.
#[derive(Default)]
pub struct Aside {
    reads: Mutex<Vec<Asked>>,
    any: AtomicBool,
}

impl Aside {
    /// Lays a read aside; returns how many there are.
    pub fn put(&self, read: Asked) -> usize {
        let mut reads = self.reads.lock();
        reads.push(read);
        self.any.store(true, Ordering::Release);
        reads.len()
    }

    /// Takes all.
    pub fn take(&self) -> Vec<Asked> {
        let mut reads = self.reads.lock();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *reads)
    }

    /// Whether any read lies aside.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}
