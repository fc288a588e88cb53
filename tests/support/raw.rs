//! Shared memory mappings of files, close(2), and asynchronous writes. The only unsafe code in the tests.

use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};
use std::{
    ffi::c_void,
    fs::File,
    io,
    os::{
        fd::{AsRawFd, IntoRawFd},
        unix::fs::FileExt,
    },
    ptr,
};

/// A shared mapping of a range of a file.
pub struct Mapping {
    start: *mut c_void,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes (at least 1) at `offset`, a multiple of 4096. The range must stay within the file
    /// for as long as the mapping is used.
    pub fn new(file: &File, offset: u64, len: usize, write: bool) -> io::Result<Mapping> {
        let rights = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses an unused address, so no other memory of the process is affected.
        let start = unsafe { mmap(ptr::null_mut(), len, rights, MapFlags::SHARED, file, offset)? };
        Ok(Mapping { start, len })
    }

    /// Makes the kernel load the whole mapping into memory. Returns an error where an access would raise
    /// SIGBUS.
    pub fn populate(&self, write: bool) -> io::Result<()> {
        let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        // SAFETY: the range is the whole mapping, and its content does not change.
        unsafe { madvise(self.start, self.len, advice) }.map_err(io::Error::from)
    }

    /// Copies bytes out of the mapping.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        assert!(at + out.len() <= self.len);
        // SAFETY: the range is within the mapping, and `out` is separate memory.
        unsafe { ptr::copy_nonoverlapping(self.start.cast::<u8>().add(at), out.as_mut_ptr(), out.len()) }
    }

    /// Copies bytes into the mapping, which must be writable.
    pub fn write(&self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.len);
        // SAFETY: the range is within the mapping, which is writable and not a Rust object.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.start.cast::<u8>().add(at), data.len()) }
    }

    /// Writes the whole mapping to a file, directly from the mapping. Nothing may change it meanwhile.
    pub fn write_to(&self, file: &File, offset: u64) -> io::Result<()> {
        // SAFETY: the range is the whole mapping, and no other slice of it exists.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.cast::<u8>(), self.len) };
        file.write_all_at(bytes, offset)
    }

    /// Writes changes back to the file.
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

/// Closes a file and returns the result of close(2).
pub fn close(file: File) -> io::Result<()> {
    let fd = file.into_raw_fd();
    // SAFETY: its only owner has just given up the descriptor.
    let result = unsafe { libc::close(fd) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Argument of io_submit(2).
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// Result of io_getevents(2).
#[repr(C)]
#[derive(Clone, Default)]
struct IoEvent {
    data: u64,
    request: u64,
    result: i64,
    result2: i64,
}

/// Concurrent asynchronous writes (io_submit(2)), as databases and virtual machines issue them.
pub struct Aio(libc::c_ulong);

impl Aio {
    const PWRITE: u16 = 1;

    /// A context for up to `most` concurrent writes.
    pub fn new(most: usize) -> io::Result<Aio> {
        let mut context = 0;
        // SAFETY: the kernel stores the context's number.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, most, &raw mut context) };
        if made == 0 { Ok(Aio(context)) } else { Err(io::Error::last_os_error()) }
    }

    /// Writes `data` in pieces of `piece` bytes, all concurrently, and waits until all are done.
    pub fn write_all(&self, file: &File, data: &[u8], piece: usize) -> io::Result<()> {
        let requests: Vec<Iocb> = data
            .chunks(piece)
            .enumerate()
            .map(|(at, part)| Iocb {
                opcode: Aio::PWRITE,
                fd: file.as_raw_fd().cast_unsigned(),
                buffer: part.as_ptr() as u64,
                len: part.len() as u64,
                offset: (at * piece) as i64,
                data: part.len() as u64,
                ..Iocb::default()
            })
            .collect();
        let pointers: Vec<*const Iocb> = requests.iter().map(ptr::from_ref).collect();
        let mut events = vec![IoEvent::default(); requests.len()];
        let count = requests.len() as libc::c_long;
        // SAFETY: the requests point into `data`, which stays borrowed until all of them are done, below.
        let begun = unsafe { libc::syscall(libc::SYS_io_submit, self.0, count, pointers.as_ptr()) };
        if begun < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: there is room for as many events as are waited for.
        let done = unsafe {
            let none = ptr::null_mut::<libc::timespec>();
            libc::syscall(libc::SYS_io_getevents, self.0, begun, begun, events.as_mut_ptr(), none)
        };
        assert_eq!(done, begun, "every write that was begun is waited for");
        assert_eq!(begun, count, "the context has room for all");
        match events.iter().find(|event| event.result != event.data.cast_signed()) {
            None => Ok(()),
            Some(failed) => Err(io::Error::from_raw_os_error(-failed.result as i32)),
        }
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nothing is in flight in it.
        let _ = unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}
