//! Messages from other threads to the thread of a ring: answered entries, and instructions.

use crossbeam_channel::Sender;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

/// Pending messages to the thread of a ring.
#[derive(Default)]
pub struct MailWaiter {
    /// Entries whose requests are answered.
    pub done: Vec<usize>,
    /// Whether there are small reads to serve as a batch.
    pub reads: bool,
    /// Callers that asked to have idle entries emptied, each notified when that is done.
    pub empty: Vec<Sender<()>>,
    /// Whether the thread must end.
    pub end: bool,
    /// Whether the thread is in the kernel, or about to be, and must be woken.
    asleep: bool,
}

impl MailWaiter {
    fn is_empty(&self) -> bool {
        self.done.is_empty() && !self.reads && self.empty.is_empty() && !self.end
    }
}

/// A thread's mailbox.
pub struct Mail {
    waiting: Mutex<MailWaiter>,
    bell: OwnedFd,
}

impl Mail {
    /// Creates an empty mailbox.
    ///
    /// # Errors
    /// If there are too many descriptors.
    pub fn new() -> io::Result<Mail> {
        Ok(Mail { waiting: Mutex::default(), bell: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// Reports an answered entry.
    pub fn done(&self, entry: usize) {
        self.leave(|waiting| waiting.done.push(entry));
    }

    /// Reports a small read.
    pub fn read(&self) {
        self.leave(|waiting| waiting.reads = true);
    }

    /// Asks the thread to empty its idle entries, and to notify `told` afterwards.
    pub fn empty(&self, told: Sender<()>) {
        self.leave(|waiting| waiting.empty.push(told));
    }

    /// Asks the thread to end.
    pub fn end(&self) {
        self.leave(|waiting| waiting.end = true);
    }

    /// Takes all messages. If there are none, the thread counts as asleep from here on.
    pub fn take(&self) -> Option<MailWaiter> {
        let mut waiting = self.waiting.lock();
        waiting.asleep = waiting.is_empty();
        (!waiting.asleep).then(|| std::mem::take(&mut *waiting))
    }

    /// Marks the thread as awake: it will take its messages.
    pub fn awake(&self) {
        self.waiting.lock().asleep = false;
    }

    /// A descriptor that becomes readable, for a read of 8 bytes, when a message arrives for a sleeping
    /// thread.
    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    fn leave(&self, what: impl FnOnce(&mut MailWaiter)) {
        let asleep = {
            let mut waiting = self.waiting.lock();
            what(&mut waiting);
            std::mem::take(&mut waiting.asleep)
        };
        if asleep {
            // It fails only after 2^64 writes.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}
