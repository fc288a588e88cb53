//! What others leave for the thread of a ring: entries that are answered, and what it is told to do.

use crossbeam_channel::Sender;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

/// What waits for the thread of a ring.
#[derive(Default)]
pub struct Waiting {
    /// Entries whose requests are answered.
    pub done: Vec<usize>,
    /// Whether there are small reads, to be done together.
    pub reads: bool,
    /// Who has idle entries emptied, and is told when they are.
    pub empty: Vec<Sender<()>>,
    /// Whether the thread is to end.
    pub end: bool,
    /// Whether the thread is in the kernel, or about to be, and has to be woken.
    asleep: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.done.is_empty() && !self.reads && self.empty.is_empty() && !self.end
    }
}

/// A thread's mail.
pub struct Mail {
    waiting: Mutex<Waiting>,
    bell: OwnedFd,
}

impl Mail {
    /// No mail.
    ///
    /// # Errors
    /// If there are too many descriptors.
    pub fn new() -> io::Result<Mail> {
        Ok(Mail { waiting: Mutex::default(), bell: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// An entry is answered.
    pub fn done(&self, entry: usize) {
        self.leave(|waiting| waiting.done.push(entry));
    }

    /// There is a small read.
    pub fn read(&self) {
        self.leave(|waiting| waiting.reads = true);
    }

    /// Idle entries are to be emptied; then `told` is sent something.
    pub fn empty(&self, told: Sender<()>) {
        self.leave(|waiting| waiting.empty.push(told));
    }

    /// The thread is to end.
    pub fn end(&self) {
        self.leave(|waiting| waiting.end = true);
    }

    /// Takes all mail. If there is none, the thread counts as asleep from here on.
    pub fn take(&self) -> Option<Waiting> {
        let mut waiting = self.waiting.lock();
        waiting.asleep = waiting.is_empty();
        (!waiting.asleep).then(|| std::mem::take(&mut *waiting))
    }

    /// The thread is awake: it will take its mail.
    pub fn awake(&self) {
        self.waiting.lock().asleep = false;
    }

    /// Becomes readable, for a read of 8 bytes, when mail comes for a thread that is asleep.
    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    fn leave(&self, what: impl FnOnce(&mut Waiting)) {
        let asleep = {
            let mut waiting = self.waiting.lock();
            what(&mut waiting);
            std::mem::take(&mut waiting.asleep)
        };
        if asleep {
            // It fails only if it was rung 2^64 times.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}
