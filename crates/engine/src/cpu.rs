//! The CPU engine: small batches run on the calling thread, large ones on a pool of all cores.

use super::{
    batch::{Batch, Engine, EngineError, Task},
    pool::Pool,
};
use parking_lot::Mutex;
use std::{num::NonZero, thread};

/// Chunks that a thread takes at a time. A batch of no more is not worth waking another thread.
const GRAIN: usize = 16;

/// Seals and opens chunks on the processor's cores.
pub struct CpuEngine {
    pool: Pool,
}

impl CpuEngine {
    /// An engine with one thread for each core the process may use, including the calling thread.
    pub fn new() -> Self {
        Self::with_threads(thread::available_parallelism().map_or(1, NonZero::get))
    }

    /// An engine with `threads` threads, including the calling thread; at least one.
    pub fn with_threads(threads: usize) -> Self {
        CpuEngine { pool: Pool::new(threads.saturating_sub(1)) }
    }

    /// Maximum number of threads that work on one batch.
    pub fn threads(&self) -> usize {
        self.pool.helpers() + 1
    }

    /// Runs `work` on each part exactly once, on all threads.
    ///
    /// # Errors
    /// If a thread panicked. The state of the parts is then unknown.
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
