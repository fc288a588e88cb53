//! A persistent pool of threads that help a caller with its own work. A caller never waits for threads that
//! are busy elsewhere.
//!
//! A caller lends its own stack and works alongside the helpers, so the threads are joined when the pool is
//! dropped. Jobs that own their data belong to another pool (`content/background.rs`).

use crossbeam_channel::{Receiver, Sender};
use crypto::traces;
use parking_lot::{Condvar, Mutex};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{self, JoinHandle},
};

/// Work that the caller and every helper run once; the closure itself divides up the parts.
type PoolWork<'a> = dyn Fn() + Sync + 'a;

/// Some of the work panicked. The state of its parts is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Panicked;

/// Threads that wait for work. They end when the pool is dropped.
pub(super) struct Pool {
    /// `None` only while the pool is being dropped.
    calls: Option<Sender<Arc<SharedCall>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts up to `helpers` threads; fewer if the system refuses more.
    pub(super) fn new(helpers: usize) -> Self {
        let (sender, receiver) = crossbeam_channel::unbounded();
        let threads = (0..helpers).map_while(|number| start(number, receiver.clone())).collect();
        Pool { calls: Some(sender), threads }
    }

    /// Number of threads, excluding the caller's.
    pub(super) fn helpers(&self) -> usize {
        self.threads.len()
    }

    /// Runs `work` on this thread and on up to `helpers` others concurrently. Returns when this thread's
    /// run has ended and no helper is inside. Helpers that have not started by then never will.
    ///
    /// # Errors
    /// `Panicked` if any of the runs did.
    pub(super) fn run(&self, helpers: usize, work: &PoolWork<'_>) -> Result<(), Panicked> {
        let call = Arc::new(SharedCall::new(work));
        // From here on, nothing may leave this function before `close` has returned.
        if let Some(calls) = &self.calls {
            (0..helpers.min(self.helpers())).for_each(|_| drop(calls.send(call.clone())));
        }
        let own = catch_unwind(AssertUnwindSafe(work));
        let helped = call.close();
        own.map_err(|_| Panicked).and(helped)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.calls = None;
        for thread in self.threads.drain(..) {
            // A helper catches every panic, so its join result carries no information.
            let _ = thread.join();
        }
    }
}

fn start(number: usize, calls: Receiver<Arc<SharedCall>>) -> Option<JoinHandle<()>> {
    let thread = thread::Builder::new().name(format!("engine-{number}"));
    let spawned = thread.spawn(move || calls.iter().for_each(|call| call.help()));
    spawned.inspect_err(|cause| log::warn!("engine thread {number} could not be started: {cause}")).ok()
}

/// One caller's work, as its helpers see it.
struct SharedCall {
    /// The caller's closure. Only a helper counted in `CallState::inside` may use it. The caller leaves
    /// `Pool::run` only after `close`; from then on no helper is counted, and none can enter.
    work: &'static PoolWork<'static>,
    state: Mutex<CallState>,
    left: Condvar,
}

#[derive(Default)]
struct CallState {
    closed: bool,
    inside: usize,
    panicked: bool,
}

impl SharedCall {
    fn new(work: &PoolWork<'_>) -> Self {
        // SAFETY: only the lifetime changes. The reference is used only in `help`, between entering and
        // leaving. `close` stops further entries and waits for every helper to leave, and `Pool::run` calls
        // it before the borrow of `work` ends, even on a panic.
        let work = unsafe { std::mem::transmute::<&PoolWork<'_>, &'static PoolWork<'static>>(work) };
        SharedCall { work, state: Mutex::default(), left: Condvar::new() }
    }

    /// A helper's run. Does nothing if the caller has already returned.
    fn help(&self) {
        {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            state.inside += 1;
        }
        let panicked = catch_unwind(AssertUnwindSafe(self.work)).is_err();
        traces::wipe();
        let mut state = self.state.lock();
        state.inside -= 1;
        state.panicked |= panicked;
        self.left.notify_one();
    }

    /// Stops further entries and waits for the helpers inside.
    fn close(&self) -> Result<(), Panicked> {
        let mut state = self.state.lock();
        state.closed = true;
        self.left.wait_while(&mut state, |state| state.inside > 0);
        if state.panicked { Err(Panicked) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    #[test]
    fn helpers_and_caller_work_at_once() {
        let pool = Pool::new(3);
        let together = Barrier::new(4);
        // Returns only if four threads are in it at the same time.
        assert_eq!(pool.run(3, &|| _ = together.wait()), Ok(()));
    }

    #[test]
    fn without_helpers_the_caller_works_alone() {
        let runs = AtomicUsize::new(0);
        let work = || _ = runs.fetch_add(1, Relaxed);
        assert_eq!(Pool::new(0).run(5, &work), Ok(()));
        assert_eq!(Pool::new(2).run(0, &work), Ok(()));
        assert_eq!(runs.into_inner(), 2);
    }

    #[test]
    fn a_panic_reaches_the_caller_as_an_error_and_the_pool_goes_on() {
        let pool = Pool::new(2);
        let caller = thread::current().id();
        for _ in 0..20 {
            let together = Barrier::new(3);
            let helper_panics = || {
                together.wait();
                assert_eq!(thread::current().id(), caller);
            };
            assert_eq!(pool.run(2, &helper_panics), Err(Panicked));
            assert_eq!(pool.run(2, &|| panic!("on purpose")), Err(Panicked));
        }
        let together = Barrier::new(3);
        assert_eq!(pool.run(2, &|| _ = together.wait()), Ok(()));
    }

    #[test]
    fn a_caller_does_not_wait_for_helpers_that_are_busy_elsewhere() {
        let pool = Pool::new(1);
        let (inside, leave) = (Barrier::new(3), Barrier::new(3));
        thread::scope(|scope| {
            scope.spawn(|| {
                pool.run(1, &|| {
                    inside.wait();
                    leave.wait();
                })
            });
            inside.wait();
            assert_eq!(pool.run(1, &|| ()), Ok(()));
            leave.wait();
        });
    }

    #[test]
    fn borrowed_results_are_complete_when_the_call_returns() {
        let pool = Pool::new(3);
        for round in 0..2000 {
            let parts = Mutex::new(0..64);
            let sum = AtomicUsize::new(0);
            let work = || {
                while let Some(part) = { parts.lock().next() } {
                    sum.fetch_add(part + round, Relaxed);
                }
            };
            assert_eq!(pool.run(3, &work), Ok(()));
            assert_eq!(sum.into_inner(), 64 * 63 / 2 + 64 * round);
        }
    }
}
