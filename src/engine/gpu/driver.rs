//! CUDA's driver: the only place that speaks to it. Found at run time, so a machine without one runs the
//! program just the same; every failure is a value.
//!
//! What belongs to a context holds on to it, and frees nothing once the context was given up (`Context::
//! give_up`): a driver that hangs must not be asked for anything more.

use cudarc::driver::sys;
use std::{
    alloc::{self, Layout},
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    ops::{Deref, DerefMut},
    panic::catch_unwind,
    ptr::{self, NonNull},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use zeroize::Zeroize;

/// Oldest driver, as the version of CUDA that it is of (1000 * major + 10 * minor).
const OLDEST: c_int = 12_000;

/// Large memory begins at a multiple of this, so that it can lie in few pages: the device then copies faster.
const HUGE_PAGE: usize = 2 << 20;

/// What is called here; a library that lacks one of these is not used at all.
const FUNCTIONS: [&str; 29] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuCtxCreate_v2",
    "cuCtxDestroy_v2",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemsetD8Async",
    "cuGetErrorName",
];

/// Why the driver cannot be used, or what it answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// No library.
    #[error("there is no NVIDIA driver (libcuda.so.1) on this machine")]
    NoLibrary,
    /// A library that is not what it should be.
    #[error("the library of the NVIDIA driver cannot be used: {0}")]
    BadLibrary(String),
    /// A driver from before the oldest one that the kernels run on.
    #[error("the NVIDIA driver is too old: it is for CUDA {}.{}, and 12.0 is needed", .0 / 1000, .0 % 1000 / 10)]
    TooOld(i32),
    /// A driver without devices.
    #[error("the NVIDIA driver knows no device")]
    NoDevice,
    /// A call failed.
    #[error("{call}: {name} ({code})")]
    Call {
        /// The function of the driver.
        call: &'static str,
        /// Its result.
        code: u32,
        /// The driver's name for it.
        name: String,
    },
    /// No answer in time.
    #[error("the device did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
}

/// Shorthand for this module.
pub type Result<T> = std::result::Result<T, DriverError>;

/// Calls a function of the driver by its name.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => { check(stringify!($name), sys::$name($($argument),*)) };
}

fn check(call: &'static str, result: sys::CUresult) -> Result<()> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(DriverError::Call { call, code: error as u32, name: name_of(error) }),
    }
}

fn name_of(error: sys::CUresult) -> String {
    let mut name: *const c_char = ptr::null();
    // SAFETY: the driver writes a pointer to a constant string, or none.
    unsafe {
        let _ = sys::cuGetErrorName(error, &mut name);
        if name.is_null() { "unknown error".into() } else { CStr::from_ptr(name).to_string_lossy().into() }
    }
}

/// Devices of a driver that is there and new enough; at least one.
///
/// # Errors
/// Why there is none.
pub fn devices() -> Result<usize> {
    // A library that is odd beyond what is checked makes the binding panic: that is a bad library, too.
    catch_unwind(find).unwrap_or_else(|_| Err(DriverError::BadLibrary("it fails on loading".into())))
}

fn find() -> Result<usize> {
    // SAFETY: loads the library by its name and closes it again; it is the system's driver.
    if !unsafe { sys::is_culib_present() } {
        return Err(DriverError::NoLibrary);
    }
    // SAFETY: the library is present; `culib` keeps it loaded for good. Symbols are looked up, not called.
    let library = unsafe { sys::culib() };
    for name in FUNCTIONS {
        // SAFETY: as above.
        if unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
            return Err(DriverError::BadLibrary(format!("it lacks {name}")));
        }
    }
    let (mut version, mut count) = (0, 0);
    // SAFETY: the functions are there, and write to live integers.
    unsafe {
        call!(cuDriverGetVersion(&mut version))?;
        if version < OLDEST {
            return Err(DriverError::TooOld(version));
        }
        match sys::cuInit(0) {
            sys::CUresult::CUDA_ERROR_NO_DEVICE => return Err(DriverError::NoDevice),
            result => check("cuInit", result)?,
        }
        call!(cuDeviceGetCount(&mut count))?;
    }
    usize::try_from(count).ok().filter(|count| *count > 0).ok_or(DriverError::NoDevice)
}

/// A device, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Version of CUDA that the driver is for: 1000 * major + 10 * minor.
    pub driver: i32,
    /// Multiprocessors.
    pub processors: usize,
}

/// A context of our own on one device. Destroyed when the last thing in it is gone.
pub struct Context {
    raw: sys::CUcontext,
    given_up: Arc<AtomicBool>,
    destroyed: AtomicBool,
}

