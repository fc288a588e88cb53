//! Threads for work that no program waits for yet: read-ahead, sealing and storing.
//!
//! They are not the engine's (`engine/pool.rs`). A job here owns what it needs and may wait for the store; it also calls the
//! engine itself. In one queue, batches would find every thread held by jobs that wait for the store.

use crate::{
    crypto::traces,
    metrics::{self, Activity},
};
use crossbeam_channel::{Receiver, Sender};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Barrier},
    thread,
    time::Instant,
};

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// More threads would only wait for the same store and the same engines.
const MOST_THREADS: usize = 16;
/// One may wait for the store while another works.
const FEWEST_THREADS: usize = 2;

/// A queue of jobs and the threads that take from it. They end when it is dropped and all jobs are done.
pub struct Background {
    jobs: Sender<Job>,
    threads: usize,
}

impl Background {
    /// Starts as many threads as there are cores, from 2 to 16; fewer if the system refuses.
    pub fn new() -> Self {
        let cores = thread::available_parallelism()
            .map_or(FEWEST_THREADS, |n| n.get().clamp(FEWEST_THREADS, MOST_THREADS));
        let (jobs, queue) = crossbeam_channel::unbounded();
        let threads = (0..cores).map_while(|number| start(number, queue.clone())).count();
        Background { jobs, threads }
    }

    /// Without threads: jobs wait until the test runs them, or for ever.
    #[cfg(test)]
    pub(super) fn by_hand() -> (Self, Receiver<Job>) {
        let (jobs, queue) = crossbeam_channel::unbounded();
        (Background { jobs, threads: 1 }, queue)
    }

    /// Without threads: jobs run where they come up.
    #[cfg(test)]
    pub(super) fn at_once() -> Self {
        Background { jobs: crossbeam_channel::unbounded().0, threads: 0 }
    }

    /// Whether jobs run on threads of their own.
    pub(super) fn has_threads(&self) -> bool {
        self.threads > 0
    }

    /// Runs `job` on one of the threads; on this one if there are none.
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
    /// Waits until every job that was there before is done.
    pub fn finish_jobs(&self) {
        // Each thread waits in one of these for all others.
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

fn start(number: usize, queue: Receiver<Job>) -> Option<()> {
    let work = move || {
        for job in queue {
            // Those that wait for the job learn of its end either way; the thread goes on.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                log::error!("work in the background ended early because of an internal error");
            }
        }
    };
    // Not joined: it ends once the queue is gone, which may be dropped on this very thread.
    thread::Builder::new().name(format!("background-{number}")).spawn(work).ok().map(drop)
}
