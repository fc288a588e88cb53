//! One device in service: its process and the ring of slots.

use super::{
    driver::Description, fault::Fault, patience::Patience, plan::Limits, process::Process, slot::RingSlot,
    ways::Ways,
};
use crate::{crypto::chunk::CHUNK, engine::buffer::LentMemory};
use parking_lot::{Condvar, Mutex};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Chunks for each 4 KiB of a piece, at most: short chunks make a piece of many.
const CHUNKS_PER_PAGE: usize = 2;
/// Keys of one piece.
const KEYS: usize = 64;

/// Sizes of the ring, and how long it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a piece, at most: a multiple of 4096.
    pub piece: usize,
    /// Pieces on the device at a time.
    pub slots: usize,
    /// Which way pieces go.
    pub ways: Ways,
    /// How long it may take.
    pub patience: Patience,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { piece: 16 << 20, slots: 12, ways: Ways::default(), patience: Patience::default() }
    }
}

impl Shape {
    /// What one piece may hold.
    pub(super) fn limits(&self) -> Limits {
        Limits { bytes: self.piece, chunks: self.piece / 4096 * CHUNKS_PER_PAGE, keys: KEYS }
    }
}

/// A device with everything that it needs to run batches.
pub(super) struct Device {
    pub process: Arc<Process>,
    pub description: Description,
    pub shape: Shape,
    ring: Mutex<Ring>,
    returned: Condvar,
    /// Chunks on the device.
    pub chunks_in_flight: AtomicUsize,
    /// Counts the samples, to spread them.
    samples: AtomicU64,
}

#[derive(Default)]
struct Ring {
    free: Vec<RingSlot>,
    /// Callers that wait and hold no slot: they come before those that hold some.
    waiting: usize,
    broken: bool,
}

impl Device {
    /// Has the process open the device of that number, and makes the ring.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(process: Arc<Process>, number: usize, shape: Shape) -> Result<Self, Fault> {
        let description = process.open(number, shape.limits())?;
        let free =
            (0..shape.slots).map(|_| RingSlot::new(&process, shape.limits())).collect::<Result<_, _>>()?;
        Ok(Device {
            process,
            description,
            shape,
            ring: Mutex::new(Ring { free, waiting: 0, broken: false }),
            returned: Condvar::new(),
            chunks_in_flight: AtomicUsize::new(0),
            samples: AtomicU64::new(0),
        })
    }

    /// Memory that the device reaches, if there is any to be had.
    pub fn lend_memory(&self, len: usize) -> Option<LentMemory> {
        if self.ring.lock().broken {
            return None;
        }
        let lent = self.process.lend(len);
        lent.inspect_err(|fault| log::debug!("gpu: no memory for {len} bytes: {fault}")).ok()
    }

    /// A free slot, if there is one that nobody else waits for.
    pub fn try_take(&self) -> Option<RingSlot> {
        let mut ring = self.ring.lock();
        if ring.waiting > 0 || ring.broken { None } else { ring.free.pop() }
    }

    /// A free slot; waits for one. Only for callers that hold none.
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

    /// Gives a slot back whose piece is done.
    pub fn put(&self, mut slot: RingSlot) {
        slot.wipe();
        self.ring.lock().free.push(slot);
        self.returned.notify_one();
    }

    /// How long a piece that is waited for from now on may take: as long as all chunks on the device, each a whole one.
    pub fn limit(&self) -> Duration {
        let chunks = self.chunks_in_flight.load(Ordering::Relaxed);
        self.shape.patience.limit(chunks.saturating_mul(CHUNK))
    }

    /// Ends the service, and the process with it: whoever waits for a slot gets none.
    pub fn end_service(&self) {
        self.ring.lock().broken = true;
        self.returned.notify_all();
        self.process.kill();
    }

    /// A number below `end` that differs from call to call.
    pub fn sample(&self, end: usize) -> usize {
        // The multiplier of Fibonacci hashing: neighbouring counts land far from each other.
        let count = self.samples.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(count) * end as u128) >> 64) as usize
    }
}
