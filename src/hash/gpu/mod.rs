//! The GPU as a helper of the threads that hash. It is opened when there is enough to do, every thread takes slots of
//! it, and when it fails all goes on without it, with the same digests.

mod device;
mod slot;

pub(super) use slot::{BYTES, Failed, InFlight, Slot, TREES};

use crate::{
    crypto::hash::{
        Function,
        md6::{Md6, forest::Tree},
    },
    engine::{Fault, driver::DriverError},
};
use crossbeam_channel::bounded;
use device::Device;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Bytes for each thread from which on a device is worth being opened: they take longer than that on the CPU.
const WORTH: u64 = 512 << 20;
/// A device that is not ready after this time is none.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Slots of a thread: one is read into while the other is on its way.
pub(super) const OWN: usize = 2;
/// Slots of all threads together, at most.
const SLOTS: usize = 32;

/// The first GPU, or the prospect of it.
pub struct Gpu {
    device: Mutex<Option<Arc<Device>>>,
    /// Slots that no thread has.
    free: Mutex<Vec<Slot>>,
    /// How many there are to be.
    slots: usize,
    /// The CPU hashes nothing that the device can, unless it failed.
    alone: bool,
    /// Bytes from which on the device is opened.
    worth: u64,
    /// Bytes that were found for it.
    found: AtomicU64,
    /// Somebody opens it, or has.
    asked: AtomicBool,
}

impl Gpu {
    fn new(threads: usize, alone: bool) -> Self {
        Gpu {
            device: Mutex::default(),
            free: Mutex::default(),
            slots: threads.saturating_mul(OWN).min(SLOTS),
            alone,
            worth: WORTH.saturating_mul(threads as u64),
            found: AtomicU64::new(0),
            asked: AtomicBool::new(alone),
        }
    }

    /// Opens the device now, for so many threads; the CPU hashes nothing that it can.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open(threads: usize) -> Result<Self, Fault> {
        let gpu = Gpu::new(threads, true);
        gpu.begin(ready_device()?);
        Ok(gpu)
    }

    /// Opens it once there is enough to do for so many threads; until then, and whenever it is busy, the CPU works.
    pub fn later(threads: usize) -> Self {
        Gpu::new(threads, false)
    }

    /// Whether it hashes a function.
    pub fn takes(function: &Function) -> bool {
        matches!(function, Function::Md6(_))
    }

    /// Says that so many bytes more are to be hashed that it can hash.
    pub(super) fn announce(&self, bytes: u64) {
        self.found.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Opens the device, once, if there is enough to do. The thread that comes here first does nothing else until it is
    /// open: a driver that has a processor for itself is ready sooner, by more than what the thread would have hashed.
    pub(super) fn open_if_worth(&self) {
        let enough = self.found.load(Ordering::Relaxed) >= self.worth;
        if !enough || self.asked.swap(true, Ordering::Relaxed) {
            return;
        }
        match ready_device() {
            Ok(device) => self.begin(device),
            Err(fault) => log::debug!("hashing on the CPU alone: {fault}"),
        }
    }

    /// Puts the device in service and makes its slots: here, so that no thread waits for the driver.
    fn begin(&self, device: Arc<Device>) {
        *self.device.lock() = Some(device.clone());
        for _ in 0..self.slots {
            match Slot::new(&device) {
                Ok(slot) => self.free.lock().push(slot),
                Err(fault) => return self.fail(&fault),
            }
        }
    }

    /// Whether it is in service.
    pub(super) fn serves(&self) -> bool {
        self.device.lock().is_some()
    }

    /// Whether to wait for it rather than to have the CPU hash.
    pub(super) fn is_waited_for(&self) -> bool {
        self.alone && self.serves()
    }

    /// A slot that no thread has, if it is in service.
    pub(super) fn slot(&self) -> Option<Slot> {
        if self.serves() { self.free.lock().pop() } else { None }
    }

    /// Takes back slots that are needed no more.
    pub(super) fn put(&self, slots: Vec<Slot>) {
        let wiped = slots.into_iter().map(Slot::begin_wiping).collect::<Result<Vec<_>, _>>();
        match wiped {
            Ok(slots) => self.free.lock().extend(slots),
            Err(fault) => self.fail(&fault.into()),
        }
    }

    /// Ends its service.
    pub(super) fn fail(&self, fault: &Fault) {
        if let Some(device) = self.device.lock().take() {
            // Whatever it still does, it does to memory that stays.
            device.context.give_up();
            log::warn!("gpu: {fault}; the CPU hashes in its place");
        }
    }
}

impl Drop for Gpu {
    /// Leaves the context and the memory in it to the end of the process, which is sooner done with them than the driver.
    fn drop(&mut self) {
        let slots = std::mem::take(self.free.get_mut());
        if let Some(device) = self.device.get_mut().take() {
            slots.iter().for_each(Slot::end_wiping);
            device.context.give_up();
        }
    }
}

/// A device that passed a test. Opened on a thread of its own, which a driver that hangs keeps.
fn ready_device() -> Result<Arc<Device>, Fault> {
    let (sender, ready) = bounded(1);
    let open = move || {
        // Nobody waits any more for one that comes too late.
        let _ =
            sender.send(Device::open(0).map(Arc::new).and_then(|device| tested(&device).map(|()| device)));
    };
    thread::Builder::new().name("gpu-open".to_owned()).spawn(open).map_err(Fault::Thread)?;
    ready.recv_timeout(OPEN_TIMEOUT).unwrap_or(Err(Fault::Driver(DriverError::TimedOut(OPEN_TIMEOUT))))
}

/// Compares what the device makes of a message and of a part with what the CPU makes of them.
fn tested(device: &Arc<Device>) -> Result<(), Fault> {
    const LENGTHS: [usize; 2] = [70_001, 40_000];
    let md6 =
        Md6::new(256).and_then(|md6| md6.with_key(b"test")).map_err(|_| Fault::Wrong("no such hash"))?;
    let mut slot = Slot::new(device)?;
    let second = LENGTHS[0].next_multiple_of(16);
    let all = &mut slot.input()[..second + LENGTHS[1]];
    all.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 + at / 256 * 7) as u8);
    let messages = [all[..LENGTHS[0]].to_vec(), all[second..].to_vec()];
    let trees = [(0, None), (1, Some(5))].map(|(message, part)| {
        let (data, bits) = ((message * second) as u64, 8 * LENGTHS[message] as u64);
        Tree { data, bits, part }
    });
    let function = Function::Md6(md6.clone());
    let done = slot.submit(&md6, &trees).and_then(|in_flight| in_flight.wait());
    let slot = done.map_err(|failed| failed.fault)?;
    let [whole, part] = slot.values() else { return Err(Fault::Wrong("too few values")) };
    if md6.of_root(whole) == md6.digest(&messages[0]) && part[..] == function.part(5, &messages[1], true) {
        Ok(())
    } else {
        Err(Fault::Wrong("the known answers of MD6"))
    }
}
