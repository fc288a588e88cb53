//! The GPU engine: batches go through page-locked memory to CUDA kernels and come back as the bytes that the
//! CPU would have made. Whatever the driver does, a batch ends with its result or with an error and its
//! input intact; then the engine leaves service and comes back once the device passes a test.

mod device;
pub mod driver;
mod fault;
mod kernels;
mod pipeline;
mod plan;
mod poison;
mod selftest;
mod slot;

pub use device::Shape;
pub use driver::{Description, DeviceMemory, DriverError, Module, lab};
pub use fault::Fault;

pub use driver::HostMemory;

use super::{
    batch::{Batch, Engine, EngineError},
    buffer::{Buffer, BufferPool, Source},
};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use device::Device;
use parking_lot::Mutex;
use poison::Poison;
use std::{
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

/// The longest pause between two tests of a device that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A device that is not ready after this time is none.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Devices of the driver, at least one: what can be told without opening them.
///
/// # Errors
/// Why there is none.
pub fn devices() -> Result<usize, DriverError> {
    driver::devices()
}

/// Seals and opens on a CUDA device.
pub struct GpuEngine {
    description: Description,
    name: String,
    poison: Option<Poison>,
    inner: Arc<Inner>,
    /// Its drop ends the thread that tests a failed device.
    _stop: Sender<()>,
}

struct Inner {
    /// Which of the driver's devices.
    number: usize,
    shape: Shape,
    /// Until the first test of a device that failed; doubles from test to test.
    pause: Duration,
    device: Mutex<Option<Arc<Device>>>,
    stopped: Receiver<()>,
}

impl GpuEngine {
    /// Opens the device of that number, below `devices()`, and tests it.
    ///
    /// # Errors
    /// Why there is no device, or what it gets wrong.
    pub fn open(number: usize) -> Result<Self, Fault> {
        Self::with_shape(number, Shape::default(), Duration::from_secs(1))
    }

    /// The same with another ring, and another pause before a failed device is tested.
    ///
    /// # Errors
    /// As `open`.
    pub fn with_shape(number: usize, shape: Shape, pause: Duration) -> Result<Self, Fault> {
        let device = ready_device(number, shape)?;
        let description = device.description.clone();
        let (stop, stopped) = bounded(0);
        let inner = Arc::new(Inner { number, shape, pause, device: Mutex::new(Some(device)), stopped });
        let (name, poison) = (format!("gpu {number}"), Poison::from_environment());
        Ok(GpuEngine { description, name, poison, inner, _stop: stop })
    }

    /// The device.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Whether batches are taken: not after a failure, until the device has passed a test.
    pub fn in_service(&self) -> bool {
        self.inner.device.lock().is_some()
    }

    /// Has the pool take its memory from here from now on: then the device copies without the CPU's help.
    pub fn supply(&self, pool: &BufferPool) {
        pool.set_source(self.memory());
    }

    /// Makes memory that the device reaches, while it is in service.
    pub(super) fn memory(&self) -> Source {
        let inner = Arc::downgrade(&self.inner);
        Arc::new(move |len| {
            let device = inner.upgrade()?.device.lock().clone();
            device?.lock_memory(len)
        })
    }

    /// Whether the device copies from and to a buffer without the CPU's help.
    pub(super) fn reaches(&self, buffer: &Buffer) -> bool {
        let device = self.inner.device.lock();
        let context = device.as_ref().map(|device| &device.context);
        context.zip(buffer.locked()).is_some_and(|(context, memory)| memory.is_of(context))
    }

    fn failed(&self, fault: &Fault) -> EngineError {
        EngineError::Failed { engine: self.name().to_owned(), cause: fault.to_string() }
    }
}

impl Engine for GpuEngine {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, batch: &mut Batch) -> Result<(), EngineError> {
        let order = batch.check()?;
        if order.is_empty() {
            return Ok(());
        }
        let device = self.inner.device.lock().clone();
        let device = device.ok_or_else(|| self.failed(&Fault::OutOfService))?;
        let poisoned = self.poison.as_ref().map_or(Ok(()), |poison| poison.count(&device));
        let done = poisoned.and_then(|()| pipeline::run(&device, batch, &order, &self.inner.shape));
        done.map_err(|fault| {
            Inner::fail(&self.inner, &device, &fault);
            self.failed(&fault)
        })
    }
}

/// A device that passed the test. Opened on a thread of its own, which a driver that hangs keeps.
fn ready_device(number: usize, shape: Shape) -> Result<Arc<Device>, Fault> {
    let (sender, ready) = bounded(1);
    let open = move || {
        let device = Device::open(number, shape).map(Arc::new);
        // Nobody waits any more for one that comes too late.
        let _ = sender.send(device.and_then(|device| selftest::self_test(&device).map(|()| device)));
    };
    thread::Builder::new().name("gpu-open".to_owned()).spawn(open).map_err(Fault::Thread)?;
    ready.recv_timeout(OPEN_TIMEOUT).unwrap_or(Err(Fault::Driver(DriverError::TimedOut(OPEN_TIMEOUT))))
}

impl Inner {
    /// Takes the device out of service, once, and has it tested from time to time.
    fn fail(this: &Arc<Self>, device: &Arc<Device>, fault: &Fault) {
        // Another caller has ended the service, and says why.
        if matches!(fault, Fault::OutOfService) {
            return;
        }
        device.end_service();
        let failed = {
            let mut current = this.device.lock();
            current.take_if(|current| Arc::ptr_eq(current, device))
        };
        let Some(failed) = failed else { return };
        let number = this.number;
        log::warn!("gpu {number}: {fault}; the CPU works in its place until it passes a test");
        let (inner, stopped, pause) = (Arc::downgrade(this), this.stopped.clone(), this.pause);
        let revive = move || revive(failed, &inner, &stopped, pause);
        if let Err(e) = thread::Builder::new().name("gpu-test".to_owned()).spawn(revive) {
            log::warn!("gpu {number}: stays out of service: no thread to test it: {e}");
        }
    }
}

/// Clears a failed device away and tests it until it passes or the engine is gone. On a thread of its own:
/// a driver that hangs holds up nobody else.
fn revive(failed: Arc<Device>, engine: &Weak<Inner>, stopped: &Receiver<()>, mut pause: Duration) {
    let (mut failed, mut said) = (Some(failed), String::new());
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        // Those who were at work on it when it failed are done within the time-out.
        failed.take_if(|device| Arc::strong_count(device) == 1);
        let Some((number, shape)) = engine.upgrade().map(|inner| (inner.number, inner.shape)) else { return };
        let tested = if failed.is_some() { Err(Fault::OutOfService) } else { ready_device(number, shape) };
        match (tested, engine.upgrade()) {
            (Ok(device), Some(inner)) => {
                log::info!("gpu {number}: passed the test, in service again");
                *inner.device.lock() = Some(device);
                return;
            }
            (Ok(_), None) => return,
            (Err(fault), _) if fault.to_string() != said => {
                said = fault.to_string();
                log::info!("gpu {number}: still out of service: {said}");
            }
            (Err(_), _) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
