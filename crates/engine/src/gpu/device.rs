//! One device in service: its process and its ring of slots.

use super::{
    driver::Description, fault::Fault, plan::Limits, process::Process, slot::RingSlot, timeouts::Timeouts,
    transfer_modes::TransferModes,
};
use crate::buffer::LentMemory;
use crypto::chunk::CHUNK;
use parking_lot::{Condvar, Mutex};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Maximum number of chunks per 4 KiB of a piece. A piece of short chunks has many.
const CHUNKS_PER_PAGE: usize = 2;
/// Maximum number of keys in one piece.
const KEYS: usize = 64;

/// Sizes of the ring, and its time limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Maximum bytes of a piece; a multiple of 4096.
    pub piece: usize,
    /// Maximum number of pieces on the device at once.
    pub slots: usize,
    /// How pieces are processed, by load.
    pub modes: TransferModes,
    /// Time limits for the device.
    pub timeouts: Timeouts,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { piece: 16 << 20, slots: 12, modes: TransferModes::default(), timeouts: Timeouts::default() }
    }
}

impl Shape {
    /// Limits of one piece.
    pub(super) fn limits(&self) -> Limits {
        Limits { bytes: self.piece, chunks: self.piece / 4096 * CHUNKS_PER_PAGE, keys: KEYS }
    }
}

/// A device with everything needed to run batches.
pub(super) struct GpuDevice {
    pub process: Arc<Process>,
    pub description: Description,
    pub shape: Shape,
    ring: Mutex<SlotRing>,
    returned: Condvar,
    /// Chunks in flight on the device.
    pub chunks_in_flight: AtomicUsize,
    /// Counts the samples, to spread them over the chunks.
    samples: AtomicU64,
}

#[derive(Default)]
struct SlotRing {
    free: Vec<RingSlot>,
    /// Callers that wait and hold no slot. They have priority over those that hold one.
    waiting: usize,
    broken: bool,
}

impl GpuDevice {
    /// Makes the process open the device with this number, and creates the ring.
    ///
    /// # Errors
    /// Why the device cannot be used.
    pub fn open(process: Arc<Process>, number: usize, shape: Shape) -> Result<Self, Fault> {
        let description = process.open(number, shape.limits())?;
        let free =
            (0..shape.slots).map(|_| RingSlot::new(&process, shape.limits())).collect::<Result<_, _>>()?;
        Ok(GpuDevice {
            process,
            description,
            shape,
            ring: Mutex::new(SlotRing { free, waiting: 0, broken: false }),
            returned: Condvar::new(),
            chunks_in_flight: AtomicUsize::new(0),
            samples: AtomicU64::new(0),
        })
    }

    /// Memory that the device can reach, or `None` if none is available.
    pub fn lend_memory(&self, len: usize) -> Option<LentMemory> {
        if self.ring.lock().broken {
            return None;
        }
        let lent = self.process.lend(len);
        lent.inspect_err(|fault| log::debug!("gpu: no memory for {len} bytes: {fault}")).ok()
    }

    /// A free slot, if there is one and nobody else is waiting.
    pub fn try_take(&self) -> Option<RingSlot> {
        let mut ring = self.ring.lock();
        if ring.waiting > 0 || ring.broken { None } else { ring.free.pop() }
    }

    /// A free slot; blocks until there is one. Only for callers that hold none.
    ///
    /// # Errors
    /// `OutOfService` once the device has failed.
    pub fn take(&self) -> Result<RingSlot, Fault> {
        let mut ring = self.ring.lock();
        ring.waiting += 1;
        self.returned.wait_while(&mut ring, |ring| ring.free.is_empty() && !ring.broken);
        ring.waiting -= 1;
        if ring.broken {
            return Err(Fault::OutOfService);
        }
        ring.free.pop().ok_or(Fault::OutOfService)
    }

    /// Wipes and returns a slot whose piece is done.
    pub fn put(&self, mut slot: RingSlot) {
        slot.wipe();
        self.ring.lock().free.push(slot);
        self.returned.notify_one();
    }

    /// Time limit for a piece that is waited for from now on: the time for all chunks on the device, each
    /// counted as a full chunk.
    pub fn limit(&self) -> Duration {
        let chunks = self.chunks_in_flight.load(Ordering::Relaxed);
        self.shape.timeouts.limit(chunks.saturating_mul(CHUNK))
    }

    /// Ends the service and kills the process. Callers that wait for a slot get an error.
    pub fn end_service(&self) {
        self.ring.lock().broken = true;
        self.returned.notify_all();
        self.process.kill();
    }

    /// A number below `end` that differs from call to call.
    pub fn sample(&self, end: usize) -> usize {
        // Fibonacci hashing: this multiplier maps neighbouring counts far from each other.
        let count = self.samples.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(count) * end as u128) >> 64) as usize
    }
}
