//! The CUDA driver; no other module calls it. It is loaded at run time, so the program also runs on
//! machines without one. Every failure is an error value.
//!
//! Objects of a context keep it alive. Once the context was given up (`CudaContext::give_up`) they free
//! nothing, because a hanging driver must not be called again.

use cudarc::driver::sys;
use serde::{Deserialize, Serialize};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint},
    panic::catch_unwind,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Calls a driver function by name.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => { check(stringify!($name), sys::$name($($argument),*)) };
}

mod memory;
mod stream;

pub(super) use memory::Registered;
pub use memory::{DeviceMemory, HostMemory};
pub use stream::{Event, Geometry, Stream};

/// Oldest supported driver, as its CUDA version (1000 * major + 10 * minor).
const OLDEST: c_int = 12_000;

/// Functions that are called here. A library that lacks one of them is not used at all.
const FUNCTIONS: [&str; 33] = [
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
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemHostGetDevicePointer_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemsetD8Async",
    "cuStreamWaitEvent",
    "cuStreamWriteValue32_v2",
    "cuGetErrorName",
];

/// Why the driver cannot be used, or the error it returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// There is no library.
    #[error("there is no NVIDIA driver (libcuda.so.1) on this machine")]
    NoLibrary,
    /// The library is unusable.
    #[error("cannot load the NVIDIA driver library: {0}")]
    BadLibrary(String),
    /// The driver is older than the oldest one that the kernels run on.
    #[error("the NVIDIA driver is too old: it is for CUDA {}.{}, and 12.0 is needed", .0 / 1000, .0 % 1000 / 10)]
    TooOld(i32),
    /// The driver reports no device.
    #[error("the NVIDIA driver knows no device")]
    NoDevice,
    /// A call failed.
    #[error("{call}: {name} ({code})")]
    Call {
        /// The driver function.
        call: &'static str,
        /// Its result.
        code: u32,
        /// The driver's name for the result.
        name: String,
    },
    /// No answer in time.
    #[error("the device did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
}

/// Shorthand for this module.
pub type Result<T> = std::result::Result<T, DriverError>;

/// Converts the result of the driver function `call`.
///
/// # Errors
/// If the call failed.
pub fn check(call: &'static str, result: sys::CUresult) -> Result<()> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(DriverError::Call { call, code: error as u32, name: name_of(error) }),
    }
}

fn name_of(error: sys::CUresult) -> String {
    let mut name: *const c_char = ptr::null();
    // SAFETY: the driver writes a pointer to a constant string, or null.
    unsafe {
        let _ = sys::cuGetErrorName(error, &mut name);
        if name.is_null() { "unknown error".into() } else { CStr::from_ptr(name).to_string_lossy().into() }
    }
}

/// Number of devices; at least one. Checks that there is a driver and that it is recent enough.
///
/// # Errors
/// Why there is none.
pub fn devices() -> Result<usize> {
    // If a library is broken in ways that are not checked, the binding panics; report that as a bad
    // library, too.
    catch_unwind(find).unwrap_or_else(|_| Err(DriverError::BadLibrary("it fails on loading".into())))
}

fn find() -> Result<usize> {
    // SAFETY: loads the library by name and closes it again; it is the system's driver.
    if !unsafe { sys::is_culib_present() } {
        return Err(DriverError::NoLibrary);
    }
    // SAFETY: the library is present, and `culib` never unloads it. Symbols are looked up, not called.
    let library = unsafe { sys::culib() };
    for name in FUNCTIONS {
        // SAFETY: as above.
        if unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
            return Err(DriverError::BadLibrary(format!("it lacks {name}")));
        }
    }
    let (mut version, mut count) = (0, 0);
    // SAFETY: the functions exist, and write to live integers.
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

/// A device's properties, as reported by the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Name of the device.
    pub name: String,
    /// CUDA version that the driver supports: 1000 * major + 10 * minor.
    pub driver: i32,
    /// Number of multiprocessors.
    pub processors: usize,
    /// Maximum bytes of shared memory per block.
    pub shared_memory: usize,
}

/// A CUDA context on one device. Destroyed when the last object in it is dropped.
pub struct CudaContext {
    raw: sys::CUcontext,
    given_up: AtomicBool,
}

// SAFETY: contexts may be used from any thread; the driver synchronises its shared state.
unsafe impl Send for CudaContext {}
// SAFETY: as above.
unsafe impl Sync for CudaContext {}

