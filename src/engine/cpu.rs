//! The CPU engine: small batches on the calling thread, large ones shared with a pool of all cores.

use super::{
    batch::{Batch, Engine, EngineError, Task},
    pool::Pool,
};
use crate::crypto::{
    chunk::ChunkKeys,
    tags::{Opened, open_in_place},
};
use parking_lot::Mutex;
use std::{num::NonZero, thread};

/// Chunks that a thread takes at a time; a batch of no more is not worth waking another thread.
const GRAIN: usize = 16;

/// Seals and opens on the processor's cores.
pub struct CpuEngine {
    pool: Pool,
}

impl CpuEngine {
    /// An engine of as many threads as the process may use cores, the calling one included.
    pub fn new() -> Self {
        Self::with_threads(thread::available_parallelism().map_or(1, NonZero::get))
    }

    /// An engine of `threads` threads, the calling one included; at least that one.
    pub fn with_threads(threads: usize) -> Self {
        CpuEngine { pool: Pool::new(threads.saturating_sub(1)) }
    }

    /// Threads that work on one batch at most.
    pub fn threads(&self) -> usize {
        self.pool.helpers() + 1
    }

    /// Opens chunks of one file in place. Returns the place of one that does not verify, if one does not: then the
    /// bytes of all are of no use.
    ///
    /// # Errors
    /// As `run`; the same holds then.
    pub(super) fn open_in_place(
        &self,
        keys: &ChunkKeys,
        chunks: &mut [Opened],
    ) -> Result<Option<usize>, EngineError> {
        let damaged = Mutex::new(None);
        self.share(chunks, |first, part| {
            if let Err(place) = open_in_place(keys, part) {
                damaged.lock().get_or_insert(first + place);
            }
        })?;
        Ok(damaged.into_inner())
    }

    /// Has all threads do parts of what is to be done, each with the place of its first.
    fn share<T: Send>(
        &self,
        all: &mut [T],
        work: impl Fn(usize, &mut [T]) + Sync,
    ) -> Result<(), EngineError> {
        if all.len() < GRAIN {
            work(0, all);
            return Ok(());
        }
        let helpers = all.len().div_ceil(GRAIN) - 1;
        let parts = Mutex::new(all.chunks_mut(GRAIN).enumerate());
        let next = || parts.lock().next();
        let work = || {
            while let Some((number, part)) = next() {
                work(number * GRAIN, part);
            }
        };
        self.pool.run(helpers, &work).map_err(|_| EngineError::Failed {
            engine: self.name().to_owned(),
            cause: "a worker panicked".to_owned(),
        })
    }
}

impl Default for CpuEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine for CpuEngine {
    fn name(&self) -> &str {
        "cpu"
    }

    fn run(&self, batch: &mut Batch) -> Result<(), EngineError> {
        self.share(&mut batch.tasks()?, |_, part| Task::run_all(part))
    }
}
