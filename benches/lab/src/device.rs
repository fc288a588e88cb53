//! Driver functions beyond the engine's that measurements of single kernels need: blocking copies, timed
//! kernels, textures and module variables. All work goes to one queue, in order.

use cudarc::driver::sys;
use engine::driver::{
    CudaContext, Description, DeviceMemory, DriverError, HostMemory, Kernel, Module, Result, check, devices,
};
use std::{
    ffi::{CString, c_int, c_uint, c_void},
    mem, ptr,
    sync::Arc,
};

/// Calls a driver function by name.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => { check(stringify!($name), sys::$name($($argument),*)) };
}

/// Functions called here in addition to those that the engine calls.
const FUNCTIONS: [&str; 9] = [
    "cuCtxGetDevice",
    "cuEventElapsedTime",
    "cuMemcpyDtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuModuleGetGlobal_v2",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuTexObjectCreate",
    "cuTexObjectDestroy",
];

/// One parameter of a kernel.
#[derive(Clone, Copy)]
pub enum Parameter<'a> {
    /// Device memory, from its first byte.
    Memory(&'a DeviceMemory),
    /// A 32-bit or 64-bit number.
    Number(u64),
    /// A texture.
    Texture(&'a Texture),
}

/// An entry point, and the bytes of dynamic shared memory to launch it with.
pub struct Entry {
    kernel: Kernel,
    shared: usize,
}

/// A kernel, its geometry and its parameters.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    /// The entry point.
    pub kernel: &'a Entry,
    /// Number of blocks.
    pub blocks: u32,
    /// Threads per block.
    pub threads: u32,
    /// The parameters that its contract requires.
    pub parameters: &'a [Parameter<'a>],
}

/// A copy of a module variable, read through the texture units.
pub struct Texture {
    raw: sys::CUtexObject,
    context: Arc<CudaContext>,
    _memory: DeviceMemory,
}

impl Drop for Texture {
    fn drop(&mut self) {
        if self.context.cleans_up() {
            // SAFETY: created by `Lab::texture`, and no running work reads it: launches are waited for.
            let _ = unsafe { sys::cuTexObjectDestroy(self.raw) };
        }
    }
}

/// A device on which kernels are measured.
pub struct Lab {
    context: Arc<CudaContext>,
    description: Description,
    events: [sys::CUevent; 2],
}

impl Lab {
    /// Opens the first device.
    ///
    /// # Errors
    /// Why there is none, or the driver's error.
    pub fn open() -> Result<Self> {
        Lab::open_number(0)
    }

