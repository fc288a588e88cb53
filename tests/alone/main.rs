//! Tests that need the whole machine: they measure a process, fill disks, copy every existing mount, or
//! hold on to a mount's device number. Cargo runs one test program at a time, and this program runs one
//! test at a time.

mod detached;
mod kills;
mod memory;
mod namespace;
#[path = "../support/mod.rs"]
mod support;

use parking_lot::{Mutex, MutexGuard};

/// Waits for the other tests in this program. Hold the guard until the test ends.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock()
}
