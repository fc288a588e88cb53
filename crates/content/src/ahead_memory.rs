//! Limits the read-ahead of all files.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory used by the read-ahead windows of all files.
#[derive(Default)]
pub struct ReadAheadMemory {
    pub(super) bytes: AtomicUsize,
    /// Number of files with read-ahead.
    pub(super) files: AtomicUsize,
}

impl ReadAheadMemory {
    /// Bytes in windows.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of files whose readers share the memory.
    pub fn files(&self) -> usize {
        self.files.load(Ordering::Relaxed)
    }
}
