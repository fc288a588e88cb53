//! Room for one request and its answer, shared with the kernel.
//!
//! An entry belongs to the kernel from its registration, or from the commit of an answer, until the kernel completes
//! that command: a request is in it then. The kernel copies requests into entries only while the thread of the ring is
//! inside its system call (IORING_SETUP_DEFER_TASKRUN), so that thread may touch idle entries between two calls.
//!
//! A request that has come is in two hands: a [`Request`], which lends its bytes, and a [`RingReply`]. When both are
//! gone, the entry returns to its thread, which commits the answer.
//!
//! [`RingReply`]: super::reply::RingReply

use super::{
    mail::Mail,
    parse::{self, ARGUMENTS, HEADER, Header},
};
use crate::{fuse::errno::UNANSWERED, vault::Result};
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::{
    ffi::c_void,
    io, ptr, slice,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use zeroize::Zeroizing;

/// Where the parts of `fuse_uring_req_header` begin: headers of request and answer, arguments, what the ring itself
/// needs.
const ARGUMENTS_AT: usize = 128;
const RING_AT: usize = 256;
/// Bytes of that header.
const HEADER_LEN: usize = 288;
/// Where the payload begins: at a page.
const PAYLOAD_AT: usize = 4096;
/// Payloads up to this stay resident.
pub const SMALL_PAYLOAD: usize = 128 << 10;

/// An answer, to be committed.
pub enum Answered {
    /// Bytes to be copied into the payload.
    Bytes(Vec<u8>),
    /// So many bytes are in the payload.
    InPlace(usize),
    /// An errno, positive.
    Error(i32),
}

/// Room for one request of a queue.
pub struct Entry {
    start: *mut u8,
    /// Header and payload, as the kernel is told of them: it reads this when it takes the command, which may be later.
    parts: [libc::iovec; 2],
    /// Bytes of a payload at most.
    capacity: usize,
    /// Its place among the entries of its thread.
    index: usize,
    /// The kernel's queue.
    pub queue: u16,
    mail: Arc<Mail>,
    /// How many hands the request is in.
    hands: AtomicUsize,
    /// Held while the payload is written to.
    answer: Mutex<Option<Answered>>,
    /// Bytes of the payload that are lent.
    lent: AtomicUsize,
    /// Bytes of the payload that were ever used since it was wiped.
    touched: AtomicUsize,
}

// SAFETY: the memory is reached by the thread of the ring alone while the entry belongs to it or is idle, and by the two
// hands of a request otherwise: `Request` only reads, and `put` writes where nothing is lent.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

impl Entry {
    /// An entry with room for a payload of so many bytes, which takes no memory before it is used.
    ///
    /// # Errors
    /// If the address space is short.
    pub fn new(capacity: usize, index: usize, queue: u16, mail: Arc<Mail>) -> io::Result<Arc<Entry>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let len = PAYLOAD_AT + capacity;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        // SAFETY: the mapping that was just made. Without this advice it would only be part of a dump.
        let _ = unsafe { madvise(start, len, Advice::LinuxDontDump) };
        let start: *mut u8 = start.cast();
        let part = |at: usize, len: usize| libc::iovec {
            iov_base: start.wrapping_add(at).cast::<c_void>(),
            iov_len: len,
        };
        Ok(Arc::new(Entry {
            start,
            parts: [part(0, HEADER_LEN), part(PAYLOAD_AT, capacity)],
            capacity,
            index,
            queue,
            mail,
            hands: AtomicUsize::new(0),
            answer: Mutex::new(None),
            lent: AtomicUsize::new(0),
            touched: AtomicUsize::new(0),
        }))
    }

    /// Header and payload, as the kernel wants to be told of them. They stay where they are as long as the entry lives.
    pub fn parts(&self) -> &[libc::iovec; 2] {
        &self.parts
    }

    /// The request that the kernel has put here. To be called by the thread of the ring, once for each completion.
    pub fn take(self: &Arc<Self>) -> Request {
        self.hands.store(2, Ordering::Relaxed);
        *self.answer.lock() = None;
        let arguments = self.read::<ARGUMENTS>(ARGUMENTS_AT);
        let size = u32::from_ne_bytes(self.read(RING_AT + 16)) as usize;
        let size = size.min(self.capacity);
        self.touched.fetch_max(size, Ordering::Relaxed);
        let header = parse::header(&self.read::<HEADER>(0));
        // What is written stays in place, as its answer does not.
        self.lent.store(if header.opcode == parse::WRITE { size } else { 0 }, Ordering::Relaxed);
        let copy = (header.opcode != parse::WRITE).then(|| Zeroizing::new(self.payload(size).to_vec()));
        Request { entry: self.clone(), header, arguments, size, copy }
    }

    /// Writes the answer where the kernel expects it, and returns the id under which it is committed. To be called by
    /// the thread of the ring, once for each request that it was told of.
    pub fn settle(&self) -> u64 {
        let (mut error, mut len) = (0, 0);
        match self.answer.lock().take() {
            Some(Answered::Bytes(bytes)) => {
                self.write(PAYLOAD_AT, &bytes);
                len = bytes.len();
            }
            Some(Answered::InPlace(bytes)) => len = bytes,
            Some(Answered::Error(number)) => error = -number,
            // Somebody has lost it, by a panic perhaps.
            None => error = -UNANSWERED.code(),
        }
        self.touched.fetch_max(len, Ordering::Relaxed);
        // `fuse_out_header` without the id, which is where the request had it.
        let whole = 16 + len as u32; // A payload has a few MiB.
        self.write(0, &[whole.to_ne_bytes(), error.to_ne_bytes()].concat());
        self.write(RING_AT + 16, &(len as u32).to_ne_bytes());
        u64::from_ne_bytes(self.read(RING_AT + 8))
    }

    /// Takes the answer, unless it was put. To be called by the one who answers.
    pub fn answer(&self, answer: Answered) {
        *self.answer.lock() = Some(answer);
    }

    /// Copies an answer into the payload. False if it does not fit, or if the payload is lent.
    pub fn put(&self, bytes: &[u8], opcode: u32) -> bool {
        let fits = bytes.len() <= self.capacity && opcode != parse::WRITE;
        if fits {
            let mut answer = self.answer.lock();
            self.touched.fetch_max(bytes.len(), Ordering::Relaxed);
            self.write(PAYLOAD_AT, bytes);
            *answer = Some(Answered::InPlace(bytes.len()));
        }
        fits
    }

    /// Has `fill` write an answer of at most `len` bytes into the payload, and takes as many as it returns. False if it
    /// returned `None`, if they do not fit, or if the payload is lent.
    ///
    /// # Errors
    /// What `fill` returned. Then there is no answer.
    pub fn fill(
        &self,
        len: usize,
        opcode: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<Option<usize>>,
    ) -> Result<bool> {
        if len > self.capacity || opcode == parse::WRITE {
            return Ok(false);
        }
        let mut answer = self.answer.lock();
        self.touched.fetch_max(len, Ordering::Relaxed);
        // SAFETY: inside the mapping, and nothing of it is lent. While the answer is locked nobody else writes there.
        let out = unsafe { slice::from_raw_parts_mut(self.start.add(PAYLOAD_AT), len) };
        let filled = fill(out)?.map(|filled| filled.min(len));
        *answer = filled.map(Answered::InPlace);
        Ok(filled.is_some())
    }

    /// Wipes what is left of earlier requests behind one that waits. False if that is answered: it will soon be idle.
    pub fn wipe_behind(&self) -> bool {
        let answer = self.answer.lock();
        let lent = self.lent.load(Ordering::Relaxed);
        let touched = self.touched.load(Ordering::Relaxed).max(lent);
        if answer.is_none() {
            self.write(PAYLOAD_AT + lent, &vec![0; touched - lent]);
        }
        answer.is_none()
    }

    /// Bytes of a payload at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// One hand lets go of the request.
    pub fn leave(&self) {
        if self.hands.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.mail.done(self.index);
        }
    }

    /// Whether it holds more memory than a small payload takes.
    pub fn is_large(&self) -> bool {
        self.touched.load(Ordering::Relaxed) > SMALL_PAYLOAD
    }

    /// Gives the memory back to the system, content and all. To be called by the thread of the ring, for an idle entry.
    pub fn empty(&self) {
        if self.touched.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        // SAFETY: the entry's own mapping. The kernel is not writing to it, see above, and finds zeros from now on.
        let _ = unsafe { madvise(self.start.cast(), PAYLOAD_AT + self.capacity, Advice::LinuxDontNeed) };
    }

    fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= HEADER_LEN);
        // SAFETY: inside the mapping. While a request is here the kernel does not write.
        unsafe { self.start.add(at).cast::<[u8; N]>().read_unaligned() }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= PAYLOAD_AT + self.capacity);
        // SAFETY: inside the mapping, which `bytes` cannot overlap: of the payload only what is written is lent, and
        // `put` refuses those entries; `settle` is called when nothing is lent any more.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) }
    }

    fn payload(&self, size: usize) -> &[u8] {
        assert!(size <= self.capacity);
        // SAFETY: inside the mapping. Lent to a `Request` alone, which keeps the entry from the kernel, and nobody else
        // writes to the payload meanwhile: see `write`.
        unsafe { slice::from_raw_parts(self.start.add(PAYLOAD_AT), size) }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: the entry's own mapping, of which nothing is lent any more. The ring is gone: it has a reference
        // to each entry, and is closed before it drops them.
        let _ = unsafe { munmap(self.start.cast(), PAYLOAD_AT + self.capacity) };
    }
}

/// A request that has come.
pub struct Request {
    pub(super) entry: Arc<Entry>,
    /// What all requests have.
    pub header: Header,
    /// The room for its arguments.
    pub arguments: [u8; ARGUMENTS],
    size: usize,
    /// It may have an extended attribute in it.
    copy: Option<Zeroizing<Vec<u8>>>,
}

impl Request {
    /// What comes with it.
    pub fn payload(&self) -> &[u8] {
        match &self.copy {
            Some(copy) => copy,
            None => self.entry.payload(self.size),
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.entry.leave();
    }
}
