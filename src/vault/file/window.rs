//! A window: a run of chunks that somebody opens before a reader asks for them. A reader that gets there first opens it
//! itself.

use super::span::Span;
use crate::{
    crypto::chunk::CHUNK,
    vault::{
        Result,
        sync::{Condvar, Mutex},
    },
};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// What is opened ahead of the readers of all files.
#[derive(Default)]
pub struct Opened {
    bytes: AtomicUsize,
    /// Files that are read so.
    pub(super) files: AtomicUsize,
}

impl Opened {
    /// Bytes in windows.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Files whose readers share what may be opened.
    pub fn files(&self) -> usize {
        self.files.load(Ordering::Relaxed)
    }
}

/// A run of chunks opened ahead.
pub(super) struct Window {
    pub(super) chunks: Range<u64>,
    /// The reader that it is for, and its number among the file's windows.
    pub(super) stream: u64,
    pub(super) number: u64,
    stage: Mutex<Stage>,
    opened: Condvar,
    all: Arc<Opened>,
}

enum Stage {
    Waiting,
    Opening,
    Open(Arc<Span>),
    Failed,
}

impl Window {
    /// One that nobody has opened yet; `None` if there would be more than `most` bytes in the windows of all files.
    pub(super) fn new(
        all: &Arc<Opened>,
        most: usize,
        chunks: Range<u64>,
        (stream, number): (u64, u64),
    ) -> Option<Arc<Window>> {
        let bytes = Window::bytes(&chunks);
        if all.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > most {
            all.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        let (stage, opened) = (Mutex::new(Stage::Waiting), Condvar::new());
        Some(Arc::new(Window { chunks, stream, number, stage, opened, all: all.clone() }))
    }

    fn bytes(chunks: &Range<u64>) -> usize {
        (chunks.end - chunks.start) as usize * CHUNK
    }

    /// Opens it with `open`, unless somebody has begun to.
    pub(super) fn open(&self, open: impl FnOnce(Range<u64>) -> Result<Span>) {
        {
            let mut stage = self.stage.lock();
            if !matches!(*stage, Stage::Waiting) {
                return;
            }
            *stage = Stage::Opening;
        }
        let ended = Ended(self);
        if let Ok(span) = open(self.chunks.clone()) {
            *self.stage.lock() = Stage::Open(Arc::new(span));
        }
        drop(ended);
    }

    /// Its content, opened by `open` if nobody has begun to; waits for whoever has. `None` if that failed:
    /// the reader then finds out by itself what is wrong with the bytes that it wants.
    pub(super) fn content(&self, open: impl FnOnce(Range<u64>) -> Result<Span>) -> Option<Arc<Span>> {
        self.open(open);
        let mut stage = self.stage.lock();
        self.opened.wait_while(&mut stage, |stage| matches!(stage, Stage::Opening));
        match &*stage {
            Stage::Open(span) => Some(span.clone()),
            _ => None,
        }
    }
}

/// Says that an opening has ended, however it did.
struct Ended<'a>(&'a Window);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut stage = self.0.stage.lock();
        if matches!(*stage, Stage::Opening) {
            *stage = Stage::Failed;
        }
        self.0.opened.notify_all();
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(Window::bytes(&self.chunks), Ordering::Relaxed);
    }
}
