//! The GPU as a helper of the threads that hash. It is opened when there is enough to do, every thread takes slots of
//! it, and when it fails all goes on without it, with the same digests.

mod device;
mod slot;

pub(super) use slot::{BYTES, Failed, Flying, Slot, TREES};

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
    thread::{self, JoinHandle},
    time::Duration,
};

/// Bytes for each thread from which on a device is worth being opened: they take longer than that on the CPU.
const WORTH: u64 = 512 << 20;
/// A device that is not ready after this time is none.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// The first GPU, or the prospect of it.
pub struct Gpu {
    shared: Arc<Shared>,
    /// The CPU hashes nothing that the device can, unless it failed.
    alone: bool,
    /// Bytes from which on the device is opened.
    worth: u64,
    /// Opens it.
    opener: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    device: Mutex<Option<Arc<Device>>>,
    /// Somebody opens it, or has.
    asked: AtomicBool,
    /// Bytes that were found for it.
    found: AtomicU64,
}

impl Gpu {
    /// Opens the device now; the CPU hashes nothing that it can.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open() -> Result<Self, Fault> {
        let shared = Shared { asked: AtomicBool::new(true), ..Shared::default() };
        *shared.device.lock() = Some(ready_device()?);
        Ok(Gpu { shared: Arc::new(shared), alone: true, worth: 0, opener: Mutex::default() })
    }

    /// Opens it in the background once there is enough to do for so many threads; until then, and whenever it is busy,
    /// the CPU works.
    pub fn later(threads: usize) -> Self {
        let worth = WORTH.saturating_mul(threads as u64);
        Gpu { shared: Arc::default(), alone: false, worth, opener: Mutex::default() }
    }

    /// Whether it hashes a function.
    pub fn takes(function: &Function) -> bool {
        matches!(function, Function::Md6(_))
    }

    /// Says that so many bytes more are to be hashed that it can hash.
    pub(super) fn announce(&self, bytes: u64) {
        let shared = &self.shared;
        let found = shared.found.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if found < self.worth || shared.asked.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = shared.clone();
        let open = move || match ready_device() {
            Ok(device) => *shared.device.lock() = Some(device),
            Err(fault) => log::debug!("hashing on the CPU alone: {fault}"),
        };
        match thread::Builder::new().name("gpu-open".to_owned()).spawn(open) {
            Ok(opener) => *self.opener.lock() = Some(opener),
            Err(e) => log::debug!("hashing on the CPU alone: {e}"),
        }
    }

    /// Whether it is in service.
    pub(super) fn serves(&self) -> bool {
        self.shared.device.lock().is_some()
    }

    /// Whether to wait for it rather than to have the CPU hash.
    pub(super) fn is_waited_for(&self) -> bool {
        self.alone && self.serves()
    }

    /// Another slot, if it is in service and has not too many.
    pub(super) fn slot(&self) -> Option<Slot> {
        let device = self.shared.device.lock().clone()?;
        match Slot::new(&device) {
            Ok(slot) => slot,
            Err(fault) => {
                self.fail(&fault);
                None
            }
        }
    }

    /// Ends its service.
    pub(super) fn fail(&self, fault: &Fault) {
        if let Some(device) = self.shared.device.lock().take() {
            // Whatever it still does, it does to memory that stays.
            device.context.give_up();
            log::warn!("gpu: {fault}; the CPU hashes in its place");
        }
    }
}

impl Drop for Gpu {
    /// Leaves the context to the end of the process, which is sooner done with it than the driver. Slots were wiped
    /// when the threads ended. A process must not end while the driver begins.
    fn drop(&mut self) {
        if let Some(opener) = self.opener.get_mut().take() {
            let _ = opener.join(); // It does nothing that could panic.
        }
        if let Some(device) = self.shared.device.lock().take() {
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
    let Some(mut slot) = Slot::new(device)? else { return Err(Fault::Wrong("no slot for a test")) };
    let second = LENGTHS[0].next_multiple_of(16);
    let all = &mut slot.input()[..second + LENGTHS[1]];
    all.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 + at / 256 * 7) as u8);
    let messages = [all[..LENGTHS[0]].to_vec(), all[second..].to_vec()];
    let trees = [(0, None), (1, Some(5))].map(|(message, part)| {
        let (data, bits) = ((message * second) as u64, 8 * LENGTHS[message] as u64);
        Tree { data, bits, part }
    });
    let function = Function::Md6(md6.clone());
    let done = slot.submit(&md6, &trees).and_then(|flying| flying.wait());
    let slot = done.map_err(|failed| failed.fault)?;
    let [whole, part] = slot.values() else { return Err(Fault::Wrong("too few values")) };
    if md6.of_root(whole) == md6.digest(&messages[0]) && part[..] == function.part(5, &messages[1], true) {
        Ok(())
    } else {
        Err(Fault::Wrong("the known answers of MD6"))
    }
}
