//! Threads for work that no application waits for yet: read-ahead, sealing and storing.
//!
//! These are separate from the engine's threads (`engine/pool.rs`). A job here owns its data, may block
//! on the store, and calls the engine itself. With a shared queue, jobs blocked on the store could occupy
//! every thread, and batches would wait.

use crossbeam_channel::{Receiver, Sender};
use crypto::traces;
use metrics::Activity;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Barrier},
    thread,
    time::Instant,
};

pub(super) type BackgroundJob = Box<dyn FnOnce() + Send>;

/// More threads would only wait for the same store and the same engines.
const MOST_THREADS: usize = 16;
/// One thread may block on the store while another works.
const FEWEST_THREADS: usize = 2;

/// A job queue and its threads. The threads end once this is dropped and all jobs are done.
pub struct Background {
    jobs: Sender<BackgroundJob>,
    threads: usize,
}

impl Background {
    /// Starts a thread for each core, at least 2 and at most 16; fewer if the system refuses.
    pub fn new() -> Self {
        let cores = thread::available_parallelism()
            .map_or(FEWEST_THREADS, |n| n.get().clamp(FEWEST_THREADS, MOST_THREADS));
        let (jobs, queue) = crossbeam_channel::unbounded();
        let threads = (0..cores).map_while(|number| start(number, queue.clone())).count();
        Background { jobs, threads }
    }

    /// Without threads: jobs wait until the test runs them.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn by_hand() -> (Self, Receiver<BackgroundJob>) {
        let (jobs, queue) = crossbeam_channel::unbounded();
        (Background { jobs, threads: 1 }, queue)
    }

    /// Without threads: `run` executes each job immediately.
    #[cfg(any(test, feature = "testing"))]
    pub fn at_once() -> Self {
        Background { jobs: crossbeam_channel::unbounded().0, threads: 0 }
    }

    /// Whether jobs run on separate threads.
    pub(super) fn has_threads(&self) -> bool {
        self.threads > 0
    }

    /// Runs `job` on one of the threads, or on the calling thread if there are none.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        if self.threads == 0 {
            return job();
        }
        let start = Instant::now();
        let job = move || {
            metrics::count(Activity::Background, 0, start.elapsed());
            job();
        };
        if let Err(refused) = self.jobs.send(Box::new(job)) {
            (refused.0)();
        }
    }
}

impl Background {
    /// Blocks until all jobs queued earlier are done.
    pub fn finish_jobs(&self) {
        // Each thread takes one of these jobs and waits in it for all the others.
        let all = Arc::new(Barrier::new(self.threads + 1));
        for _ in 0..self.threads {
            let all = all.clone();
            self.run(move || {
                traces::wipe();
                all.wait();
            });
        }
        all.wait();
    }
}

impl Default for Background {
    fn default() -> Self {
        Self::new()
    }
}

fn start(number: usize, queue: Receiver<BackgroundJob>) -> Option<()> {
    let work = move || {
        for job in queue {
            // Waiters notice the end of a job either way, so the thread continues.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                log::error!("background work stopped early because of an internal error");
            }
        }
    };
    // Not joined: the thread ends once the queue is dropped, which may happen on this very thread.
    thread::Builder::new().name(format!("background-{number}")).spawn(work).ok().map(drop)
}
