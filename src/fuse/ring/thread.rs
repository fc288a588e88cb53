//! A thread that serves the kernel's queue of one processor, or of several.
//!
//! The kernel puts a request into the queue of the processor that its program runs on, and wakes the thread there:
//! neither leaves that processor. What takes long goes to a worker, so that the thread is soon back.
//!
//! One call of the system commits all answers, fetches the requests that wait, and sleeps if there are none. If an entry
//! is asked for when all are in use, the kernel keeps the request until one is committed. Those that wait for a locked
//! vault may stay in use for long; so the thread registers more entries before the last one is taken.

use super::{
    dispatch,
    entry::Entry,
    mail::Mail,
    parse,
    reply::{Reads, RingReply},
};
use crate::fuse::requests::Requests;
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
/// Commands that are submitted at once at most.
const SUBMISSIONS: u32 = 64;
/// Entries of a thread at most.
const MOST_ENTRIES: usize = 4096;
/// How long a thread pauses where the system is short of something.
const PAUSE: Duration = Duration::from_millis(1);
/// Marks the completion that means mail.
const BELL: u64 = u64::MAX;

/// The ring itself.
pub type Uring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Makes a ring for the calling thread.
///
/// # Errors
/// If the system has no io_uring, or does not allow it.
pub fn uring() -> io::Result<Uring> {
    IoUring::builder()
        .setup_single_issuer()
        // The kernel copies requests only while this thread is inside its call: `Entry` relies on it.
        .setup_defer_taskrun()
        .setup_cqsize(MOST_ENTRIES as u32)
        .build(SUBMISSIONS)
}

/// The kernel's queue of one processor.
pub struct Queue {
    /// Its number.
    pub number: u16,
    /// Entries that it begins with.
    pub depth: usize,
    idle: usize,
    /// Entries that the kernel had no memory to register.
    refused: Vec<usize>,
}

impl Queue {
    /// One with so many entries.
    pub fn new(number: u16, depth: usize) -> Queue {
        Queue { number, depth, idle: 0, refused: Vec::new() }
    }

    /// Idle entries below which more are added.
    fn spare(&self) -> usize {
        self.depth.div_ceil(4)
    }
}

/// What a thread serves, and how.
pub struct Work {
    /// The mount's device.
    pub device: Arc<OwnedFd>,
    /// What is done with requests.
    pub requests: Requests,
    /// Bytes of the largest request.
    pub largest: usize,
    /// Idle entries that may keep the memory of a large request.
    pub kept: usize,
}

/// Why a thread stops.
enum Stop {
    /// The mount has ended.
    Ended,
    /// Something failed.
    Failed(io::Error),
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Stop {
        Stop::Failed(e)
    }
}

type Step = Result<(), Stop>;

/// A ring and what is in it.
pub struct Ring {
    /// Before the entries, which the kernel must not know any more when they are dropped.
    uring: Uring,
    work: Work,
    queues: Vec<Queue>,
    entries: Vec<Room>,
    mail: Arc<Mail>,
    reads: Arc<Reads>,
    /// Those that wait until idle entries are empty.
    empty: Vec<Sender<()>>,
    /// Whether a large request was answered.
    large: bool,
    /// Where the kernel puts what it reads of the bell.
    rung: Box<[u8; 8]>,
}

struct Room {
    entry: Arc<Entry>,
    /// Its queue's place.
    queue: usize,
    /// Whether it is the kernel's, or about to be.
    idle: bool,
    /// Whether a request has ever come in it.
    used: bool,
}

impl Ring {
    /// One for these queues.
    pub fn new(uring: Uring, work: Work, queues: Vec<Queue>, mail: Arc<Mail>) -> Ring {
        let reads = Reads::new(mail.clone());
        let (entries, empty) = (Vec::new(), Vec::new());
        Ring { uring, work, queues, entries, mail, reads, empty, large: false, rung: Box::default() }
    }

    /// Registers all entries. From then on the kernel may use this ring.
    ///
    /// # Errors
    /// What the kernel said. It then goes on with the device.
    pub fn register(&mut self) -> io::Result<()> {
        self.hear()?;
        for queue in 0..self.queues.len() {
            for _ in 0..self.queues[queue].depth {
                let entry = self.new_entry(queue)?;
                self.register_entry(entry)?;
            }
        }
        self.uring.submit()?;
        // One that is refused completes at once.
        match self.uring.completion().find(|done| done.user_data() != BELL && done.result() < 0) {
            Some(refused) => Err(io::Error::from_raw_os_error(-refused.result())),
            None => Ok(()),
        }
    }

