//! The kernels of `keccak.cl` on an OpenCL device. The library is loaded when a device is opened. All work
//! goes to one queue, in order.

use opencl3::{
    command_queue::{CL_QUEUE_PROFILING_ENABLE, CommandQueue},
    context::Context,
    device::{self, CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_GPU},
    error_codes::{ClError, DLOPEN_RUNTIME_LOAD_FAILED},
    kernel::ExecuteKernel,
    memory::{Buffer, CL_MEM_READ_WRITE, ClMem},
    program::Program,
    types::CL_BLOCKING,
};
use std::{fmt, ptr};

static SOURCE: &str = include_str!("../../../kernels/keccak.cl");

/// Bytes of a state.
const STATE: usize = 200;

/// An entry point of `keccak.cl`.
pub struct Kernel {
    /// Name in the source.
    pub entry: &'static str,
    /// Threads per group in two dimensions, as the source requires.
    pub group: [usize; 2],
    /// States per group.
    pub states: usize,
    /// Name in reports.
    pub name: &'static str,
}

impl Kernel {
    /// Number of groups needed for `count` states.
    pub fn groups(&self, count: usize) -> usize {
        count.div_ceil(self.states)
    }
}

const fn kernel(entry: &'static str, group: [usize; 2], states: usize, name: &'static str) -> Kernel {
    Kernel { entry, group, states, name }
}

/// All kernels, named as in CUDA. OpenCL calls shared memory local.
pub const KERNELS: [Kernel; 4] = [
    kernel("keccak_arrays", [128, 1], 128, "OpenCL, I: one thread, loops over arrays"),
    kernel("keccak_loop", [128, 1], 128, "OpenCL, II: one thread, steps written out"),
    kernel("keccak_block", [5, 5], 1, "OpenCL, III: 25 threads, a state a group"),
    kernel("keccak_arrays_local", [64, 1], 64, "OpenCL, I, arrays in local memory"),
];

/// Why there is no device, or which call failed.
#[derive(Debug)]
pub enum OpenClError {
    /// The library reports no device.
    NoDevice,
    /// A call's error, or that the library is missing.
    Call(ClError),
    /// The compiler's messages.
    Build(String),
}

impl From<ClError> for OpenClError {
    fn from(error: ClError) -> Self {
        OpenClError::Call(error)
    }
}

impl fmt::Display for OpenClError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            OpenClError::NoDevice => write!(f, "there is no OpenCL device"),
            OpenClError::Call(ClError(DLOPEN_RUNTIME_LOAD_FAILED)) => {
                write!(f, "there is no OpenCL library (libOpenCL.so.1)")
            }
            OpenClError::Call(error) => write!(f, "OpenCL says {error}"),
            OpenClError::Build(log) => write!(f, "keccak.cl does not compile: {log}"),
        }
    }
}

/// Result of OpenCL calls.
pub type Result<T> = std::result::Result<T, OpenClError>;

/// States in device memory.
pub struct States(Buffer<u8>);

/// A device, with the kernels compiled for it.
pub struct Device {
    device: device::Device,
    queue: CommandQueue,
    program: Program,
    context: Context,
}

impl Device {
    /// Opens the first GPU, or the first device of another kind if there is none.
    ///
    /// # Errors
    /// Why there is none, or that the kernels do not compile.
    pub fn open() -> Result<Self> {
        let mut found = device::get_all_devices(CL_DEVICE_TYPE_GPU)?;
        found.extend(device::get_all_devices(CL_DEVICE_TYPE_ALL)?);
        let device = device::Device::new(*found.first().ok_or(OpenClError::NoDevice)?);
        let context = Context::from_device(&device)?;
        let queue = CommandQueue::create_default(&context, CL_QUEUE_PROFILING_ENABLE)?;
        let program =
            Program::create_and_build_from_source(&context, SOURCE, "").map_err(OpenClError::Build)?;
        Ok(Device { device, queue, program, context })
    }

    /// The device's name, and its OpenCL version.
    ///
    /// # Errors
    /// The library's error.
    pub fn description(&self) -> Result<String> {
        Ok(format!("{}, {}", self.device.name()?, self.device.version()?))
    }

    /// Whether it is a GPU.
    ///
    /// # Errors
    /// The library's error.
    pub fn is_gpu(&self) -> Result<bool> {
        Ok(self.device.dev_type()? & CL_DEVICE_TYPE_GPU != 0)
    }

    /// Maximum number of states that fit into one allocation.
    ///
    /// # Errors
    /// The library's error.
    pub fn most_states(&self) -> Result<usize> {
        Ok(self.device.max_mem_alloc_size()? as usize / STATE)
    }

    /// Allocates memory for `count` states, with unspecified content.
    ///
    /// # Errors
    /// The library's error, such as out of memory.
    pub fn states(&self, count: usize) -> Result<States> {
        // SAFETY: the library allocates the memory; no host pointer is passed.
        Ok(States(unsafe {
            Buffer::create(&self.context, CL_MEM_READ_WRITE, count * STATE, ptr::null_mut())?
        }))
    }

    /// Copies to the first states, and waits.
    ///
    /// # Errors
    /// The library's error, for example if `from` is longer than `to`.
    pub fn upload(&self, from: &[u8], to: &mut States) -> Result<()> {
        // SAFETY: the call blocks until it has read `from`; the library checks the buffer's length.
        unsafe { self.queue.enqueue_write_buffer(&mut to.0, CL_BLOCKING, 0, from, &[])? };
        Ok(())
    }

    /// Copies from the first states after all launched work, and waits.
    ///
    /// # Errors
    /// As `upload`.
    pub fn download(&self, from: &States, to: &mut [u8]) -> Result<()> {
        // SAFETY: the call blocks until it has written `to`; the library checks the buffer's length.
        unsafe { self.queue.enqueue_read_buffer(&from.0, CL_BLOCKING, 0, to, &[])? };
        Ok(())
    }

    /// Permutes the first `count` states `times` times, and waits. Returns the average seconds per pass, by
    /// the device's clock.
    ///
    /// # Errors
    /// The library's error.
    pub fn permute(&self, kernel: &Kernel, states: &States, count: usize, times: u32) -> Result<f64> {
        assert!(count * STATE <= states.0.size()?, "more states than the memory has"); // invariant: callers size it
        let entry = opencl3::kernel::Kernel::create(&self.program, kernel.entry)?;
        let [x, y] = kernel.group;
        let launch = || {
            // SAFETY: every kernel of `keccak.cl` takes these arguments. Whatever the geometry, it writes
            // only to the first `count` states, which are within the memory.
            unsafe {
                ExecuteKernel::new(&entry)
                    .set_arg(&states.0.get())
                    .set_arg(&(count as u32))
                    .set_global_work_sizes(&[x * kernel.groups(count), y])
                    .set_local_work_sizes(&[x, y])
                    .enqueue_nd_range(&self.queue)
            }
        };
        let first = launch()?;
        let last = (1..times).try_fold(None, |_, _| launch().map(Some))?;
        self.queue.finish()?;
        let end = last.as_ref().unwrap_or(&first).profiling_command_end()?;
        let nanoseconds = end.saturating_sub(first.profiling_command_start()?).max(1);
        Ok(nanoseconds as f64 / 1e9 / f64::from(times))
    }
}
