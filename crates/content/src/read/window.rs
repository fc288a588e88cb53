//! A read-ahead window: chunks that a background thread opens before a reader asks for them. A reader
//! that gets there first opens the window itself.

use super::large::PlainRange;
use crate::{
    ahead_memory::ReadAheadMemory,
    chunk_range::ChunkRange,
    error::Result,
    sync::{Condvar, Mutex},
};
use crypto::chunk::CHUNK;
use std::sync::{Arc, atomic::Ordering};

/// Chunks opened ahead of a reader.
pub(crate) struct Window {
    pub(crate) chunks: ChunkRange,
    /// The reader that the window is for, and the window's number within the file.
    pub(crate) stream: u64,
    pub(crate) number: u64,
    stage: Mutex<WindowStage>,
    opened: Condvar,
    all: Arc<ReadAheadMemory>,
}

enum WindowStage {
    Waiting,
    Opening,
    Open(Arc<PlainRange>),
    Failed,
}

impl Window {
    /// A window that is not open yet; `None` if the windows of all files would exceed `most` bytes.
    pub(super) fn new(
        all: &Arc<ReadAheadMemory>,
        most: usize,
        chunks: ChunkRange,
        (stream, number): (u64, u64),
    ) -> Option<Arc<Window>> {
        let bytes = Window::bytes(&chunks);
        if all.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > most {
            all.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        let (stage, opened) = (Mutex::new(WindowStage::Waiting), Condvar::new());
        Some(Arc::new(Window { chunks, stream, number, stage, opened, all: all.clone() }))
    }

    fn bytes(chunks: &ChunkRange) -> usize {
        (chunks.end - chunks.start) as usize * CHUNK
    }

    /// Opens the window with `open`, unless another thread has begun to.
    pub(super) fn open(&self, open: impl FnOnce(ChunkRange) -> Result<PlainRange>) {
        {
            let mut stage = self.stage.lock();
            if !matches!(*stage, WindowStage::Waiting) {
                return;
            }
            *stage = WindowStage::Opening;
        }
        let ended = OpeningGuard(self);
        if let Ok(range) = open(self.chunks.clone()) {
            *self.stage.lock() = WindowStage::Open(Arc::new(range));
        }
        drop(ended);
    }

    /// The content of the window. Opens it with `open`, or waits if another thread has begun to. `None`
    /// if opening failed; the reader then reads its bytes directly and finds the error.
    pub(super) fn content(
        &self,
        open: impl FnOnce(ChunkRange) -> Result<PlainRange>,
    ) -> Option<Arc<PlainRange>> {
        self.open(open);
        let mut stage = self.stage.lock();
        self.opened.wait_while(&mut stage, |stage| matches!(stage, WindowStage::Opening));
        match &*stage {
            WindowStage::Open(range) => Some(range.clone()),
            WindowStage::Waiting | WindowStage::Opening | WindowStage::Failed => None,
        }
    }
}

/// Marks an opening as ended, however it ended.
struct OpeningGuard<'a>(&'a Window);

impl Drop for OpeningGuard<'_> {
    fn drop(&mut self) {
        let mut stage = self.0.stage.lock();
        if matches!(*stage, WindowStage::Opening) {
            *stage = WindowStage::Failed;
        }
        self.0.opened.notify_all();
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(Window::bytes(&self.chunks), Ordering::Relaxed);
    }
}