impl CudaContext {
    /// Creates a context on the device with this number, below `devices()`, and makes it current on this
    /// thread.
    ///
    /// # Errors
    /// The driver's error.
    pub fn open(number: usize) -> Result<(Arc<CudaContext>, Description)> {
        devices()?;
        let (mut device, mut raw, mut name) = (0, ptr::null_mut(), [0 as c_char; 128]);
        let (mut driver, mut processors, mut shared_memory) = (0, 0, 0);
        let flags = sys::CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC as c_uint;
        let count = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let shared = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        // SAFETY: `devices` found the functions; each writes to a live variable of the size that it is
        // given.
        unsafe {
            call!(cuDeviceGet(&mut device, number as c_int))?;
            call!(cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int - 1, device))?;
            call!(cuDeviceGetAttribute(&mut processors, count, device))?;
            call!(cuDeviceGetAttribute(&mut shared_memory, shared, device))?;
            call!(cuDriverGetVersion(&mut driver))?;
            call!(cuCtxCreate_v2(&mut raw, flags, device))?;
        }
        let name = name.map(|c| c as u8);
        let name = String::from_utf8_lossy(name.split(|c| *c == 0).next().unwrap_or_default()).into_owned();
        let description = Description {
            name,
            driver,
            processors: usize::try_from(processors).unwrap_or(1).max(1),
            shared_memory: usize::try_from(shared_memory).unwrap_or(0),
        };
        Ok((Arc::new(CudaContext { raw, given_up: AtomicBool::new(false) }), description))
    }

    /// Makes it this thread's current context, as all other calls here require.
    ///
    /// # Errors
    /// The driver's error.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the context is alive.
        unsafe { call!(cuCtxSetCurrent(self.raw)) }
    }

    /// Waits for all submitted work.
    ///
    /// # Errors
    /// The driver's error, including failures of earlier work.
    pub fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: takes no arguments.
        unsafe { call!(cuCtxSynchronize()) }
    }

    /// From now on nothing of this context is freed, including host memory that it may write, and the
    /// driver is not called for cleanup.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// Whether the context was given up.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Whether to call the driver for cleanup. Enters the context.
    pub fn cleans_up(&self) -> bool {
        !self.is_given_up() && self.enter().is_ok()
    }
}

impl Drop for CudaContext {
    fn drop(&mut self) {
        if !self.is_given_up() {
            // SAFETY: every other object keeps the context alive, so none is left. An error leaves nothing
            // to do.
            let _ = unsafe { sys::cuCtxDestroy_v2(self.raw) };
        }
    }
}

/// Loaded kernels.
pub struct Module {
    raw: sys::CUmodule,
    context: Arc<CudaContext>,
}

// SAFETY: modules may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads a fatbin.
    ///
    /// # Errors
    /// The driver's error, for example that it contains no code for this device.
    pub fn load(context: &Arc<CudaContext>, fatbin: &[u8]) -> Result<Arc<Module>> {
        let mut aligned = vec![0u128; fatbin.len().div_ceil(16)];
        for (word, bytes) in aligned.iter_mut().zip(fatbin.chunks(16)) {
            let mut whole = [0; 16];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u128::from_ne_bytes(whole);
        }
        context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the image contains its own length, and is not needed after the call.
        unsafe { call!(cuModuleLoadData(&mut raw, aligned.as_ptr().cast()))? };
        Ok(Arc::new(Module { raw, context: context.clone() }))
    }

    /// The driver's handle, valid while `self` is alive.
    pub fn raw(&self) -> sys::CUmodule {
        self.raw
    }

    /// The kernel with this name, allowed to use up to `shared` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// The driver's error.
    pub fn kernel(self: &Arc<Self>, name: &str, shared: usize) -> Result<Kernel> {
        let text = CString::new(name).unwrap_or_default();
        let mut raw = ptr::null_mut();
        self.context.enter()?;
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the module is loaded, and the name is null-terminated.
        unsafe {
            call!(cuModuleGetFunction(&mut raw, self.raw, text.as_ptr()))?;
            call!(cuFuncSetAttribute(raw, most, shared as c_int))?;
        }
        Ok(Kernel { raw, _module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.cleans_up() {
            // SAFETY: its kernels keep it alive, so none is left.
            let _ = unsafe { sys::cuModuleUnload(self.raw) };
        }
    }
}

/// A kernel's entry point.
pub struct Kernel {
    raw: sys::CUfunction,
    _module: Arc<Module>,
}

// SAFETY: functions may be used from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// The driver's handle, valid while `self` is alive.
    pub fn raw(&self) -> sys::CUfunction {
        self.raw
    }
}
