//! Memory for one request and its answer, shared with the kernel.
//!
//! An entry belongs to the kernel from its registration, or from the commit of an answer, until the
//! kernel completes that command; the entry then contains a request. The kernel copies requests into
//! entries only while the ring's thread is inside its system call (IORING_SETUP_DEFER_TASKRUN), so that
//! thread may access idle entries between two calls.
//!
//! A received request has two owners: a [`RingRequest`], which lends its bytes, and a [`RingReply`]. When
//! both are dropped, the entry returns to its thread, which commits the answer.
//!
//! [`RingReply`]: super::reply::RingReply

use super::{
    mail::Mail,
    parse::{self, ARGUMENTS, HEADER, RequestHeader},
};
use crate::errno::UNANSWERED;
use content::Result;
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

/// Offsets within `fuse_uring_req_header`, which consists of the request's and answer's headers, the
/// arguments, and the ring's own data.
const ARGUMENTS_AT: usize = 128;
const RING_AT: usize = 256;
/// Length of that header in bytes.
const HEADER_LEN: usize = 288;
/// Offset of the payload, aligned to a page.
const PAYLOAD_AT: usize = 4096;
/// Payloads up to this size in bytes stay resident.
pub const SMALL_PAYLOAD: usize = 128 << 10;

/// An answer to be committed.
pub enum Answered {
    /// Bytes to copy into the payload.
    Bytes(Vec<u8>),
    /// This many bytes are already in the payload.
    InPlace(usize),
    /// A positive errno.
    Error(i32),
}

/// Memory for one request of a queue.
pub struct RingEntry {
    start: *mut u8,
    /// Header and payload, in the form that the kernel reads. It reads this when it takes the command,
    /// which may be later.
    parts: [libc::iovec; 2],
    /// Maximum size of a payload in bytes.
    capacity: usize,
    /// Index among the entries of its thread.
    index: usize,
    /// The kernel's queue.
    pub queue: u16,
    mail: Arc<Mail>,
    /// Number of owners that the request has.
    hands: AtomicUsize,
    /// Locked while the payload is written.
    answer: Mutex<Option<Answered>>,
    /// Bytes of the payload that are lent out.
    lent: AtomicUsize,
    /// Bytes of the payload that were used since it was last wiped.
    touched: AtomicUsize,
}

// SAFETY: only the ring's thread accesses the memory while the entry belongs to it or is idle. Otherwise
// only the two owners of a request do: `RingRequest` only reads, and `put` writes only where nothing is lent.
unsafe impl Send for RingEntry {}
// SAFETY: as above.
unsafe impl Sync for RingEntry {}

