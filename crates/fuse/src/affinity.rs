//! CPU affinity of threads, and of the threads that they start.
//!
//! When the scheduler is free to choose, it wakes a program on an idle processor instead of the one that
//! produced its answer. The next request then reaches a different thread, with none of its data in that
//! processor's caches. The scheduler does not migrate a program that has used more than its share of a
//! processor: it stays in that processor's run queue while it waits. So a thread that serves one
//! processor gets a higher weight than the programs there, and its CPU time counts for less than theirs.

use rustix::{
    process::{getpriority_process, setpriority_process},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use std::sync::OnceLock;

/// Nice levels (nice(2)) by which a bound thread outranks other threads. 10 levels give it nine times
/// their weight. 5 levels would suffice for threads that use three times as much CPU time as the program.
const BEFORE_OTHERS: i32 = 10;

/// Affinity and priority of threads that are not bound.
struct Unbound {
    processors: CpuSet,
    nice: i32,
}

static UNBOUND: OnceLock<Unbound> = OnceLock::new();

/// Returns the processors that this process may run on; an empty set if the system does not tell. Call it
/// before any thread is bound.
pub fn processors() -> CpuSet {
    let unbound = UNBOUND.get_or_init(|| Unbound {
        processors: sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new()),
        nice: getpriority_process(None).unwrap_or(0),
    });
    unbound.processors
}

/// Pins the calling thread to this processor, with a higher priority than other threads if the system
/// allows it.
pub fn bind(processor: usize) {
    let mut one = CpuSet::new();
    one.set(processor);
    // Best effort: if the system refuses either, the thread is only slower.
    let _ = sched_setaffinity(None, &one);
    if let Some(unbound) = UNBOUND.get() {
        let _ = setpriority_process(None, unbound.nice - BEFORE_OTHERS);
    }
}

/// Restores the process's affinity and priority for the calling thread. A new thread inherits both from
/// its creator, so a thread that a bound one starts must call this.
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
