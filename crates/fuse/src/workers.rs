//! Worker threads for slow requests, so that one event loop is always free for the others.

use super::affinity;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::Mutex;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

type Job = Box<dyn FnOnce() + Send>;

/// Maximum number of threads. If all are busy, a slow request is served where it arrived.
const MOST_WORKERS: usize = 32;
/// A thread without work ends after this long.
const IDLE: Duration = Duration::from_secs(10);

/// Starts threads as slow requests need them, and ends idle ones.
pub struct Workers {
    to: Mutex<Option<Sender<Job>>>,
    from: Receiver<Job>,
    running: Arc<AtomicUsize>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    /// Creates a pool without threads.
    pub fn new() -> Self {
        // No capacity: a job is accepted only by a thread that waits for one.
        let (to, from) = bounded(0);
        Workers { to: Mutex::new(Some(to)), from, running: Arc::default(), threads: Mutex::default() }
    }

    /// Runs `job` on a worker thread, or on this one if there are too many.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let job: Job = Box::new(job);
        let sent = match &*self.to.lock() {
            Some(to) => to.try_send(job),
            None => Err(TrySendError::Disconnected(job)),
        };
        let job = match sent {
            Ok(()) => return,
            Err(TrySendError::Full(job)) => job,
            Err(TrySendError::Disconnected(job)) => return job(),
        };
        if self.running.load(Ordering::Relaxed) >= MOST_WORKERS {
            return job();
        }
        self.start(job);
    }

    /// Waits until all jobs are done. Later jobs run on their caller's thread.
    pub fn finish(&self) {
        self.to.lock().take();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A thread cannot panic: the panics of its jobs are caught.
            let _ = thread.join();
        }
    }

    fn start(&self, first: Job) {
        let (from, running) = (self.from.clone(), self.running.clone());
        running.fetch_add(1, Ordering::Relaxed);
        let slot = Arc::new(Mutex::new(Some(first)));
        let given = slot.clone();
        let started = thread::Builder::new().name("slow".into()).spawn(move || {
            affinity::unbind();
            let mut next = given.lock().take();
            while let Some(job) = next {
                // A job handles its own panics. Catching them here keeps the thread count right in any
                // case.
                let _ = catch_unwind(AssertUnwindSafe(job));
                next = from.recv_timeout(IDLE).ok();
            }
            running.fetch_sub(1, Ordering::Relaxed);
        });
        match started {
            Ok(thread) => {
                let mut threads = self.threads.lock();
                threads.retain(|t| !t.is_finished());
                threads.push(thread);
            }
            Err(_) => {
                self.running.fetch_sub(1, Ordering::Relaxed);
                let job = slot.lock().take();
                if let Some(job) = job {
                    job();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_beside_each_other_and_all_are_waited_for() {
        let workers = Workers::new();
        let (to, from) = bounded::<()>(0);
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..MOST_WORKERS {
            let (from, done) = (from.clone(), done.clone());
            workers.run(move || {
                from.recv().unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        // All jobs block at once: run one after another, they would not receive all of these.
        for _ in 0..MOST_WORKERS {
            to.send_timeout((), Duration::from_secs(10)).unwrap();
        }
        workers.finish();
        assert_eq!(done.load(Ordering::Relaxed), MOST_WORKERS);
    }

    #[test]
    fn with_every_thread_busy_the_caller_works_and_a_panic_costs_nothing() {
        let workers = Workers::new();
        let (to, from) = bounded::<()>(MOST_WORKERS);
        for _ in 0..MOST_WORKERS {
            let from = from.clone();
            workers.run(move || {
                from.recv().unwrap();
                panic!("expected by this test");
            });
        }
        let here = thread::current().id();
        let (sent, received) = bounded(1);
        workers.run(move || sent.send(thread::current().id()).unwrap());
        assert_eq!(received.recv().unwrap(), here);
        for _ in 0..MOST_WORKERS {
            to.send(()).unwrap();
        }
        workers.finish();
    }
}
