//! Queues of work on the device, and events to wait for.

use super::{CudaContext, DeviceMemory, Kernel, Registered, Result, check};
use cudarc::driver::sys;
use std::{
    ffi::{c_uint, c_void},
    ptr,
    sync::Arc,
};

/// How a kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Number of blocks.
    pub blocks: u32,
    /// Threads per block.
    pub threads: u32,
    /// Bytes of dynamic shared memory per block.
    pub shared: u32,
}

/// A queue of work on the device.
pub struct Stream {
    raw: sys::CUstream,
    context: Arc<CudaContext>,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// Creates an empty stream.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(context: &Arc<CudaContext>) -> Result<Self> {
        context.enter()?;
        let (mut raw, flags) = (ptr::null_mut(), sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint);
        // SAFETY: writes a handle to a live variable.
        unsafe { call!(cuStreamCreate(&mut raw, flags))? };
        Ok(Stream { raw, context: context.clone() })
    }

    /// Submits a copy of `len` bytes from `from` to offset `at` of `to`.
    ///
    /// # Safety
    /// Until the stream has done it, `from` must be valid for `len` bytes, and nothing may write them.
    ///
    /// # Errors
    /// The driver's error, including failures of earlier work.
    pub unsafe fn upload(&self, from: *const u8, to: &DeviceMemory, at: usize, len: usize) -> Result<()> {
        assert!(to.holds(at, len), "an upload beyond the memory"); // invariant: sizes come from one plan
        // SAFETY: the caller's guarantee, and the bounds just checked.
        unsafe { call!(cuMemcpyHtoDAsync_v2(to.address(at), from.cast(), len, self.raw)) }
    }

    /// Submits a copy of `len` bytes from offset `at` of `from` to `to`.
    ///
    /// # Safety
    /// Until the stream has done it, `to` must be valid for `len` bytes, and nothing else may access them.
    ///
    /// # Errors
    /// As `upload`.
    pub unsafe fn download(&self, from: &DeviceMemory, at: usize, to: *mut u8, len: usize) -> Result<()> {
        assert!(from.holds(at, len), "a download beyond the memory"); // invariant: sizes come from one plan
        // SAFETY: as in `upload`.
        unsafe { call!(cuMemcpyDtoHAsync_v2(to.cast(), from.address(at), len, self.raw)) }
    }

    /// Submits zeroing of the `len` bytes at offset `at` of `memory`.
    ///
    /// # Errors
    /// As `upload`.
    pub fn clear(&self, memory: &DeviceMemory, at: usize, len: usize) -> Result<()> {
        assert!(memory.holds(at, len), "clearing beyond the memory"); // invariant: sizes come from one plan
        // SAFETY: the bounds were checked; stream order keeps it after earlier work.
        unsafe { call!(cuMemsetD8Async(memory.address(at), 0, len, self.raw)) }
    }

    /// Submits a kernel. `numbers` are its parameters, of 64 or 32 bits each.
    ///
    /// # Safety
    /// The parameters must satisfy the kernel's contract, and all memory that it accesses must stay valid
    /// until it is done.
    ///
    /// # Errors
    /// As `upload`.
    pub unsafe fn launch(&self, kernel: &Kernel, geometry: Geometry, numbers: &mut [u64]) -> Result<()> {
        // A 32-bit parameter is read from the lower half: host and device are both little-endian.
        let mut places: Vec<*mut c_void> =
            numbers.iter_mut().map(|number| ptr::from_mut(number).cast()).collect();
        let (Geometry { blocks, threads, shared }, none) = (geometry, ptr::null_mut());
        // SAFETY: the driver reads the parameters during the call; the caller guarantees the rest.
        unsafe {
            call!(cuLaunchKernel(
                kernel.raw,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                shared,
                self.raw,
                places.as_mut_ptr(),
                none,
            ))
        }
    }

    /// Submits a write of `number` to the four bytes of `memory` at `at`, a multiple of four. A reader that
    /// sees the number also sees everything that the stream wrote before.
    ///
    /// # Errors
    /// As `upload`.
    pub fn write_number(&self, memory: &Registered, at: usize, number: u32) -> Result<()> {
        assert!(at.is_multiple_of(4) && at + 4 <= memory.len(), "a number beyond the memory"); // invariant: one plan
        // SAFETY: within the memory, as just checked, and aligned.
        unsafe { call!(cuStreamWriteValue32_v2(self.raw, memory.address() + at as u64, number, 0)) }
    }

    /// Submits a wait for `event`, as last recorded; later work of the stream starts after it.
    ///
    /// # Errors
    /// As `upload`.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        // SAFETY: both are alive.
        unsafe { call!(cuStreamWaitEvent(self.raw, event.raw, 0)) }
    }

    /// Records `event`: it happens once all earlier work of the stream is done.
    ///
    /// # Errors
    /// As `upload`.
    pub fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: both are alive.
        unsafe { call!(cuEventRecord(event.raw, self.raw)) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.cleans_up() {
            // SAFETY: created by `new`; the driver releases it when its work is done.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// A point in a stream that a thread can wait for without spinning.
pub struct Event {
    raw: sys::CUevent,
    context: Arc<CudaContext>,
}

// SAFETY: events may be used from any thread, and from several at a time.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event. Until it is recorded it counts as having happened.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(context: &Arc<CudaContext>) -> Result<Self> {
        use sys::CUevent_flags::{CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING};
        context.enter()?;
        let (mut raw, flags) =
            (ptr::null_mut(), CU_EVENT_BLOCKING_SYNC as c_uint | CU_EVENT_DISABLE_TIMING as c_uint);
        // SAFETY: writes a handle to a live variable.
        unsafe { call!(cuEventCreate(&mut raw, flags))? };
        Ok(Event { raw, context: context.clone() })
    }

    /// Whether the event has happened.
    ///
    /// # Errors
    /// The driver's error, from the work before it.
    pub fn has_happened(&self) -> Result<bool> {
        self.context.enter()?;
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(self.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check("cuEventQuery", result).map(|()| true),
        }
    }

    /// Waits until the event has happened, without a time limit.
    ///
    /// # Errors
    /// The driver's error, from the work before it.
    pub fn wait(&self) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the event is alive.
        unsafe { call!(cuEventSynchronize(self.raw)) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.cleans_up() {
            // SAFETY: created by `new`.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}
