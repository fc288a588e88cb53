//! The GPU engine: batches go through shared, page-locked memory to CUDA kernels and come back as the bytes that the
//! CPU would have made. The driver is spoken to by a process of its own (`worker`), one for each device. Whatever that
//! does, a batch ends with its result or with an error and its input intact; then the process is killed, the engine
//! leaves service, and it comes back once the device passes a test in a new process.

mod channel;
mod control;
mod device;
pub mod driver;
mod fault;
mod installed;
mod kernels;
mod message;
mod patience;
mod pipeline;
mod plan;
mod process;
mod selftest;
mod slot;
mod starter;
mod ways;
mod worker;

pub use channel::ChannelError;
pub use device::Shape;
pub use driver::{Description, DriverError};
pub use fault::Fault;
pub use installed::is_installed;
pub use patience::Patience;
pub use process::{COMMAND, start_gpu_process, start_gpus_through, start_gpus_with};
pub use starter::{COMMAND as STARTER_COMMAND, serve as serve_starter, start_gpus_apart};
pub use ways::Ways;
pub use worker::serve;

use super::{
    batch::{Batch, Engine, EngineError},
    buffer::{Buffer, BufferPool, Source},
};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use device::Device;
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

/// The pause before a device that failed is tested.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two tests of one.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Devices of the driver, at least one: what can be told without opening them.
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
    /// Whether there is to be none: from [`GpuEngine::put_away`] to [`GpuEngine::bring_back`].
    away: AtomicBool,
    /// Whether one was taken out of service by that, and no thread tests one.
    taken: AtomicBool,
    stopped: Receiver<()>,
}

impl GpuEngine {
    /// Opens every device, all at once (each takes a while, mostly waiting), and tests them: by its number the engine, or
    /// why it is none.
    ///
    /// # Errors
    /// Why there is no device at all.
    pub(super) fn open_all() -> Result<Vec<Result<Self, Fault>>, Fault> {
        // The process that counts them goes on with the first: the driver takes long to start.
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

    /// Opens the device of that number, below `devices()`, and tests it.
    ///
    /// # Errors
    /// Why there is no device, or what it gets wrong.
    pub fn open(number: usize) -> Result<Self, Fault> {
        Self::with_shape(number, Shape::default(), PAUSE)
    }

    /// The same with another ring, and another pause before a failed device is tested.
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

    /// The device.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Whether batches are taken: not after a failure, until the device has passed a test.
    pub fn in_service(&self) -> bool {
        self.inner.device.lock().is_some()
    }

    /// Takes the device out of service. Its process wipes the device and ends, or is killed.
    pub(super) fn put_away(&self) {
        let mut in_service = self.inner.device.lock();
        self.inner.away.store(true, Ordering::Relaxed);
        // One that failed is tested by a thread, which goes on when it is brought back.
        let Some(device) = in_service.take() else { return };
        drop(in_service);
        self.inner.taken.store(true, Ordering::Relaxed);
        let process = Arc::downgrade(&device.process);
        drop(device);
        // Somebody measures it.
        if let Some(process) = process.upgrade() {
            process.kill();
        }
    }

    /// Opens a device that was taken out of service so, on a thread of its own.
    pub(super) fn bring_back(&self) {
        self.inner.away.store(false, Ordering::Relaxed);
        if self.inner.taken.swap(false, Ordering::Relaxed) {
            Inner::revive(&self.inner, None, Duration::ZERO);
        }
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
            device?.lend_memory(len)
        })
    }

    /// Whether the device copies from and to a buffer without the CPU's help.
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
        pipeline::run(&device, batch, &order, self.inner.shape.ways).map_err(|fault| {
            Inner::fail(&self.inner, &device, &fault);
            self.failed(&fault)
        })
    }
}

/// The device of that process, which has passed the test.
fn ready_device(process: Arc<Process>, number: usize, shape: Shape) -> Result<Arc<Device>, Fault> {
    let device = Arc::new(Device::open(process, number, shape)?);
    selftest::self_test(&device)?;
    Ok(device)
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
        if failed.is_none() {
            return;
        }
        let number = this.number;
        log::warn!("gpu {number}: {fault}; the CPU works in its place until it passes a test");
        Inner::revive(this, Some(device.process.clone()), this.pause);
    }

    /// Has it tested on a thread of its own, for the first time after that pause.
    fn revive(this: &Arc<Self>, last: Option<Arc<Process>>, pause: Duration) {
        let number = this.number;
        let (inner, stopped) = (Arc::downgrade(this), this.stopped.clone());
        let revive = move || revive(last, &inner, &stopped, pause);
        if let Err(e) = thread::Builder::new().name("gpu-test".to_owned()).spawn(revive) {
            log::warn!("gpu {number}: stays out of service: no thread to test it: {e}");
        }
    }
}

/// Tests a device in new processes until it passes or the engine is gone; one after the other, and only when the last,
/// at first the failed one if it failed, is gone. On a thread of its own: a driver that hangs holds up nobody else.
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