    /// Serves until the mount ends.
    ///
    /// # Errors
    /// If the ring fails.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            match self.turn() {
                Ok(()) => {}
                Err(Stop::Ended) => return Ok(()),
                Err(Stop::Failed(e)) => return Err(e),
            }
        }
    }

    fn turn(&mut self) -> Step {
        self.give_back();
        while let Some(waiting) = self.mail.take() {
            if waiting.end {
                return Err(Stop::Ended);
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

    /// A request has come.
    fn came(&mut self, entry: usize, result: i32) -> Step {
        let room = &mut self.entries[entry];
        room.idle = false;
        self.queues[room.queue].idle -= 1;
        match -result {
            0 => {
                room.used = true;
                self.serve(entry);
            }
            libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED => return Err(Stop::Ended),
            // It was not registered, and is as new: it is tried again.
            errno if !room.used => {
                self.queues[room.queue].refused.push(entry);
                log::debug!("a ring's entry is refused: {}", io::Error::from_raw_os_error(errno));
                thread::sleep(PAUSE);
            }
            // The kernel has let go of the entry; another takes its place.
            errno => log::debug!("a ring's entry: {}", io::Error::from_raw_os_error(errno)),
        }
        Ok(())
    }

    fn serve(&self, entry: usize) {
        let request = self.entries[entry].entry.take();
        let reply = RingReply::to(&request, self.reads.clone());
        let requests = self.work.requests.clone();
        let header = request.header;
        // What is not answered in a panic is answered by its drop.
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

    /// Commits an answer; the entry is the kernel's again.
    fn commit(&mut self, entry: usize) -> Step {
        let room = &mut self.entries[entry];
        room.idle = true;
        self.queues[room.queue].idle += 1;
        let id = room.entry.settle();
        self.large |= room.entry.is_large();
        let command = self.command(entry, COMMIT_AND_FETCH, id);
        Ok(self.push(&command)?)
    }

    /// The next entry, of a queue.
    fn new_entry(&mut self, queue: usize) -> io::Result<usize> {
        let index = self.entries.len();
        let entry = Entry::new(self.work.largest, index, self.queues[queue].number, self.mail.clone())?;
        self.entries.push(Room { entry, queue, idle: false, used: false });
        Ok(index)
    }

    /// One more for a queue; none if there are many, or no memory: then it goes on with those that it has.
    fn spare_entry(&mut self, queue: usize) -> Option<usize> {
        match self.queues[queue].refused.pop() {
            None if self.entries.len() < MOST_ENTRIES => self.new_entry(queue).ok(),
            refused => refused,
        }
    }

    /// Tells the kernel of an entry that it does not know.
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

    /// Waits for mail.
    fn hear(&mut self) -> io::Result<()> {
        let read = opcode::Read::new(Fd(self.mail.bell()), self.rung.as_mut_ptr(), 8).build();
        self.push(&squeue::Entry128::from(read.user_data(BELL)))
    }

    fn push(&mut self, command: &squeue::Entry128) -> io::Result<()> {
        while self.uring.submission().is_full() {
            self.enter(0)?;
        }
        // SAFETY: the kernel reads no memory for a commit, and the entry's parts for a registration. It writes to entries and to
        // `rung`. All of them outlive the ring.
        unsafe { self.uring.submission().push(command) }.map_err(io::Error::other)
    }

    fn enter(&mut self, wait: usize) -> io::Result<()> {
        match self.uring.submit_and_wait(wait) {
            Err(e) => match e.raw_os_error() {
                Some(libc::EINTR) => Ok(()),
                // What was not submitted stays, and is at the next turn: the system is short of memory, or of room for completions.
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                    thread::sleep(PAUSE);
                    Ok(())
                }
                _ => Err(e),
            },
            Ok(_) => Ok(()),
        }
    }

    /// Empties idle entries: all of them if somebody waits for that, else those that keep too much. Everything that was
    /// committed must be submitted, and every request that has come taken.
    fn give_back(&mut self) {
        if !self.uring.submission().is_empty() {
            return;
        }
        let idle = self.entries.iter().filter(|room| room.idle).map(|room| &room.entry);
        if !self.empty.is_empty() {
            // One that is answered and not yet committed has content, too: it comes back at once.
            let mut waiting = self.entries.iter().filter(|room| !room.idle).map(|room| &room.entry);
            if !waiting.all(|entry| entry.wipe_behind()) {
                return;
            }
            idle.for_each(|entry| entry.empty());
            // Who waited may have given up.
            for told in self.empty.drain(..) {
                let _ = told.send(());
            }
        } else if std::mem::take(&mut self.large) {
            idle.filter(|entry| entry.is_large()).skip(self.work.kept).for_each(|entry| entry.empty());
        }
    }
}

/// The command with where header and payload are; there is no other way to say how many parts those are.
fn with_parts(command: squeue::Entry128, parts: &[libc::iovec; 2]) -> squeue::Entry128 {
    const ADDRESS: usize = 16;
    const COUNT: usize = 24;
    // SAFETY: an `io_uring_sqe` of 128 bytes, which has no padding and takes any bytes.
    let mut bytes = unsafe { std::mem::transmute::<squeue::Entry128, [u8; 128]>(command) };
    bytes[ADDRESS..ADDRESS + 8].copy_from_slice(&(parts.as_ptr() as u64).to_ne_bytes());
    bytes[COUNT..COUNT + 4].copy_from_slice(&2_u32.to_ne_bytes());
    // SAFETY: as above.
    unsafe { std::mem::transmute::<[u8; 128], squeue::Entry128>(bytes) }
}