    /// Opens the device with this number. The calling thread works on it until another is opened.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_number(number: usize) -> Result<Self> {
        devices()?;
        for name in FUNCTIONS {
            // SAFETY: `devices` found the library, which stays loaded. The symbol is looked up, not called.
            if unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
                return Err(DriverError::BadLibrary(format!("it lacks {name}")));
            }
        }
        let (context, description) = CudaContext::open(number)?;
        let mut events = [ptr::null_mut(); 2];
        for event in &mut events {
            // SAFETY: writes a handle to a live variable; the context is current.
            unsafe { call!(cuEventCreate(event, 0))? };
        }
        Ok(Lab { context, description, events })
    }

    /// Description of the device.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The multiprocessors' maximum clock rate, in hertz.
    ///
    /// # Errors
    /// The driver's error.
    pub fn cycles_a_second(&self) -> Result<f64> {
        let (mut device, mut kilohertz) = (0, 0);
        // SAFETY: both write to live integers; the context is current.
        unsafe {
            call!(cuCtxGetDevice(&mut device))?;
            let clock = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
            call!(cuDeviceGetAttribute(&mut kilohertz, clock, device))?;
        }
        Ok(f64::from(kilohertz) * 1e3)
    }

    /// Seconds per copy of `len` bytes within the device, averaged over `times` copies, by the device's
    /// clock.
    ///
    /// # Errors
    /// As `launch`.
    pub fn time_copy(&self, from: &DeviceMemory, to: &DeviceMemory, len: usize, times: u32) -> Result<f64> {
        assert!(from.holds(0, len) && to.holds(0, len), "a copy beyond the memory"); // invariant: callers size both
        self.timed(times, || {
            // SAFETY: both ranges are live and large enough, and do not overlap.
            unsafe { call!(cuMemcpyDtoD_v2(to.address(0), from.address(0), len)) }
        })
    }

    /// Loads a fatbin.
    ///
    /// # Errors
    /// The driver's error, for example that it contains no code for this device.
    pub fn load(&self, fatbin: &[u8]) -> Result<Arc<Module>> {
        Module::load(&self.context, fatbin)
    }

    /// The entry point with this name.
    ///
    /// # Errors
    /// The driver's error: no such kernel, or more shared memory than available.
    pub fn kernel(&self, module: &Arc<Module>, name: &str, shared: usize) -> Result<Entry> {
        Ok(Entry { kernel: module.kernel(name, shared)?, shared })
    }

    /// Allocates device memory with unspecified content.
    ///
    /// # Errors
    /// The driver's error, such as out of memory.
    pub fn memory(&self, len: usize) -> Result<DeviceMemory> {
        DeviceMemory::new(&self.context, len)
    }

    /// Allocates page-locked host memory.
    ///
    /// # Errors
    /// The driver's error, such as out of memory.
    pub fn pinned(&self, len: usize) -> Result<HostMemory> {
        HostMemory::new(&self.context, len)
    }

    /// Copies to the start of `to`, and waits.
    ///
    /// # Errors
    /// The driver's error, including failures of earlier work.
    pub fn upload(&self, from: &[u8], to: &DeviceMemory) -> Result<()> {
        assert!(to.holds(0, from.len()), "an upload beyond the memory"); // invariant: callers size both
        // SAFETY: both ranges are live and large enough; the driver has read `from` when it returns.
        unsafe { call!(cuMemcpyHtoD_v2(to.address(0), from.as_ptr().cast(), from.len())) }
    }

    /// Copies from the start of `from` after all launched work, and waits.
    ///
    /// # Errors
    /// As `upload`.
    pub fn download(&self, from: &DeviceMemory, to: &mut [u8]) -> Result<()> {
        assert!(from.holds(0, to.len()), "a download beyond the memory"); // invariant: callers size both
        // SAFETY: as in `upload`; the caller lends `to` exclusively.
        unsafe { call!(cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from.address(0), to.len()))? };
        // Copies to registered page-locked memory may return early.
        self.wait()
    }

    /// Waits for all launched work.
    ///
    /// # Errors
    /// The error of any failed work.
    pub fn wait(&self) -> Result<()> {
        self.context.synchronize()
    }

    /// Number of blocks with this many threads that a multiprocessor holds at once; 0 if the kernel does
    /// not support so many.
    ///
    /// # Errors
    /// The driver's error.
    pub fn occupancy(&self, kernel: &Entry, threads: u32) -> Result<u32> {
        let mut blocks = 0;
        // SAFETY: writes to a live integer.
        unsafe {
            let threads = threads as c_int;
            call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                kernel.kernel.raw(),
                threads,
                kernel.shared
            ))?;
        }
        Ok(blocks.max(0) as u32)
    }

    /// Queues a launch. Kernels get device memory only, so they cannot affect the program's own memory.
    ///
    /// # Errors
    /// The driver's error, including failures of earlier work.
    pub fn launch(&self, launch: &Launch) -> Result<()> {
        let number = |parameter: &Parameter| match parameter {
            Parameter::Memory(memory) => memory.address(0),
            Parameter::Number(number) => *number,
            Parameter::Texture(texture) => texture.raw,
        };
        let mut numbers: Vec<u64> = launch.parameters.iter().map(number).collect();
        // A 32-bit parameter is read from the lower half: host and device are both little-endian.
        let mut places: Vec<*mut c_void> =
            numbers.iter_mut().map(|number| ptr::from_mut(number).cast()).collect();
        let (shared, queue, none) = (launch.kernel.shared as c_uint, ptr::null_mut(), ptr::null_mut());
        // SAFETY: the driver reads the parameters during the call; they point to device memory.
        unsafe {
            call!(cuLaunchKernel(
                launch.kernel.kernel.raw(),
                launch.blocks,
                1,
                1,
                launch.threads,
                1,
                1,
                shared,
                queue,
                places.as_mut_ptr(),
                none,
            ))
        }
    }

    /// Seconds per round through these launches, averaged over `times` rounds one after the other, by the
    /// device's clock.
    ///
    /// # Errors
    /// As `launch`.
    pub fn time(&self, launches: &[Launch], times: u32) -> Result<f64> {
        self.timed(times, || launches.iter().try_for_each(|launch| self.launch(launch)))
    }

    /// Like `time`, but for arbitrary queued work.
    fn timed(&self, times: u32, queue: impl Fn() -> Result<()>) -> Result<f64> {
        let mut milliseconds = 0_f32;
        // SAFETY: the events live as long as `self`.
        unsafe { call!(cuEventRecord(self.events[0], ptr::null_mut()))? };
        (0..times).try_for_each(|_| queue())?;
        // SAFETY: as above, and the driver writes to a live number.
        unsafe {
            call!(cuEventRecord(self.events[1], ptr::null_mut()))?;
            call!(cuEventSynchronize(self.events[1]))?;
            call!(cuEventElapsedTime(&mut milliseconds, self.events[0], self.events[1]))?;
        }
        Ok(f64::from(milliseconds) / 1e3 / f64::from(times))
    }

    /// Address and length of a module variable.
    fn variable(&self, module: &Module, name: &str) -> Result<(u64, usize)> {
        let text = CString::new(name).unwrap_or_default();
        let (mut address, mut len) = (0, 0);
        // SAFETY: the module is loaded, the name is null-terminated, and both results go to live variables.
        unsafe { call!(cuModuleGetGlobal_v2(&mut address, &mut len, module.raw(), text.as_ptr()))? };
        Ok((address, len))
    }

    /// Writes the first bytes of a variable.
    ///
    /// # Errors
    /// Those of `upload`, and if the module has no such variable.
    pub fn write(&self, module: &Module, name: &str, bytes: &[u8]) -> Result<()> {
        let (address, len) = self.variable(module, name)?;
        assert!(bytes.len() <= len, "more than the variable holds"); // invariant: callers know the kernels
        // SAFETY: both ranges are live and large enough.
        unsafe { call!(cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len())) }
    }

    /// Fills the variable `to` with the first bytes of the variable `from` of the same module.
    ///
    /// # Errors
    /// As `write`.
    pub fn copy(&self, module: &Module, from: &str, to: &str) -> Result<()> {
        let ((from, most), (to, len)) = (self.variable(module, from)?, self.variable(module, to)?);
        assert!(len <= most, "more than the variable holds"); // invariant: callers know the kernels
        // SAFETY: both variables live as long as the module and are large enough.
        unsafe { call!(cuMemcpyDtoD_v2(to, from, len)) }
    }

    /// A texture over a copy of a variable, with elements of `channels` words: 1, 2 or 4. A copy is needed
    /// because textures have stricter alignment than the compiler gives to variables.
    ///
    /// # Errors
    /// As `write`.
    pub fn texture(&self, module: &Module, name: &str, channels: u32) -> Result<Texture> {
        let (variable, len) = self.variable(module, name)?;
        let memory = self.memory(len)?;
        let mut raw = 0;
        // SAFETY: both descriptions are plain data for which zeros are valid. The texture holds the copy,
        // so the copy lives as long as it.
        unsafe {
            call!(cuMemcpyDtoD_v2(memory.address(0), variable, len))?;
            let mut resource: sys::CUDA_RESOURCE_DESC = mem::zeroed();
            resource.resType = sys::CUresourcetype::CU_RESOURCE_TYPE_LINEAR;
            resource.res.linear.devPtr = memory.address(0);
            resource.res.linear.format = sys::CUarray_format::CU_AD_FORMAT_UNSIGNED_INT32;
            resource.res.linear.numChannels = channels;
            resource.res.linear.sizeInBytes = len;
            let mut reading: sys::CUDA_TEXTURE_DESC = mem::zeroed();
            reading.flags = sys::CU_TRSF_READ_AS_INTEGER;
            call!(cuTexObjectCreate(&mut raw, &resource, &reading, ptr::null()))?;
        }
        Ok(Texture { raw, context: self.context.clone(), _memory: memory })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for event in self.events {
            if self.context.cleans_up() {
                // SAFETY: created by `open`.
                let _ = unsafe { sys::cuEventDestroy_v2(event) };
            }
        }
    }
}
