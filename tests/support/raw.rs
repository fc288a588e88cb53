//! Shared memory mappings of files, and close(2). The only unsafe code of the tests.

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::{
    ffi::c_void,
    fs::File,
    io,
    os::{fd::IntoRawFd, unix::fs::FileExt},
    ptr,
};

/// A shared mapping of a part of a file.
pub struct Mapping {
    start: *mut c_void,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes (at least 1) from `offset`, a multiple of 4096. They must lie inside the file
    /// for as long as the mapping is used.
    pub fn new(file: &File, offset: u64, len: usize, write: bool) -> io::Result<Mapping> {
        let rights = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses an unused place, so no other memory of the process is touched.
        let start = unsafe { mmap(ptr::null_mut(), len, rights, MapFlags::SHARED, file, offset)? };
        Ok(Mapping { start, len })
    }

    /// Copies bytes out.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        assert!(at + out.len() <= self.len);
        // SAFETY: the range lies inside the mapping, and `out` is memory of our own.
        unsafe { ptr::copy_nonoverlapping(self.start.cast::<u8>().add(at), out.as_mut_ptr(), out.len()) }
    }

    /// Copies bytes in; the mapping must be one for writing.
    pub fn write(&self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.len);
        // SAFETY: the range lies inside the mapping, which is writable and not a Rust object.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.start.cast::<u8>().add(at), data.len()) }
    }

    /// Writes all of it to a file, straight from the mapping. Nobody may change it meanwhile.
    pub fn write_to(&self, file: &File, offset: u64) -> io::Result<()> {
        // SAFETY: the range is the whole mapping, of which nobody has another slice.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.cast::<u8>(), self.len) };
        file.write_all_at(bytes, offset)
    }

    /// Writes what was changed to the file.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is the whole mapping.
        unsafe { msync(self.start, self.len, MsyncFlags::SYNC) }.map_err(io::Error::from)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}

/// Closes a file and says what close(2) said.
pub fn close(file: File) -> io::Result<()> {
    let fd = file.into_raw_fd();
    // SAFETY: the descriptor was just given up by its only owner.
    let result = unsafe { libc::close(fd) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
