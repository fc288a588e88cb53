//! Threads that stay on one processor, and those that they start.
//!
//! Where the kernel may choose, it wakes a program on an idle processor, not on the one where its answer was made: the next
//! request then finds another thread, and nothing of what it needs in the caches. It does not choose for a program that has
//! had more of the processor than was due, which it leaves in the processor's queue while it waits. So a thread that serves
//! one processor weighs more than the programs there: what it does counts for less than what they do.

use rustix::{
    process::{getpriority_process, setpriority_process},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use std::sync::OnceLock;

/// By so much (nice(2)) a bound thread comes before others: it weighs nine times what they do. Five would do for those that take
/// three times as long as the program.
const BEFORE_OTHERS: i32 = 10;

/// What threads have that are not bound.
struct Unbound {
    processors: CpuSet,
    nice: i32,
}

static UNBOUND: OnceLock<Unbound> = OnceLock::new();

/// The processors that this process may run on; none if the system does not say. To be called before any thread is
/// bound.
pub fn processors() -> CpuSet {
    let unbound = UNBOUND.get_or_init(|| Unbound {
        processors: sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new()),
        nice: getpriority_process(None).unwrap_or(0),
    });
    unbound.processors
}

/// Keeps the calling thread on this processor, before others there if the system allows it.
pub fn bind(processor: usize) {
    let mut one = CpuSet::new();
    one.set(processor);
    // If either is refused the thread is slower.
    let _ = sched_setaffinity(None, &one);
    if let Some(unbound) = UNBOUND.get() {
        let _ = setpriority_process(None, unbound.nice - BEFORE_OTHERS);
    }
}

/// Lets the calling thread run wherever the process may, like any other: one starts as the thread that started it is.
pub fn unbind() {
    if let Some(unbound) = UNBOUND.get() {
        let _ = sched_setaffinity(None, &unbound.processors);
        let _ = setpriority_process(None, unbound.nice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn what_a_bound_thread_starts_is_not_bound() {
        let all = processors();
        let first = (0..CpuSet::MAX_CPU).find(|&number| all.is_set(number)).unwrap();
        let now = || (sched_getaffinity(None).unwrap(), getpriority_process(None).unwrap());
        let before = now();
        thread::spawn(move || {
            bind(first);
            let bound = now();
            assert_eq!(bound.0.count(), 1);
            assert!(bound.1 < before.1 || !rustix::process::getuid().is_root(), "it comes before others");
            let started = thread::spawn(move || {
                assert_eq!(now(), bound, "it starts as the one that started it is");
                unbind();
                assert_eq!(now(), before);
            });
            started.join().unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(now(), before, "the others stay as they were");
    }
}
