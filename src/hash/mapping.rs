//! Memory in which the bytes of a file are seen. Others may shorten the file at any time, and whoever then looks at
//! what is gone is sent SIGBUS, which ends a program: the handler here puts zeros in the place of such a mapping and
//! marks it as lost. Every other SIGBUS takes the way that it would have taken without the handler.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::{
    ffi::{c_int, c_void},
    mem,
    os::fd::BorrowedFd,
    ptr, slice,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// Mappings at the same time, at most; who wants one more has to read.
const PLACES: usize = 1024;

/// Where mappings lie, for the handler.
static TAKEN: [Place; PLACES] = [const { Place::new() }; PLACES];

/// Who was sent SIGBUS before.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Where a mapping lies. It is there while `len` is not zero.
struct Place {
    taken: AtomicBool,
    start: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
}

impl Place {
    const fn new() -> Self {
        Place {
            taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
        }
    }

    /// A free one, for this mapping.
    fn take(start: usize, len: usize) -> Option<&'static Self> {
        let place = TAKEN.iter().find(|place| !place.taken.swap(true, Ordering::AcqRel))?;
        place.lost.store(false, Ordering::Relaxed);
        place.start.store(start, Ordering::Relaxed);
        place.len.store(len, Ordering::Release);
        Some(place)
    }

    fn free(&self) {
        self.len.store(0, Ordering::Release);
        self.taken.store(false, Ordering::Release);
    }

    fn holds(&self, address: usize) -> bool {
        let len = self.len.load(Ordering::Acquire);
        address.wrapping_sub(self.start.load(Ordering::Relaxed)) < len
    }

    /// Puts zeros in the place of the mapping; whether that was done. Called by the handler.
    fn lose(&self) -> bool {
        let (start, len) = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Acquire));
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the mapping is there, for the thread that was interrupted was looking at it, and its memory stays
        // readable. A system call may be made in a handler, and this one leaves `errno` alone.
        let zeros =
            unsafe { mmap_anonymous(ptr::with_exposed_provenance_mut(start), len, ProtFlags::READ, flags) };
        self.lost.store(true, Ordering::Release);
        zeros.is_ok()
    }
}

/// Bytes of a file, mapped; they change when the file does.
pub(super) struct Mapping {
    start: *mut c_void,
    len: usize,
    place: &'static Place,
}

// SAFETY: memory that is only read, and that any thread may unmap.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on, a multiple of the page size. Nothing if the system or its
    /// filesystem does not do that, or too many are mapped.
    pub(super) fn new(file: BorrowedFd, offset: u64, len: usize) -> Option<Self> {
        static GUARDED: OnceLock<bool> = OnceLock::new();
        if !*GUARDED.get_or_init(guard) {
            return None;
        }
        // SAFETY: new memory, at an address that the system chooses.
        let start =
            unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, offset) }.ok()?;
        let Some(place) = Place::take(start.expose_provenance(), len) else {
            // SAFETY: mapped just now, and nobody looks at it.
            let _ = unsafe { munmap(start, len) };
            return None;
        };
        Some(Mapping { start, len, place })
    }

    /// The bytes; zeros once they are lost. What is computed from them may be of no state that the file ever had, as
    /// if it had been read while others wrote: nothing is to be decided by a byte that is looked at twice.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped and readable as long as this lives: whatever cannot be had is replaced by zeros. Others may
        // change the bytes: whoever hashes them loads each, and takes no branch and no address from them.
        unsafe { slice::from_raw_parts(self.start.cast(), self.len) }
    }

    /// Whether bytes that were looked at were not the file's, because it became shorter or could not be read.
    pub(super) fn is_lost(&self) -> bool {
        self.place.lost.load(Ordering::Acquire)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Before the address can be another's.
        self.place.free();
        // SAFETY: this mapping's own memory, which nobody looks at any more. Its pages are given back first: that, unlike
        // unmapping them, keeps no other thread from mapping or touching its own.
        unsafe {
            let _ = madvise(self.start, self.len, Advice::LinuxDontNeed);
            let _ = munmap(self.start, self.len);
        }
    }
}