// SAFETY: contexts may be used from any thread; the driver locks what it shares.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// A context on the device of that number, below `devices()`; current on this thread.
    ///
    /// # Errors
    /// What the driver says.
    pub fn open(number: usize) -> Result<(Arc<Context>, Description)> {
        devices()?;
        let (mut device, mut raw, mut name) = (0, ptr::null_mut(), [0 as c_char; 128]);
        let (mut driver, mut processors) = (0, 0);
        let flags = sys::CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC as c_uint;
        let count = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        // SAFETY: `devices` found the functions; each writes to a live place of the size that it is told.
        unsafe {
            call!(cuDeviceGet(&mut device, number as c_int))?;
            call!(cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int - 1, device))?;
            call!(cuDeviceGetAttribute(&mut processors, count, device))?;
            call!(cuDriverGetVersion(&mut driver))?;
            call!(cuCtxCreate_v2(&mut raw, flags, device))?;
        }
        let name = name.map(|c| c as u8);
        let name = String::from_utf8_lossy(name.split(|c| *c == 0).next().unwrap_or_default()).into_owned();
        let description =
            Description { name, driver, processors: usize::try_from(processors).unwrap_or(1).max(1) };
        Ok((
            Arc::new(Context { raw, given_up: Arc::default(), destroyed: AtomicBool::new(false) }),
            description,
        ))
    }

    /// Makes it this thread's current context, which every other call here needs.
    ///
    /// # Errors
    /// What the driver says.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the context lives.
        unsafe { call!(cuCtxSetCurrent(self.raw)) }
    }

    /// Waits for all that was submitted.
    ///
    /// # Errors
    /// What the driver says: also what earlier work failed of.
    pub fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: takes nothing.
        unsafe { call!(cuCtxSynchronize()) }
    }

    /// From here on nothing of this context is freed, not even the host's memory that it may write to, and the
    /// driver is not called to clean up.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// Whether it was given up.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Destroys it now, with all that is in it: afterwards the device touches no memory any more. For a
    /// context that nobody submits to.
    pub fn destroy(&self) {
        if !self.is_given_up() && !self.destroyed.swap(true, Ordering::AcqRel) {
            // SAFETY: the first call; whatever else is in it makes no call from here on (`cleans_up`). An
            // error leaves nothing to do.
            let _ = unsafe { sys::cuCtxDestroy_v2(self.raw) };
        }
    }

    /// Whether to call the driver for cleaning up; enters the context.
    fn cleans_up(&self) -> bool {
        !self.is_given_up() && !self.destroyed.load(Ordering::Acquire) && self.enter().is_ok()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// Loaded kernels.
pub struct Module {
    raw: sys::CUmodule,
    context: Arc<Context>,
}

// SAFETY: modules may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads a fatbin.
    ///
    /// # Errors
    /// What the driver says, for instance that it has no code for this device.
    pub fn load(context: &Arc<Context>, fatbin: &[u8]) -> Result<Arc<Module>> {
        let mut aligned = vec![0u128; fatbin.len().div_ceil(16)];
        for (word, bytes) in aligned.iter_mut().zip(fatbin.chunks(16)) {
            let mut whole = [0; 16];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u128::from_ne_bytes(whole);
        }
        context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the image carries its own length, and is not needed after the call.
        unsafe { call!(cuModuleLoadData(&mut raw, aligned.as_ptr().cast()))? };
        Ok(Arc::new(Module { raw, context: context.clone() }))
    }

    /// The kernel of that name, allowed to take `shared` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// What the driver says.
    pub fn kernel(self: &Arc<Self>, name: &str, shared: usize) -> Result<Kernel> {
        let text = CString::new(name).unwrap_or_default();
        let mut raw = ptr::null_mut();
        self.context.enter()?;
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the module is loaded; the name ends with a zero.
        unsafe {
            call!(cuModuleGetFunction(&mut raw, self.raw, text.as_ptr()))?;
            call!(cuFuncSetAttribute(raw, most, shared as c_int))?;
        }
        Ok(Kernel { raw, shared, _module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.cleans_up() {
            // SAFETY: its kernels hold on to it, so none is left.
            let _ = unsafe { sys::cuModuleUnload(self.raw) };
        }
    }
}

/// An entry point.
pub struct Kernel {
    raw: sys::CUfunction,
    shared: usize,
    _module: Arc<Module>,
}

// SAFETY: functions may be used from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

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

    fn holds(&self, at: usize, len: usize) -> bool {
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
        let mut memory = HostMemory { start, layout, context: Weak::new(), given_up };
        let portable = sys::CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: the bytes are ours, and unlocked before they are freed.
        unsafe { call!(cuMemHostRegister_v2(start.as_ptr().cast(), layout.size(), portable))? };
        memory.context = Arc::downgrade(context);
        Ok(memory)
    }

    /// Whether it was locked for this context.
    pub fn is_of(&self, context: &Arc<Context>) -> bool {
        ptr::eq(self.context.as_ptr(), Arc::as_ptr(context))
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

/// A queue of work on the device.
pub struct Stream {
    raw: sys::CUstream,
    context: Arc<Context>,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// An empty stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        context.enter()?;
        let (mut raw, flags) = (ptr::null_mut(), sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint);
        // SAFETY: writes a handle to a live place.
        unsafe { call!(cuStreamCreate(&mut raw, flags))? };
        Ok(Stream { raw, context: context.clone() })
    }

    /// Submits a copy of `len` bytes to `to`, from its byte `at` on.
    ///
    /// # Safety
    /// `from` is valid for `len` bytes, which nobody writes, until the stream has done it.
    ///
    /// # Errors
    /// What the driver says, also of earlier work.
    pub unsafe fn upload(&self, from: *const u8, to: &DeviceMemory, at: usize, len: usize) -> Result<()> {
        assert!(to.holds(at, len), "an upload beyond the memory"); // invariant: sizes come from one plan
        // SAFETY: the caller's promise, and the bounds just checked.
        unsafe { call!(cuMemcpyHtoDAsync_v2(to.address(at), from.cast(), len, self.raw)) }
    }

    /// Submits a copy of `len` bytes from `from`, from its byte `at` on.
    ///
    /// # Safety
    /// `to` is valid for `len` bytes, which nobody else touches, until the stream has done it.
    ///
    /// # Errors
    /// As `upload`.
    pub unsafe fn download(&self, from: &DeviceMemory, at: usize, to: *mut u8, len: usize) -> Result<()> {
        assert!(from.holds(at, len), "a download beyond the memory"); // invariant: sizes come from one plan
        // SAFETY: as in `upload`.
        unsafe { call!(cuMemcpyDtoHAsync_v2(to.cast(), from.address(at), len, self.raw)) }
    }

    /// Submits zeros for `len` bytes of `memory` from `at` on.
    ///
    /// # Errors
    /// As `upload`.
    pub fn clear(&self, memory: &DeviceMemory, at: usize, len: usize) -> Result<()> {
        assert!(memory.holds(at, len), "clearing beyond the memory"); // invariant: sizes come from one plan
        // SAFETY: the bounds were checked; the stream's own order keeps it after what was submitted before.
        unsafe { call!(cuMemsetD8Async(memory.address(at), 0, len, self.raw)) }
    }

    /// Submits a kernel; `numbers` are its parameters, of 64 or 32 bits each.
    ///
    /// # Safety
    /// They are what the kernel's contract wants, and every place it touches stays until it is done.
    ///
    /// # Errors
    /// As `upload`.
    pub unsafe fn launch(
        &self,
        kernel: &Kernel,
        blocks: u32,
        threads: u32,
        numbers: &mut [u64],
    ) -> Result<()> {
        // A parameter of 32 bits is read from the lower half: numbers are little-endian here as there.
        let mut places: Vec<*mut c_void> =
            numbers.iter_mut().map(|number| ptr::from_mut(number).cast()).collect();
        let (shared, none) = (kernel.shared as c_uint, ptr::null_mut());
        // SAFETY: the driver reads the parameters during the call; the rest is the caller's promise.
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

    /// Submits that `event` happens.
    ///
    /// # Errors
    /// As `upload`.
    pub fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: both live.
        unsafe { call!(cuEventRecord(event.raw, self.raw)) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.cleans_up() {
            // SAFETY: made by `new`; the driver releases it when its work is done.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// A point in a stream that a thread can wait for without spinning.
pub struct Event {
    raw: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: events may be used from any thread, several at a time.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that has happened.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        use sys::CUevent_flags::{CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING};
        context.enter()?;
        let (mut raw, flags) =
            (ptr::null_mut(), CU_EVENT_BLOCKING_SYNC as c_uint | CU_EVENT_DISABLE_TIMING as c_uint);
        // SAFETY: writes a handle to a live place.
        unsafe { call!(cuEventCreate(&mut raw, flags))? };
        Ok(Event { raw, context: context.clone() })
    }

    /// Waits until it has happened, for ever if need be.
    ///
    /// # Errors
    /// What the driver says of the work before it.
    pub fn wait(&self) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the event lives.
        unsafe { call!(cuEventSynchronize(self.raw)) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.cleans_up() {
            // SAFETY: made by `new`.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}
