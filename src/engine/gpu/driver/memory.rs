//! Memory of the device, and memory of the host that the device reads and writes.

use super::{Context, DriverError, Result, check};
use cudarc::driver::sys;
use std::{
    alloc::{self, Layout},
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};
use zeroize::Zeroize;

/// Large memory begins at a multiple of this, so that it can lie in few pages: the device then copies faster.
const HUGE_PAGE: usize = 2 << 20;

/// Memory of the device, 256-byte aligned.
pub struct DeviceMemory {
    address: sys::CUdeviceptr,
    len: usize,
    context: Arc<Context>,
}

impl DeviceMemory {
    /// Bytes with unspecified content.
    ///
    /// # Errors
    /// What the driver says: out of memory.
    pub fn new(context: &Arc<Context>, len: usize) -> Result<Self> {
        context.enter()?;
        let mut address = 0;
        // SAFETY: writes an address to a live place.
        unsafe { call!(cuMemAlloc_v2(&mut address, len))? };
        Ok(DeviceMemory { address, len, context: context.clone() })
    }

    /// The address of the byte at `at`, as kernels take it.
    pub fn address(&self, at: usize) -> u64 {
        self.address + at as u64
    }

    /// The context that it belongs to.
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Whether `len` bytes from `at` on are in it.
    pub(super) fn holds(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.context.cleans_up() {
            // SAFETY: allocated by `new`. The driver waits for what still uses it.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Page-locked memory of the host, page-aligned and zeroed: the device reads and writes it directly, and the
/// CPU reads it at full speed. Stays valid after its context is gone; wiped on drop.
pub struct HostMemory {
    start: NonNull<u8>,
    /// Where the device finds it.
    mapped: sys::CUdeviceptr,
    layout: Layout,
    context: Weak<Context>,
    given_up: Arc<AtomicBool>,
}

// SAFETY: plain memory, owned.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates and locks `len` bytes, 1 at least.
    ///
    /// # Errors
    /// What the driver says: out of memory.
    pub fn new(context: &Arc<Context>, len: usize) -> Result<Self> {
        context.enter()?;
        let refused = DriverError::Call { call: "cuMemHostRegister_v2", code: 2, name: "no memory".into() };
        let align = if len < HUGE_PAGE { 4096 } else { HUGE_PAGE };
        let layout = Layout::from_size_align(len.max(1), align).map_err(|_| refused.clone())?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc::alloc(layout) }).ok_or(refused)?;
        // SAFETY: changes how the kernel backs these bytes, not what they are; they are then all written.
        unsafe {
            // Without huge pages it is memory all the same.
            let _ =
                rustix::mm::madvise(start.as_ptr().cast(), layout.size(), rustix::mm::Advice::LinuxHugepage);
            start.as_ptr().write_bytes(0, layout.size());
        }
        // Freed by its drop if it cannot be locked: then the context of nothing is asked to unlock it.
        let given_up = context.given_up.clone();
        let mut memory = HostMemory { start, mapped: 0, layout, context: Weak::new(), given_up };
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the bytes are ours, and unlocked before they are freed.
        unsafe { call!(cuMemHostRegister_v2(start.as_ptr().cast(), layout.size(), flags))? };
        memory.context = Arc::downgrade(context);
        // SAFETY: just registered as mapped; writes an address to a live place.
        unsafe { call!(cuMemHostGetDevicePointer_v2(&mut memory.mapped, start.as_ptr().cast(), 0))? };
        Ok(memory)
    }

    /// The address of its first byte, as kernels of its context take it.
    pub fn address(&self) -> u64 {
        self.mapped
    }

    /// Whether it was locked for this context.
    pub fn is_of(&self, context: &Arc<Context>) -> bool {
        ptr::eq(self.context.as_ptr(), Arc::as_ptr(context))
    }
}

impl HostMemory {
    /// Whether the two were locked for the same context.
    pub fn is_beside(&self, other: &HostMemory) -> bool {
        self.context.ptr_eq(&other.context)
    }

    /// Whether the context that it was locked for is gone, or given up: no device reaches it any more.
    pub fn is_stale(&self) -> bool {
        self.context.strong_count() == 0 || self.given_up.load(Ordering::Acquire)
    }
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
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if self.given_up.load(Ordering::Acquire) {
            return;
        }
        self.zeroize();
        if let Some(context) = self.context.upgrade()
            && context.cleans_up()
        {
            // SAFETY: locked by `new` in this context.
            let _ = unsafe { sys::cuMemHostUnregister(self.start.as_ptr().cast()) };
        }
        // SAFETY: allocated by `new` with this layout.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}
