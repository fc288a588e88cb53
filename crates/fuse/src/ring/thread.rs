//! A thread that serves the kernel's queue of one or several processors.
//!
//! The kernel puts a request into the queue of the processor that its program runs on, and wakes the
//! thread there; neither leaves that processor. Long requests are handed to a worker, so that the thread
//! soon returns.
//!
//! One system call commits all answers, fetches waiting requests, and sleeps if there are none. If all
//! entries are in use, the kernel keeps a new request until an answer is committed. Requests that wait
//! for a locked vault may occupy entries for a long time, so the thread registers more entries before the
//! last one is taken.

use super::{
    dispatch,
    entry::RingEntry,
    mail::Mail,
    parse,
    reply::{Reads, RingReply},
};
use crate::requests::Requests;
use crossbeam_channel::Sender;
use io_uring::{IoUring, cqueue, opcode, squeue, types::Fd};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

/// The commands of a ring, from `include/uapi/linux/fuse.h`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Maximum number of commands submitted at once.
const SUBMISSIONS: u32 = 64;
/// Maximum number of entries of a thread.
const MOST_ENTRIES: usize = 4096;
/// How long a thread pauses when the system is short of a resource.
const PAUSE: Duration = Duration::from_millis(1);
/// Marks the completion that reports mail.
const BELL: u64 = u64::MAX;

/// The io_uring instance.
pub type Uring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Creates a ring for the calling thread.
///
/// # Errors
/// If the system has no io_uring, or does not permit it.
pub fn uring() -> io::Result<Uring> {
    IoUring::builder()
        .setup_single_issuer()
        // The kernel copies requests only while this thread is inside its call: `RingEntry` relies on it.
        .setup_defer_taskrun()
        .setup_cqsize(MOST_ENTRIES as u32)
        .build(SUBMISSIONS)
}

/// The kernel's queue of one processor.
pub struct RingQueue {
    /// Number of the queue.
    pub number: u16,
    /// Initial number of entries.
    pub depth: usize,
    idle: usize,
    /// Entries that the kernel had no memory to register.
    refused: Vec<usize>,
}

impl RingQueue {
    /// Creates a queue with `depth` initial entries.
    pub fn new(number: u16, depth: usize) -> RingQueue {
        RingQueue { number, depth, idle: 0, refused: Vec::new() }
    }

    /// Number of idle entries below which more are added.
    fn spare(&self) -> usize {
        self.depth.div_ceil(4)
    }
}

/// The mount that a thread serves, and its limits.
pub struct RingWork {
    /// The mount's device.
    pub device: Arc<OwnedFd>,
    /// The request handlers.
    pub requests: Requests,
    /// Maximum size of a request in bytes.
    pub largest: usize,
    /// Number of idle entries that may keep the memory of a large request.
    pub kept: usize,
}

/// Why a thread stops.
enum StopReason {
    /// The mount has ended.
    Ended,
    /// A system call failed.
    Failed(io::Error),
}

impl From<io::Error> for StopReason {
    fn from(e: io::Error) -> StopReason {
        StopReason::Failed(e)
    }
}

type Step = Result<(), StopReason>;

/// A ring and its entries.
pub struct Ring {
    /// Declared before the entries, so that it is dropped first: the kernel must not use them after that.
    uring: Uring,
    work: RingWork,
    queues: Vec<RingQueue>,
    entries: Vec<RingRoom>,
    mail: Arc<Mail>,
    reads: Arc<Reads>,
    /// Callers that wait until idle entries are empty.
    empty: Vec<Sender<()>>,
    /// Whether a large request was answered.
    large: bool,
    /// Buffer for the kernel's reads of the bell.
    rung: Box<[u8; 8]>,
}

struct RingRoom {
    entry: Arc<RingEntry>,
    /// Index of its queue.
    queue: usize,
    /// Whether it belongs to the kernel, or is about to.
    idle: bool,
    /// Whether it has ever held a request.
    used: bool,
}

impl Ring {
    /// Creates a ring for these queues.
    pub fn new(uring: Uring, work: RingWork, queues: Vec<RingQueue>, mail: Arc<Mail>) -> Ring {
        let reads = Reads::new(mail.clone());
        let (entries, empty) = (Vec::new(), Vec::new());
        Ring { uring, work, queues, entries, mail, reads, empty, large: false, rung: Box::default() }
    }

