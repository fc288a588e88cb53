//! The GPU as a helper for the hashing threads. It is opened once there is enough to hash. Every thread
//! takes slots of it. If it fails, the threads continue without it and produce the same digests.

mod device;
mod slot;

pub(super) use slot::{BYTES, Failed, MessageSlot, SlotInFlight, TREES};

use crossbeam_channel::bounded;
use crypto::hash::{
    Function,
    md6::{Md6, forest::Tree},
};
use device::HashDevice;
use engine::{Fault, driver::DriverError};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// The device is opened once this many bytes per thread are announced: hashing them on the CPU takes longer
/// than opening it.
const WORTH: u64 = 512 << 20;
/// Time limit for opening a device. A device that takes longer is not used.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Slots per thread: one is filled while the other is in flight.
pub(super) const OWN: usize = 2;
/// Maximum number of slots of all threads together.
const SLOTS: usize = 32;

/// The first GPU, open or to be opened later.
pub struct HashGpu {
    device: Mutex<Option<Arc<HashDevice>>>,
    /// Slots not held by any thread.
    free: Mutex<Vec<MessageSlot>>,
    /// Number of slots to create.
    slots: usize,
    /// The CPU hashes nothing that the device can hash, unless the device failed.
    alone: bool,
    /// Bytes to be announced before the device is opened.
    worth: u64,
    /// Bytes announced so far.
    announced: AtomicU64,
    /// Set once a thread has started to open the device.
    asked: AtomicBool,
}

impl HashGpu {
    fn new(threads: usize, alone: bool) -> Self {
        HashGpu {
            device: Mutex::default(),
            free: Mutex::default(),
            slots: threads.saturating_mul(OWN).min(SLOTS),
            alone,
            worth: WORTH.saturating_mul(threads as u64),
            announced: AtomicU64::new(0),
            asked: AtomicBool::new(alone),
        }
    }

    /// Opens the device now, for this number of threads. The CPU then hashes nothing that the device can
    /// hash.
    ///
    /// # Errors
    /// Why the device cannot be used.
    pub fn open(threads: usize) -> Result<Self, Fault> {
        let gpu = HashGpu::new(threads, true);
        gpu.begin(ready_device()?);
        Ok(gpu)
    }

    /// The device will be opened once there is enough to hash for this number of threads. Until then, and
    /// whenever the device is busy, the CPU hashes.
    pub fn later(threads: usize) -> Self {
        HashGpu::new(threads, false)
    }

    /// Whether a GPU supports the function.
    pub fn takes(function: &Function) -> bool {
        matches!(function, Function::Md6(_))
    }

    /// Announces more bytes that the device could hash.
    pub(super) fn announce(&self, bytes: u64) {
        self.announced.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Opens the device, once, if there is enough to hash. The first thread to get here waits until it is
    /// open: a driver with a processor to itself is ready sooner, which gains more than the thread could
    /// have hashed.
    pub(super) fn open_if_worth(&self) {
        let enough = self.announced.load(Ordering::Relaxed) >= self.worth;
        if !enough || self.asked.swap(true, Ordering::Relaxed) {
            return;
        }
        match ready_device() {
            Ok(device) => self.begin(device),
            Err(fault) => log::debug!("hashing on the CPU alone: {fault}"),
        }
    }

    /// Puts the device in service and creates its slots now, so that no thread waits for the driver later.
    fn begin(&self, device: Arc<HashDevice>) {
        *self.device.lock() = Some(device.clone());
        for _ in 0..self.slots {
            match MessageSlot::new(&device) {
                Ok(slot) => self.free.lock().push(slot),
                Err(fault) => return self.fail(&fault),
            }
        }
    }

    /// Whether the device is in service.
    pub(super) fn serves(&self) -> bool {
        self.device.lock().is_some()
    }

    /// Whether threads wait for the device instead of hashing on the CPU.
    pub(super) fn is_waited_for(&self) -> bool {
        self.alone && self.serves()
    }

    /// Takes a free slot, if the device is in service.
    pub(super) fn slot(&self) -> Option<MessageSlot> {
        if self.serves() { self.free.lock().pop() } else { None }
    }

    /// Wipes slots that are no longer needed and makes them available again.
    pub(super) fn put(&self, slots: Vec<MessageSlot>) {
        let wiped = slots.into_iter().map(MessageSlot::begin_wiping).collect::<Result<Vec<_>, _>>();
        match wiped {
            Ok(slots) => self.free.lock().extend(slots),
            Err(fault) => self.fail(&fault.into()),
        }
    }

    /// Takes the device out of service.
    pub(super) fn fail(&self, fault: &Fault) {
        if let Some(device) = self.device.lock().take() {
            // The device may still use its memory, so that is never freed.
            device.context.give_up();
            log::warn!("gpu: {fault}; the CPU hashes in its place");
        }
    }
}

impl Drop for HashGpu {
    /// Wipes the slots' memory on the device. The context and its memory are left to the end of the
    /// process, which frees them faster than the driver does.
    fn drop(&mut self) {
        let slots = std::mem::take(self.free.get_mut());
        if let Some(device) = self.device.get_mut().take() {
            slots.iter().for_each(MessageSlot::end_wiping);
            device.context.give_up();
        }
    }
}

/// A device that has passed a test. It is opened on a separate thread, because a driver may hang.
fn ready_device() -> Result<Arc<HashDevice>, Fault> {
    let (sender, ready) = bounded(1);
    let open = move || {
        // The receiver is gone if opening took too long.
        let _ = sender
            .send(HashDevice::open(0).map(Arc::new).and_then(|device| tested(&device).map(|()| device)));
    };
    thread::Builder::new().name("gpu-open".to_owned()).spawn(open).map_err(Fault::Thread)?;
    ready.recv_timeout(OPEN_TIMEOUT).unwrap_or(Err(Fault::Driver(DriverError::TimedOut(OPEN_TIMEOUT))))
}

/// Compares the device's hashes of a message and of a part with those of the CPU.
fn tested(device: &Arc<HashDevice>) -> Result<(), Fault> {
    const LENGTHS: [usize; 2] = [70_001, 40_000];
    let md6 =
        Md6::new(256).and_then(|md6| md6.with_key(b"test")).map_err(|_| Fault::Wrong("no such hash"))?;
    let mut slot = MessageSlot::new(device)?;
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
