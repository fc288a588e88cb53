//! The GPU engine: batches go through page-locked memory to CUDA kernels and come back as the bytes that the
//! CPU would have made. Whatever the driver does, a batch ends with its result or with an error and its
//! input intact; then the engine leaves service and comes back once the device passes a test.

mod device;
mod driver;
mod fault;
mod kernels;
mod pipeline;
mod plan;
mod selftest;
mod slot;

pub use device::Shape;
pub use driver::{Description, DeviceMemory, DriverError, Module, lab};
pub use fault::Fault;

pub use driver::HostMemory;

use super::{
    batch::{Batch, Engine, EngineError},
    buffer::{BufferPool, Source},
};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use device::Device;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// The longest pause between two tests of a device that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A device that is not ready after this time is none.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether there is a driver with a device: what can be told without opening it.
///
/// # Errors
/// Why there is none.
pub fn find() -> Result<(), DriverError> {
    driver::devices().map(drop)
}

/// Seals and opens on a CUDA device.
pub struct GpuEngine {
    description: Description,
    inner: Arc<Inner>,
    /// Its drop ends the thread that tests a failed device.
    _stop: Sender<()>,
}

struct Inner {
    shape: Shape,
    /// Until the first test of a device that failed; doubles from test to test.
    pause: Duration,
    device: Mutex<Option<Arc<Device>>>,
    stopped: Receiver<()>,
    /// What was done here: batches, and their chunks.
    done: [AtomicU64; 2],
}

impl GpuEngine {
    /// Opens the first device and tests it.
    ///
    /// # Errors
    /// Why there is no device, or what it gets wrong.
    pub fn open() -> Result<Self, Fault> {
        Self::with_shape(Shape::default(), Duration::from_secs(1))
    }

    /// The same with another ring, and another pause before a failed device is tested.
    ///
    /// # Errors
    /// As `open`.
    pub fn with_shape(shape: Shape, pause: Duration) -> Result<Self, Fault> {
        let device = ready_device(shape)?;
        let description = device.description.clone();
        let (stop, stopped) = bounded(0);
        let inner = Arc::new(Inner {
            shape,
            pause,
            device: Mutex::new(Some(device)),
            stopped,
            done: Default::default(),
        });
        Ok(GpuEngine { description, inner, _stop: stop })
    }

    /// The device.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Whether batches are taken: not after a failure, until the device has passed a test.
    pub fn in_service(&self) -> bool {
        self.inner.device.lock().is_some()
    }

    /// Batches that were done here, and the chunks in them.
    pub fn done(&self) -> [u64; 2] {
        self.inner.done.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Has the pool take its memory from here from now on: then the device copies without the CPU's help.
    pub fn supply(&self, pool: &BufferPool) {
        pool.set_source(self.memory());
    }

    fn memory(&self) -> Source {
        let inner = Arc::downgrade(&self.inner);
        Arc::new(move |len| {
            let device = inner.upgrade()?.device.lock().clone();
            device?.lock_memory(len)
        })
    }

    fn failed(&self, fault: &Fault) -> EngineError {
        EngineError::Failed { engine: self.name().to_owned(), cause: fault.to_string() }
    }
}

impl Engine for GpuEngine {
    fn name(&self) -> &str {
        "gpu"
    }

    fn run(&self, batch: &mut Batch) -> Result<(), EngineError> {
        let order = batch.check()?;
        if order.is_empty() {
            return Ok(());
        }
        let device = self.inner.device.lock().clone();
        let device = device.ok_or_else(|| self.failed(&Fault::OutOfService))?;
        pipeline::run(&device, batch, &order, &self.inner.shape).map_err(|fault| {
            Inner::fail(&self.inner, &device, &fault);
            self.failed(&fault)
        })?;
        for (count, more) in self.inner.done.iter().zip([1, order.len() as u64]) {
            count.fetch_add(more, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for GpuEngine {
    fn drop(&mut self) {
        let [batches, chunks] = self.done();
        log::info!("gpu: did {batches} batches of {chunks} chunks");
    }
}

/// A device that passed the test. Opened on a thread of its own, which a driver that hangs keeps.
fn ready_device(shape: Shape) -> Result<Arc<Device>, Fault> {
    let (sender, ready) = bounded(1);
    let open = move || {
        let device = Device::open(0, shape).map(Arc::new);
        // Nobody waits any more for one that comes too late.
        let _ = sender.send(device.and_then(|device| selftest::self_test(&device).map(|()| device)));
    };
    thread::Builder::new().name("gpu-open".to_owned()).spawn(open).map_err(Fault::Thread)?;
    ready.recv_timeout(OPEN_TIMEOUT).unwrap_or(Err(Fault::Driver(DriverError::TimedOut(OPEN_TIMEOUT))))
}

impl Inner {
    /// Takes the device out of service, once, and has it tested from time to time.
    fn fail(this: &Arc<Self>, device: &Arc<Device>, fault: &Fault) {
        device.end_service();
        let failed = {
            let mut current = this.device.lock();
            current.take_if(|current| Arc::ptr_eq(current, device))
        };
        let Some(failed) = failed else { return };
        log::warn!("gpu: {fault}; the CPU works in its place until it passes a test");
        let (inner, stopped, pause) = (Arc::downgrade(this), this.stopped.clone(), this.pause);
        let revive = move || revive(failed, &inner, &stopped, pause);
        if let Err(e) = thread::Builder::new().name("gpu-test".to_owned()).spawn(revive) {
            log::warn!("gpu: stays out of service: no thread to test it: {e}");
        }
    }
}

/// Clears a failed device away and tests it until it passes or the engine is gone. On a thread of its own:
/// a driver that hangs holds up nobody else.
fn revive(failed: Arc<Device>, engine: &Weak<Inner>, stopped: &Receiver<()>, mut pause: Duration) {
    let mut failed = Some(failed);
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        // Those who were at work on it when it failed are done within the time-out.
        failed.take_if(|device| Arc::strong_count(device) == 1);
        let Some(shape) = engine.upgrade().map(|inner| inner.shape) else { return };
        let tested = if failed.is_some() { Err(Fault::OutOfService) } else { ready_device(shape) };
        match (tested, engine.upgrade()) {
            (Ok(device), Some(inner)) => {
                log::info!("gpu: passed the test, in service again");
                *inner.device.lock() = Some(device);
                return;
            }
            (Ok(_), None) => return,
            (Err(fault), _) => log::debug!("gpu: still out of service: {fault}"),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