    /// Registers all entries. From then on the kernel may use this ring.
    ///
    /// # Errors
    /// The kernel's error. The kernel then continues to use the device.
    pub fn register(&mut self) -> io::Result<()> {
        self.hear()?;
        for queue in 0..self.queues.len() {
            for _ in 0..self.queues[queue].depth {
                let entry = self.new_entry(queue)?;
                self.register_entry(entry)?;
            }
        }
        self.uring.submit()?;
        // A refused registration completes at once.
        match self.uring.completion().find(|done| done.user_data() != BELL && done.result() < 0) {
            Some(refused) => Err(io::Error::from_raw_os_error(-refused.result())),
            None => Ok(()),
        }
    }

    /// Serves requests until the mount ends.
    ///
    /// # Errors
    /// If the ring fails.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            match self.turn() {
                Ok(()) => {}
                Err(StopReason::Ended) => return Ok(()),
                Err(StopReason::Failed(e)) => return Err(e),
            }
        }
    }

    fn turn(&mut self) -> Step {
        self.give_back();
        while let Some(waiting) = self.mail.take() {
            if waiting.end {
                return Err(StopReason::Ended);
            }
            if waiting.reads {
                self.work.requests.server.read_batch(self.reads.take());
            }
            waiting.done.into_iter().try_for_each(|entry| self.commit(entry))?;
            self.empty.extend(waiting.empty);
        }
        for queue in 0..self.queues.len() {
            while self.queues[queue].idle < self.queues[queue].spare() {
                let Some(entry) = self.spare_entry(queue) else { break };
                self.register_entry(entry)?;
            }
        }
        self.enter(if self.empty.is_empty() { 1 } else { 0 })?;
        self.mail.awake();
        let came: Vec<_> = self.uring.completion().map(|done| (done.user_data(), done.result())).collect();
        for (what, result) in came {
            match what {
                BELL => self.hear()?,
                entry => self.came(entry as usize, result)?,
            }
        }
        Ok(())
    }

    /// Handles the completion of an entry, usually with a request.
    fn came(&mut self, entry: usize, result: i32) -> Step {
        let room = &mut self.entries[entry];
        room.idle = false;
        self.queues[room.queue].idle -= 1;
        match -result {
            0 => {
                room.used = true;
                self.serve(entry);
            }
            libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED => return Err(StopReason::Ended),
            // It was not registered and is unused, so the registration is retried later.
            errno if !room.used => {
                self.queues[room.queue].refused.push(entry);
                log::debug!("a ring's entry is refused: {}", io::Error::from_raw_os_error(errno));
                thread::sleep(PAUSE);
            }
            // The kernel has dropped the entry; another takes its place.
            errno => log::debug!("a ring's entry: {}", io::Error::from_raw_os_error(errno)),
        }
        Ok(())
    }

    fn serve(&self, entry: usize) {
        let request = self.entries[entry].entry.take();
        let reply = RingReply::to(&request, self.reads.clone());
        let requests = self.work.requests.clone();
        let header = request.header;
        // If a panic prevents the answer, dropping the reply answers.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let shared = requests.server.vault.is_shared();
            let parsed = parse::operation(header.opcode, &request.arguments, request.payload());
            match parsed {
                Err(fault) => dispatch::refuse(fault, reply),
                Ok(operation) if !dispatch::takes_long(&operation, shared) => {
                    dispatch::serve(&requests, &header, operation, reply);
                }
                Ok(_) => self.work.requests.server.elsewhere(move || {
                    match parse::operation(header.opcode, &request.arguments, request.payload()) {
                        Ok(operation) => dispatch::serve(&requests, &header, operation, reply),
                        Err(fault) => dispatch::refuse(fault, reply),
                    }
                }),
            }
        }));
    }

    /// Commits an answer, which returns the entry to the kernel.
    fn commit(&mut self, entry: usize) -> Step {
        let room = &mut self.entries[entry];
        room.idle = true;
        self.queues[room.queue].idle += 1;
        let id = room.entry.settle();
        self.large |= room.entry.is_large();
        let command = self.command(entry, COMMIT_AND_FETCH, id);
        Ok(self.push(&command)?)
    }

    /// Creates a new entry for a queue.
    fn new_entry(&mut self, queue: usize) -> io::Result<usize> {
        let index = self.entries.len();
        let entry = RingEntry::new(self.work.largest, index, self.queues[queue].number, self.mail.clone())?;
        self.entries.push(RingRoom { entry, queue, idle: false, used: false });
        Ok(index)
    }

    /// Takes one more entry for a queue. `None` if there are too many or no memory; the queue then
    /// continues with those it has.
    fn spare_entry(&mut self, queue: usize) -> Option<usize> {
        match self.queues[queue].refused.pop() {
            None if self.entries.len() < MOST_ENTRIES => self.new_entry(queue).ok(),
            refused => refused,
        }
    }

    /// Registers a new entry with the kernel.
    fn register_entry(&mut self, index: usize) -> io::Result<()> {
        let room = &mut self.entries[index];
        room.idle = true;
        self.queues[room.queue].idle += 1;
        let command = with_parts(self.command(index, REGISTER, 0), self.entries[index].entry.parts());
        self.push(&command)?;
        self.enter(0)
    }

    fn command(&self, entry: usize, command: u32, id: u64) -> squeue::Entry128 {
        let mut bytes = [0; 80];
        bytes[8..16].copy_from_slice(&id.to_ne_bytes());
        bytes[16..18].copy_from_slice(&self.entries[entry].entry.queue.to_ne_bytes());
        let device = Fd(self.work.device.as_raw_fd());
        opcode::UringCmd80::new(device, command).cmd(bytes).build().user_data(entry as u64)
    }

    /// Submits a read of the bell, which completes when mail arrives.
    fn hear(&mut self) -> io::Result<()> {
        let read = opcode::Read::new(Fd(self.mail.bell()), self.rung.as_mut_ptr(), 8).build();
        self.push(&squeue::Entry128::from(read.user_data(BELL)))
    }

    fn push(&mut self, command: &squeue::Entry128) -> io::Result<()> {
        while self.uring.submission().is_full() {
            self.enter(0)?;
        }
        // SAFETY: the kernel reads no memory for a commit, and the entry's parts for a registration. It
        // writes to entries and to `rung`. All of them outlive the ring.
        unsafe { self.uring.submission().push(command) }.map_err(io::Error::other)
    }

    fn enter(&mut self, wait: usize) -> io::Result<()> {
        match self.uring.submit_and_wait(wait) {
            Err(e) => match e.raw_os_error() {
                Some(libc::EINTR) => Ok(()),
                // Commands that were not submitted stay queued for the next turn. The system is short of
                // memory, or of space for completions.
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                    thread::sleep(PAUSE);
                    Ok(())
                }
                _ => Err(e),
            },
            Ok(_) => Ok(()),
        }
    }

    /// Empties idle entries: all of them if a caller waits for that, otherwise those that keep too much
    /// memory. All commits must have been submitted, and all received requests taken.
    fn give_back(&mut self) {
        if !self.uring.submission().is_empty() {
            return;
        }
        let idle = self.entries.iter().filter(|room| room.idle).map(|room| &room.entry);
        if !self.empty.is_empty() {
            // An entry that is answered but not yet committed also has content. Its message arrives at
            // once, so try again then.
            let mut waiting = self.entries.iter().filter(|room| !room.idle).map(|room| &room.entry);
            if !waiting.all(|entry| entry.wipe_behind()) {
                return;
            }
            idle.for_each(|entry| entry.empty());
            // The waiting caller may have given up.
            for told in self.empty.drain(..) {
                let _ = told.send(());
            }
        } else if std::mem::take(&mut self.large) {
            idle.filter(|entry| entry.is_large()).skip(self.work.kept).for_each(|entry| entry.empty());
        }
    }
}

/// Adds the addresses of header and payload to a command; there is no other way to set their number.
fn with_parts(command: squeue::Entry128, parts: &[libc::iovec; 2]) -> squeue::Entry128 {
    const ADDRESS: usize = 16;
    const COUNT: usize = 24;
    // SAFETY: an `io_uring_sqe` of 128 bytes, which has no padding and accepts any bytes.
    let mut bytes = unsafe { std::mem::transmute::<squeue::Entry128, [u8; 128]>(command) };
    bytes[ADDRESS..ADDRESS + 8].copy_from_slice(&(parts.as_ptr() as u64).to_ne_bytes());
    bytes[COUNT..COUNT + 4].copy_from_slice(&2_u32.to_ne_bytes());
    // SAFETY: as above.
    unsafe { std::mem::transmute::<[u8; 128], squeue::Entry128>(bytes) }
}
