//! A store for files whose users are interleaved by a scheduler: at every call, another thread may
//! continue. Records some instants between two calls, for crashes.

use super::history::Clock;
use shuttle::{rand::Rng, sync::atomic::AtomicBool};
use std::{
    io,
    sync::{Arc, Mutex, atomic::Ordering},
};
use store::{BackingFile, FaultyFile, Snapshot};

/// Instants recorded in a run.
const INSTANTS: usize = 3;

/// An instant and the state of the store.
pub(super) struct Instant {
    pub(super) at: u64,
    pub(super) state: Snapshot,
    /// Whether a call had failed by then.
    pub(super) failed: bool,
}

pub(super) struct Interrupted {
    pub(super) content: Arc<FaultyFile>,
    clock: Arc<Clock>,
    instants: Mutex<Vec<Instant>>,
    point: AtomicBool,
}

impl Interrupted {
    pub(super) fn new(content: Arc<FaultyFile>, clock: Arc<Clock>) -> Arc<Self> {
        Arc::new(Interrupted { content, clock, instants: Mutex::default(), point: AtomicBool::new(false) })
    }

    /// Records the present instant.
    pub(super) fn now(&self) -> Instant {
        Instant { at: self.clock.tick(), state: self.content.snapshot(), failed: self.content.failed() > 0 }
    }

    /// Takes the recorded instants.
    pub(super) fn instants(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.instants.lock().unwrap())
    }

    /// Lets other threads continue.
    fn pause(&self) -> &FaultyFile {
        self.point.load(Ordering::SeqCst);
        if shuttle::rand::thread_rng().gen_range(0..12) == 0 {
            let now = self.now();
            let mut instants = self.instants.lock().unwrap();
            let place = instants.len().min(INSTANTS - 1);
            instants.truncate(place);
            instants.push(now);
        }
        &self.content
    }
}

impl BackingFile for Interrupted {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.pause().read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.pause().write_at(buf, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.pause().set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.pause().len()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.pause().sync_data()
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.pause().punch(offset, len)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.pause().next_data(offset)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.pause().reserve(offset, len)
    }

    fn mtime(&self) -> io::Result<(i64, u32)> {
        self.content.mtime()
    }

    fn set_mtime(&self, seconds: i64, nanoseconds: u32) -> io::Result<()> {
        self.content.set_mtime(seconds, nanoseconds)
    }
}
