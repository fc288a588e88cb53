//! Device memory, and host memory that the device reads and writes.

use super::{CudaContext, DriverError, Result, check};
use crate::buffer::Mapping;
use cudarc::driver::sys;
use std::{
    alloc::{self, Layout},
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::Arc,
};
use zeroize::Zeroize;

/// Alignment of large memory, so that it can occupy few pages: the device then copies faster.
const HUGE_PAGE: usize = 2 << 20;

/// Device memory, aligned to 256 bytes.
pub struct DeviceMemory {
    address: sys::CUdeviceptr,
    len: usize,
    context: Arc<CudaContext>,
}

impl DeviceMemory {
    /// Allocates bytes with unspecified content.
    ///
    /// # Errors
    /// The driver's error, such as out of memory.
    pub fn new(context: &Arc<CudaContext>, len: usize) -> Result<Self> {
        context.enter()?;
        let mut address = 0;
        // SAFETY: writes an address to a live variable.
        unsafe { call!(cuMemAlloc_v2(&mut address, len))? };
        Ok(DeviceMemory { address, len, context: context.clone() })
    }

    /// The address of the byte at `at`, in the form that kernels take.
    pub fn address(&self, at: usize) -> u64 {
        self.address + at as u64
    }

    /// Whether the `len` bytes at `at` are within this memory.
    pub fn holds(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.context.cleans_up() {
            // SAFETY: allocated by `new`. The driver waits for work that still uses it.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Host memory that is locked for the device, which reads and writes it directly.
struct PageLock {
    start: NonNull<u8>,
    /// Address on the device.
    mapped: sys::CUdeviceptr,
    context: Arc<CudaContext>,
}

// SAFETY: an address and a handle; neither gives access by itself.
unsafe impl Send for PageLock {}
// SAFETY: as above.
unsafe impl Sync for PageLock {}

impl PageLock {
    /// Locks the `len` bytes at `start`.
    ///
    /// # Safety
    /// They stay mapped until the lock is dropped.
    ///
    /// # Errors
    /// The driver's error, such as out of memory.
    unsafe fn new(context: &Arc<CudaContext>, start: NonNull<u8>, len: usize) -> Result<Self> {
        context.enter()?;
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the caller guarantees that they are unlocked before they are unmapped.
        unsafe { call!(cuMemHostRegister_v2(start.as_ptr().cast(), len, flags))? };
        let mut lock = PageLock { start, mapped: 0, context: context.clone() };
        // SAFETY: just registered as mapped; writes an address to a live variable.
        unsafe { call!(cuMemHostGetDevicePointer_v2(&mut lock.mapped, start.as_ptr().cast(), 0))? };
        Ok(lock)
    }
}

impl Drop for PageLock {
    fn drop(&mut self) {
        if self.context.cleans_up() {
            // SAFETY: locked by `new` in this context.
            let _ = unsafe { sys::cuMemHostUnregister(self.start.as_ptr().cast()) };
        }
    }
}

/// Shared memory that the device reads and writes.
pub struct Registered {
    // Dropped first: locked memory must still be mapped.
    lock: PageLock,
    mapping: Mapping,
}

impl Registered {
    /// Locks the mapping.
    ///
    /// # Errors
    /// The driver's error, such as out of memory.
    pub fn new(context: &Arc<CudaContext>, mapping: Mapping) -> Result<Self> {
        let start = NonNull::new(mapping.as_ptr()).ok_or(refused())?;
        // SAFETY: the mapping is stored beside the lock and dropped after it.
        let lock = unsafe { PageLock::new(context, start, mapping.len())? };
        Ok(Registered { lock, mapping })
    }

    /// The address of its first byte, in the form that kernels take.
    pub fn address(&self) -> u64 {
        self.lock.mapped
    }

    /// First byte in the host's address space.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.as_ptr()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }
}

/// Page-locked memory owned by this process, page-aligned and zeroed. The device reads and writes it
/// directly, and the CPU reads it at full speed. Wiped on drop.
pub struct HostMemory {
    /// `None` only during construction and drop: memory must be unlocked before it is freed.
    lock: Option<PageLock>,
    start: NonNull<u8>,
    layout: Layout,
    context: Arc<CudaContext>,
}

// SAFETY: plain memory, owned.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // A hanging device may still write there.
        if !self.context.is_given_up() {
            self.zeroize();
            self.lock = None;
            // SAFETY: allocated by `new` with this layout.
            unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

impl HostMemory {
    /// Allocates and locks `len` bytes, at least one.
    ///
    /// # Errors
    /// The driver's error, such as out of memory.
    pub fn new(context: &Arc<CudaContext>, len: usize) -> Result<Self> {
        let align = if len < HUGE_PAGE { 4096 } else { HUGE_PAGE };
        let layout = Layout::from_size_align(len.max(1), align).map_err(|_| refused())?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc::alloc(layout) }).ok_or(refused())?;
        // If it cannot be locked, its drop frees it.
        let mut memory = HostMemory { lock: None, start, layout, context: context.clone() };
        // SAFETY: changes how the kernel backs these bytes, not their content; then all of them are
        // written.
        unsafe {
            // Best effort: the memory is usable without huge pages.
            let _ =
                rustix::mm::madvise(start.as_ptr().cast(), layout.size(), rustix::mm::Advice::LinuxHugepage);
            start.as_ptr().write_bytes(0, layout.size());
        }
        // SAFETY: the bytes are stored beside the lock and freed after it.
        memory.lock = Some(unsafe { PageLock::new(context, start, layout.size())? });
        Ok(memory)
    }
}

fn refused() -> DriverError {
    DriverError::Call { call: "cuMemHostRegister_v2", code: 2, name: "no memory".into() }
}

impl Deref for HostMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: allocated with this size and initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for HostMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}
