//! Tests that need the whole machine: they measure a process, fill disks, copy every mount there is, or keep the number of
//! one. Cargo runs one test program at a time, and here one test at a time.

mod detached;
mod kills;
mod memory;
mod namespace;
#[path = "../support/mod.rs"]
mod support;

use parking_lot::{Mutex, MutexGuard};

/// Waits for the other tests of this program. Held until the test ends.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock()
}