/// Installs the handler; whether that was done.
fn guard() -> bool {
    // SAFETY: zeros are an action without flags and mask; both actions live while the system reads or writes them,
    // and the handler does nothing that a handler must not.
    unsafe {
        let mut previous: libc::sigaction = mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous) != 0 {
            return false;
        }
        PREVIOUS.get_or_init(|| previous);
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) == 0
    }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the system gives a handler with SA_SIGINFO what it has to say.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // What is sent by a program has no positive code.
    let by_fault = code > 0;
    if by_fault && TAKEN.iter().any(|place| place.holds(address) && place.lose()) {
        return;
    }
    // SAFETY: both calls may be made in a handler. The fault happens again once this returns; what was sent is sent
    // again, and comes when this returns.
    unsafe {
        if let Some(previous) = PREVIOUS.get() {
            libc::sigaction(signal, previous, ptr::null_mut());
        }
        if !by_fault {
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::{
        env,
        os::{
            fd::{AsFd, OwnedFd},
            unix::process::ExitStatusExt,
        },
        process::Command,
        thread,
        time::Duration,
    };

    /// A file in memory, with so many bytes.
    fn file(len: usize) -> OwnedFd {
        let file = memfd_create("bytes", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(rustix::io::pwrite(&file, &vec![7; len], 0).unwrap(), len);
        file
    }

    #[test]
    fn what_is_cut_off_is_zeros_and_marked() {
        let (one, other) = (file(1 << 20), file(1 << 20));
        let [lost, kept] =
            [&one, &other].map(|file| Mapping::new(file.as_fd(), 4096, (1 << 20) - 4096).unwrap());
        assert!(lost.bytes().iter().chain(kept.bytes()).all(|byte| *byte == 7));
        ftruncate(&one, 1 << 19).unwrap();
        assert_eq!(lost.bytes()[(1 << 19) - 4096..], [0; 1 << 19]);
        assert!(lost.is_lost() && !kept.is_lost());
        assert!(kept.bytes().iter().all(|byte| *byte == 7));
        drop(lost);
        // Its place is another's now, and the next is lost as well.
        let again = Mapping::new(one.as_fd(), 0, 1 << 19).unwrap();
        assert!(again.bytes().iter().all(|byte| *byte == 7) && !again.is_lost());
        ftruncate(&one, 0).unwrap();
        assert!(again.bytes().iter().all(|byte| *byte == 0) && again.is_lost());
    }

    /// Run alone, in a process of its own.
    #[test]
    #[ignore = "ends its process"]
    fn another_fault() {
        let file = file(4096);
        let _guarded = Mapping::new(file.as_fd(), 0, 4096).unwrap();
        match env::var("WARPCRYPT_FAULT").as_deref() {
            // The standard library's handler, which was there before, takes the first.
            Ok("sent") => loop {
                let itself = rustix::process::getpid();
                rustix::process::kill_process(itself, rustix::process::Signal::BUS).unwrap();
                thread::sleep(Duration::from_millis(1));
            },
            _ => {
                // SAFETY: new memory, which is only read.
                let beyond = unsafe {
                    mmap(ptr::null_mut(), 8192, ProtFlags::READ, MapFlags::SHARED, &file, 0)
                        .map(|start| slice::from_raw_parts(start.cast::<u8>(), 8192))
                };
                assert_eq!(beyond.unwrap()[5000], 0, "a page that the file does not have");
            }
        }
    }

    #[test]
    fn every_other_bus_error_ends_the_program() {
        for cause in ["sent", "met"] {
            let mut program = Command::new(env::current_exe().unwrap());
            let name = "hash::mapping::tests::another_fault";
            let done = program.args(["--exact", name, "--ignored"]).env("WARPCRYPT_FAULT", cause).output();
            assert_eq!(done.unwrap().status.signal(), Some(libc::SIGBUS), "{cause}");
        }
    }
}
