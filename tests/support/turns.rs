//! Keeps the creation of mount namespaces apart from unmounting.
//!
//! A new namespace copies every mount, and keeps it busy until the copy is unmounted there. An unmount at
//! that moment reports that the mount is in use. So commands that unmount may run together, but never at
//! the same time as one that creates a namespace.

use parking_lot::{Condvar, Mutex};
use std::process::Command;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Unmounts,
    MakesNamespace,
}

/// Number of running commands of each kind.
struct Running {
    unmounts: usize,
    namespaces: usize,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { unmounts: 0, namespaces: 0 });
static ENDED: Condvar = Condvar::new();

/// Permission for one command to run, held until it is dropped.
pub struct Turn(Kind);

impl Turn {
    /// Waits until the command may run. `None` if it neither unmounts nor creates a namespace.
    pub fn of(command: &Command) -> Option<Turn> {
        let line = format!("{command:?}");
        // A trial run unmounts at its end.
        let is_trial = command.get_args().next().is_some_and(|first| first == "try");
        let kind = if command.get_program() == "unshare" {
            Kind::MakesNamespace
        } else if line.contains("umount") || line.contains("fusermount") || is_trial {
            Kind::Unmounts
        } else {
            return None;
        };
        let mut running = RUNNING.lock();
        match kind {
            Kind::Unmounts => {
                ENDED.wait_while(&mut running, |running| running.namespaces > 0);
                running.unmounts += 1;
            }
            Kind::MakesNamespace => {
                ENDED.wait_while(&mut running, |running| running.namespaces + running.unmounts > 0);
                running.namespaces += 1;
            }
        }
        Some(Turn(kind))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut running = RUNNING.lock();
        match self.0 {
            Kind::Unmounts => running.unmounts -= 1,
            Kind::MakesNamespace => running.namespaces -= 1,
        }
        ENDED.notify_all();
    }
}
