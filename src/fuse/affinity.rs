//! Threads that stay on one processor, and those that they start.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::OnceLock;

/// Where this process may run.
static ALL: OnceLock<CpuSet> = OnceLock::new();

/// The processors that this process may run on; none if the system does not say. To be called before any thread is
/// bound.
pub fn processors() -> CpuSet {
    *ALL.get_or_init(|| sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new()))
}

/// Keeps the calling thread on this processor.
pub fn bind(processor: usize) {
    let mut one = CpuSet::new();
    one.set(processor);
    // If it is refused the thread is slower.
    let _ = sched_setaffinity(None, &one);
}

/// Lets the calling thread run wherever the process may: one starts where the thread that started it is bound to.
pub fn unbind() {
    if let Some(all) = ALL.get() {
        let _ = sched_setaffinity(None, all);
    }
}
