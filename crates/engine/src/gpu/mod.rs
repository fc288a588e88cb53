//! The GPU engine. Batches pass through shared, page-locked memory to CUDA kernels and return as the same
//! bytes that the CPU would have produced. Only a separate process (`worker`), one for each device, calls
//! the driver. Whatever that process does, a batch ends with its result, or with an error and its input
//! intact. After an error the process is killed and the engine leaves service. It returns once the device
//! passes a test in a new process.

mod channel;
mod control;
mod device;
pub mod driver;
mod fault;
mod installed;
mod kernels;
mod message;
mod pipeline;
mod plan;
mod process;
mod selftest;
mod slot;
mod starter;
mod timeouts;
mod transfer_modes;
mod worker;

pub use channel::ChannelError;
pub use device::Shape;
pub use driver::{Description, DriverError};
pub use fault::Fault;
pub use installed::is_installed;
pub use process::{COMMAND, start_gpu_process, start_gpus_through, start_gpus_with};
pub use starter::{COMMAND as STARTER_COMMAND, serve as serve_starter, start_gpus_apart};
pub use timeouts::Timeouts;
pub use transfer_modes::TransferModes;
pub use worker::serve;

use super::{
    batch::{Batch, Engine, EngineError},
    buffer::{Buffer, BufferPool, MemorySource},
};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use device::GpuDevice;
use parking_lot::Mutex;
use process::Process;
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Pause before a failed device is tested.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause between two tests of a device.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Number of devices that the driver reports; at least one. Opens none of them.
///
/// # Errors
/// Why there is none.
pub fn devices() -> Result<usize, Fault> {
    Process::start()?.count()
}

/// Seals and opens on a CUDA device.
pub struct GpuEngine {
    description: Description,
    name: String,
    inner: Arc<Inner>,
    /// Dropping it ends the thread that tests a failed device.
    _stop: Sender<()>,
}

struct Inner {
    /// The driver's number of the device.
    number: usize,
    shape: Shape,
    /// Pause before the first test of a failed device; doubled after each test.
    pause: Duration,
    device: Mutex<Option<Arc<GpuDevice>>>,
    /// Set from [`GpuEngine::put_away`] to [`GpuEngine::bring_back`]: no device may enter service.
    away: AtomicBool,
    /// Set if `put_away` took a device out of service, so that no thread is testing one.
    taken: AtomicBool,
    stopped: Receiver<()>,
}

impl GpuEngine {
    /// Opens and tests all devices concurrently, since each takes a while, mostly waiting. Returns for each
    /// device number the engine, or why it cannot be used.
    ///
    /// # Errors
    /// Why there is no device at all.
    pub(super) fn open_all() -> Result<Vec<Result<Self, Fault>>, Fault> {
        // The process that counts the devices is reused for the first one, because the driver is slow to
        // start.
        let first = Process::start()?;
        let count = first.count()?;
        let open = |number| {
            let process = if number == 0 { first.clone() } else { Process::start()? };
            Self::in_process(process, number, Shape::default(), PAUSE)
        };
        Ok(thread::scope(|scope| {
            let opening: Vec<_> = (0..count).map(|number| scope.spawn(move || open(number))).collect();
            opening.into_iter().map(|one| one.join().unwrap_or(Err(Fault::OutOfService))).collect()
        }))
    }

    /// Opens and tests the device with this number, which is below `devices()`.
    ///
    /// # Errors
    /// Why there is no device, or the test that it failed.
    pub fn open(number: usize) -> Result<Self, Fault> {
        Self::with_shape(number, Shape::default(), PAUSE)
    }

    /// Opens the device with another ring, and another pause before a failed device is tested.
    ///
    /// # Errors
    /// As `open`.
    pub fn with_shape(number: usize, shape: Shape, pause: Duration) -> Result<Self, Fault> {
        Self::in_process(Process::start()?, number, shape, pause)
    }

    fn in_process(
        process: Arc<Process>,
        number: usize,
        shape: Shape,
        pause: Duration,
    ) -> Result<Self, Fault> {
        let device = ready_device(process, number, shape)?;
        let description = device.description.clone();
        let (stop, stopped) = bounded(0);
        let device = Mutex::new(Some(device));
        let (away, taken) = (AtomicBool::new(false), AtomicBool::new(false));
        let inner = Arc::new(Inner { number, shape, pause, device, away, taken, stopped });
        Ok(GpuEngine { description, name: format!("gpu {number}"), inner, _stop: stop })
    }

    /// Description of the device.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Whether batches are accepted. After a failure they are not, until the device has passed a test.
    pub fn in_service(&self) -> bool {
        self.inner.device.lock().is_some()
    }

