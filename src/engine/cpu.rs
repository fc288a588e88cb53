//! The CPU engine: small batches on the calling thread, large ones shared with a pool of all cores.

use super::{
    batch::{Batch, Engine, EngineError, Task},
    pool::Pool,
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

    /// Has all threads do the parts of some work, each of them once.
    ///
    /// # Errors
    /// If a thread panicked: nothing is known of the parts then.
    pub fn share<T: Send>(&self, parts: &mut [T], work: impl Fn(&mut T) + Sync) -> Result<(), EngineError> {
        if let [part] = parts {
            work(part);
            return Ok(());
        }
        let helpers = parts.len().saturating_sub(1);
        let parts = Mutex::new(parts.iter_mut());
        let next = || parts.lock().next();
        let work = || {
            while let Some(part) = next() {
                work(part);
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
        let mut tasks = batch.tasks()?;
        let mut parts: Vec<&mut [Task]> = tasks.chunks_mut(GRAIN).collect();
        self.share(&mut parts, |part| Task::run_all(part))
    }
}
