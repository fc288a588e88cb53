//! Memory that the program shares with a GPU's process: an unnamed file that neither side can shrink.

use super::wipe::wipe;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{MemfdFlags, SealFlags},
    io::Errno,
    mm::{Advice, MapFlags, ProtFlags},
};
use std::{
    ffi::c_void,
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
    sync::atomic::AtomicU32,
};

/// Without these seals the other side could remove pages, and touching them would kill this process.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Such a file, mapped page-aligned into this process's address space.
pub struct Mapping {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: plain memory, owned; the address alone gives no access.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a received file of exactly `len` bytes.
    ///
    /// # Errors
    /// `INVAL` if the file has another length or lacks the seals, or the system's error.
    pub fn of(file: &OwnedFd, len: usize) -> Result<Self, Errno> {
        let whole = u64::try_from(rustix::fs::fstat(file)?.st_size) == Ok(len as u64);
        if !whole || len == 0 || !rustix::fs::fcntl_get_seals(file)?.contains(SEALS) {
            return Err(Errno::INVAL);
        }
        Mapping::new(file, len)
    }

    fn new(file: &OwnedFd, len: usize) -> Result<Self, Errno> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), len, access, flags, file.as_fd(), 0)? };
        let mapping = Mapping { start: NonNull::new(start).ok_or(Errno::NOMEM)?, len };
        // SAFETY: keeps the pages out of core dumps and changes no byte. If it is refused, dumps are
        // disabled anyway.
        let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxDontDump) };
        Ok(mapping)
    }

    /// An empty mapping.
    fn none() -> Self {
        Mapping { start: NonNull::dangling(), len: 0 }
    }

    /// First byte. A caller that reads or writes here must know what the other process does meanwhile.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, or empty, which the system refuses; no borrow of it remains. The driver
        // keeps pages that a device is still writing until it is done.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.len) };
    }
}

/// Memory made to be handed to the other process; zeroed at first and wiped on drop.
pub struct SharedMemory(Mapping);

impl SharedMemory {
    /// `len` bytes, at least one, and the file to hand over.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(len: usize) -> Result<(Self, OwnedFd), Errno> {
        let len = len.max(1);
        let file = make_file(|flags| rustix::fs::memfd_create("gpu", flags))?;
        rustix::fs::ftruncate(&file, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok((SharedMemory(Mapping::new(&file, len)?), file))
    }

    /// Takes the mapping and leaves an empty one.
    pub fn take(&mut self) -> Self {
        SharedMemory(std::mem::replace(&mut self.0, Mapping::none()))
    }

    /// The number in the four bytes at `at`, a multiple of four. The other process may write it
    /// concurrently.
    ///
    /// # Panics
    /// If it is out of range or unaligned.
    pub fn number(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.0.len);
        // SAFETY: within the mapping, which is page-aligned, so it is aligned; it lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr().add(at).cast()) }
    }
}

impl Deref for SharedMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped with this length. The other process writes only where it was told to, and the
        // caller that told it waits and does not read there.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.0.len()) }
    }
}

impl DerefMut for SharedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), self.0.len()) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        wipe(self);
    }
}

/// Creates a file that can be sealed and never executed. Kernels before 6.3 do not support the latter.
fn make_file(create: impl Fn(MemfdFlags) -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match create(flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => create(flags),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, sync::atomic::Ordering};

    /// Calls `make_file` with a kernel that rejects the flags `refused` with `error`. Returns the flags of
    /// each call, and the result.
    fn asked(refused: MemfdFlags, error: Errno) -> (Vec<MemfdFlags>, Result<OwnedFd, Errno>) {
        let asked = RefCell::default();
        let made = make_file(|flags: MemfdFlags| {
            Vec::push(&mut asked.borrow_mut(), flags);
            if flags.intersects(refused) {
                return Err(error);
            }
            rustix::fs::memfd_create("test", flags - MemfdFlags::NOEXEC_SEAL)
        });
        (asked.into_inner(), made)
    }

    #[test]
    fn files_are_made_so_that_they_are_never_executed() {
        let (asked, made) = asked(MemfdFlags::empty(), Errno::INVAL);
        assert!(made.is_ok() && asked.len() == 1 && asked[0].contains(MemfdFlags::NOEXEC_SEAL), "{asked:?}");
    }

    #[test]
    fn a_kernel_that_does_not_know_that_makes_them_all_the_same() {
        let (calls, made) = asked(MemfdFlags::NOEXEC_SEAL, Errno::INVAL);
        assert!(made.is_ok() && calls.len() == 2, "{calls:?}");
        let needed = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        assert_eq!(calls[1], needed);
        // Only EINVAL means that the flag is unknown.
        let (calls, made) = asked(needed, Errno::MFILE);
        assert!(made.is_err_and(|error| error == Errno::MFILE) && calls.len() == 1, "{calls:?}");
    }

    #[test]
    fn both_sides_see_the_same_bytes() {
        let (mut memory, file) = SharedMemory::new(10_000).expect("memory");
        assert!(memory.len() == 10_000 && memory.iter().all(|byte| *byte == 0));
        memory[9_999] = 7;
        let other = Mapping::of(&file, 10_000).expect("the same");
        // SAFETY: within the mapping, and nothing writes there.
        assert_eq!(unsafe { other.as_ptr().add(9_999).read() }, 7);
        // SAFETY: as above; the address is aligned.
        unsafe { other.as_ptr().add(8).cast::<u32>().write(12) };
        assert_eq!(memory.number(8).load(Ordering::Acquire), 12);
        drop(memory);
        // SAFETY: as above.
        assert_eq!(unsafe { other.as_ptr().add(9_999).read() }, 0, "wiped");
    }

    #[test]
    fn a_file_that_could_shrink_or_has_another_length_is_refused() {
        let (_memory, file) = SharedMemory::new(8192).expect("memory");
        for len in [0, 1, 8191, 8193] {
            assert!(Mapping::of(&file, len).is_err(), "{len}");
        }
        assert!(rustix::fs::ftruncate(&file, 4096).is_err());
        let loose = rustix::fs::memfd_create("loose", MemfdFlags::CLOEXEC).expect("a file");
        rustix::fs::ftruncate(&loose, 8192).expect("longer");
        assert!(Mapping::of(&loose, 8192).is_err());
    }
}