impl RingEntry {
    /// Creates an entry for payloads of up to `capacity` bytes. It uses no memory before its first use.
    ///
    /// # Errors
    /// If the address space is exhausted.
    pub fn new(capacity: usize, index: usize, queue: u16, mail: Arc<Mail>) -> io::Result<Arc<RingEntry>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let len = PAYLOAD_AT + capacity;
        // SAFETY: a new mapping, at an address chosen by the kernel.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        // SAFETY: the mapping was just created. If the advice fails, the memory is only included in core
        // dumps.
        let _ = unsafe { madvise(start, len, Advice::LinuxDontDump) };
        let start: *mut u8 = start.cast();
        let part = |at: usize, len: usize| libc::iovec {
            iov_base: start.wrapping_add(at).cast::<c_void>(),
            iov_len: len,
        };
        Ok(Arc::new(RingEntry {
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

    /// Header and payload, in the form that the kernel reads. Their addresses are stable for the entry's
    /// lifetime.
    pub fn parts(&self) -> &[libc::iovec; 2] {
        &self.parts
    }

    /// Takes the request that the kernel has put here. Called by the ring's thread, once for each
    /// completion.
    pub fn take(self: &Arc<Self>) -> RingRequest {
        self.hands.store(2, Ordering::Relaxed);
        *self.answer.lock() = None;
        let arguments = self.read::<ARGUMENTS>(ARGUMENTS_AT);
        let size = u32::from_ne_bytes(self.read(RING_AT + 16)) as usize;
        let size = size.min(self.capacity);
        self.touched.fetch_max(size, Ordering::Relaxed);
        let header = parse::header(&self.read::<HEADER>(0));
        // Written data is lent in place, because a write's answer does not use the payload.
        self.lent.store(if header.opcode == parse::WRITE { size } else { 0 }, Ordering::Relaxed);
        let copy = (header.opcode != parse::WRITE).then(|| Zeroizing::new(self.payload(size).to_vec()));
        RingRequest { entry: self.clone(), header, arguments, size, copy }
    }

    /// Writes the answer in the kernel's format, and returns the ID under which to commit it. Called by
    /// the ring's thread, once for each request that was reported as answered.
    pub fn settle(&self) -> u64 {
        let (mut error, mut len) = (0, 0);
        match self.answer.lock().take() {
            Some(Answered::Bytes(bytes)) => {
                self.write(PAYLOAD_AT, &bytes);
                len = bytes.len();
            }
            Some(Answered::InPlace(bytes)) => len = bytes,
            Some(Answered::Error(number)) => error = -number,
            // The answer was lost, for example through a panic.
            None => error = -UNANSWERED.code(),
        }
        self.touched.fetch_max(len, Ordering::Relaxed);
        // `fuse_out_header` without the ID, which is still there from the request.
        let whole = 16 + len as u32; // A payload has a few MiB at most.
        self.write(0, &[whole.to_ne_bytes(), error.to_ne_bytes()].concat());
        self.write(RING_AT + 16, &(len as u32).to_ne_bytes());
        u64::from_ne_bytes(self.read(RING_AT + 8))
    }

    /// Records an answer that `put` or `fill` has not recorded. Called by the reply.
    pub fn answer(&self, answer: Answered) {
        *self.answer.lock() = Some(answer);
    }

    /// Copies an answer into the payload. False if it does not fit, or if the payload is lent out.
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

    /// Lets `fill` write an answer of at most `len` bytes into the payload. The answer has the length
    /// that `fill` returns. False if `fill` returned `None`, if the answer does not fit, or if the
    /// payload is lent out.
    ///
    /// # Errors
    /// Those of `fill`. No answer is recorded then.
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
        // SAFETY: inside the mapping, and nothing of it is lent. While the answer is locked, nothing else
        // writes there.
        let out = unsafe { slice::from_raw_parts_mut(self.start.add(PAYLOAD_AT), len) };
        let filled = fill(out)?.map(|filled| filled.min(len));
        *answer = filled.map(Answered::InPlace);
        Ok(filled.is_some())
    }

    /// Wipes leftovers of earlier requests in the entry of a waiting request. False if that request is
    /// already answered: the entry will soon be idle.
    pub fn wipe_behind(&self) -> bool {
        let answer = self.answer.lock();
        let lent = self.lent.load(Ordering::Relaxed);
        let touched = self.touched.load(Ordering::Relaxed).max(lent);
        if answer.is_none() {
            self.write(PAYLOAD_AT + lent, &vec![0; touched - lent]);
        }
        answer.is_none()
    }

    /// Maximum size of a payload in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Called by each owner when it drops the request.
    pub fn leave(&self) {
        if self.hands.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.mail.done(self.index);
        }
    }

    /// Whether the entry holds more memory than a small payload needs.
    pub fn is_large(&self) -> bool {
        self.touched.load(Ordering::Relaxed) > SMALL_PAYLOAD
    }

    /// Returns the memory to the system, which discards the content. Called by the ring's thread for an
    /// idle entry.
    pub fn empty(&self) {
        if self.touched.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        // SAFETY: the entry's own mapping. The kernel is not writing to it, see above, and finds zeros
        // from now on.
        let _ = unsafe { madvise(self.start.cast(), PAYLOAD_AT + self.capacity, Advice::LinuxDontNeed) };
    }

    fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= HEADER_LEN);
        // SAFETY: inside the mapping. While the entry holds a request, the kernel does not write.
        unsafe { self.start.add(at).cast::<[u8; N]>().read_unaligned() }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= PAYLOAD_AT + self.capacity);
        // SAFETY: inside the mapping, and `bytes` cannot overlap it: only written data is lent from the
        // payload, and `put` refuses those entries; `settle` is called when nothing is lent any more.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) }
    }

    fn payload(&self, size: usize) -> &[u8] {
        assert!(size <= self.capacity);
        // SAFETY: inside the mapping. Lent only to a `RingRequest`, which keeps the entry from the kernel.
        // Nothing else writes to the payload meanwhile: see `write`.
        unsafe { slice::from_raw_parts(self.start.add(PAYLOAD_AT), size) }
    }
}

impl Drop for RingEntry {
    fn drop(&mut self) {
        // SAFETY: the entry's own mapping, of which nothing is lent any more. The ring is gone: it has a
        // reference to each entry, and is closed before it drops them.
        let _ = unsafe { munmap(self.start.cast(), PAYLOAD_AT + self.capacity) };
    }
}

/// A received request.
pub struct RingRequest {
    pub(super) entry: Arc<RingEntry>,
    /// The header, common to all requests.
    pub header: RequestHeader,
    /// Memory for its arguments.
    pub arguments: [u8; ARGUMENTS],
    size: usize,
    /// Wiped on drop, because it may contain the value of an extended attribute.
    copy: Option<Zeroizing<Vec<u8>>>,
}

impl RingRequest {
    /// The payload: names, values, or data to write.
    pub fn payload(&self) -> &[u8] {
        match &self.copy {
            Some(copy) => copy,
            None => self.entry.payload(self.size),
        }
    }
}

impl Drop for RingRequest {
    fn drop(&mut self) {
        self.entry.leave();
    }
}