    /// Takes the device out of service. Its process wipes the device and ends, or is killed.
    pub(super) fn put_away(&self) {
        let mut in_service = self.inner.device.lock();
        self.inner.away.store(true, Ordering::Relaxed);
        // A failed device is being tested by a thread, which continues after `bring_back`.
        let Some(device) = in_service.take() else { return };
        drop(in_service);
        self.inner.taken.store(true, Ordering::Relaxed);
        let process = Arc::downgrade(&device.process);
        drop(device);
        // Something else still holds the device, for example a measurement: do not wait for it.
        if let Some(process) = process.upgrade() {
            process.kill();
        }
    }

    /// Reopens a device that `put_away` took out of service, on a separate thread.
    pub(super) fn bring_back(&self) {
        self.inner.away.store(false, Ordering::Relaxed);
        if self.inner.taken.swap(false, Ordering::Relaxed) {
            Inner::revive(&self.inner, None, Duration::ZERO);
        }
    }

    /// From now on the pool allocates its memory here, so that the device copies without the CPU's help.
    pub fn supply(&self, pool: &BufferPool) {
        pool.set_source(self.memory());
    }

    /// A source of memory that the device can reach, while it is in service.
    pub(super) fn memory(&self) -> MemorySource {
        let inner = Arc::downgrade(&self.inner);
        Arc::new(move |len| {
            let device = inner.upgrade()?.device.lock().clone();
            device?.lend_memory(len)
        })
    }

    /// Whether the device copies from and to this buffer without the CPU's help.
    pub(super) fn reaches(&self, buffer: &Buffer) -> bool {
        let device = self.inner.device.lock();
        let process = device.as_ref().map(|device| &device.process);
        process.zip(buffer.lent()).is_some_and(|(process, memory)| memory.is_of(process))
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
        pipeline::run(&device, batch, &order, self.inner.shape.modes).map_err(|fault| {
            Inner::fail(&self.inner, &device, &fault);
            self.failed(&fault)
        })
    }
}

/// The device of this process, after it has passed the test.
fn ready_device(process: Arc<Process>, number: usize, shape: Shape) -> Result<Arc<GpuDevice>, Fault> {
    let device = Arc::new(GpuDevice::open(process, number, shape)?);
    selftest::self_test(&device)?;
    Ok(device)
}

impl Inner {
    /// Takes the device out of service, once, and starts testing it from time to time.
    fn fail(this: &Arc<Self>, device: &Arc<GpuDevice>, fault: &Fault) {
        // Another caller has already ended the service and reports why.
        if matches!(fault, Fault::OutOfService) {
            return;
        }
        device.end_service();
        let failed = {
            let mut current = this.device.lock();
            current.take_if(|current| Arc::ptr_eq(current, device))
        };
        if failed.is_none() {
            return;
        }
        let number = this.number;
        log::warn!("gpu {number}: {fault}; the CPU works in its place until it passes a test");
        Inner::revive(this, Some(device.process.clone()), this.pause);
    }

    /// Starts a thread that tests the device, for the first time after `pause`.
    fn revive(this: &Arc<Self>, last: Option<Arc<Process>>, pause: Duration) {
        let number = this.number;
        let (inner, stopped) = (Arc::downgrade(this), this.stopped.clone());
        let revive = move || revive(last, &inner, &stopped, pause);
        if let Err(e) = thread::Builder::new().name("gpu-test".to_owned()).spawn(revive) {
            log::warn!("gpu {number}: remains out of service: cannot start its test thread: {e}");
        }
    }
}

/// Tests a device in new processes until it passes or the engine is gone. A new process starts only when
/// the previous one is gone, including the one that failed. Runs on a separate thread, so that a hanging
/// driver blocks nothing else.
fn revive(mut last: Option<Arc<Process>>, engine: &Weak<Inner>, stopped: &Receiver<()>, mut pause: Duration) {
    let mut said = String::new();
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let Some(inner) = engine.upgrade() else { return };
        let (number, shape, shortest) = (inner.number, inner.shape, inner.pause);
        if inner.away.load(Ordering::Relaxed) {
            pause = shortest;
            continue;
        }
        drop(inner);
        let tested = if last.as_ref().is_none_or(|last| last.is_gone()) {
            Process::start()
        } else {
            Err(Fault::Lingers)
        }
        .and_then(|process| {
            last = Some(process.clone());
            ready_device(process.clone(), number, shape).inspect_err(|_| process.kill())
        });
        match (tested, engine.upgrade()) {
            (Ok(device), Some(inner)) => {
                let mut in_service = inner.device.lock();
                if !inner.away.load(Ordering::Relaxed) {
                    log::info!("gpu {number}: passed the test, in service again");
                    *in_service = Some(device);
                    return;
                }
            }
            (Ok(_), None) => return,
            (Err(fault), _) if fault.to_string() != said => {
                said = fault.to_string();
                log::info!("gpu {number}: still out of service: {said}");
            }
            (Err(_), _) => {}
        }
        pause = (pause * 2).max(shortest).min(LONGEST_PAUSE);
    }
}
