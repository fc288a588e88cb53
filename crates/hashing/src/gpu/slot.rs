//! A slot: memory for messages, and the transfers and kernels that hash them. A lane of the engine
//! (`engine::gpu::worker`) looks similar, but takes its orders from another process and waits for a single
//! event. The driver module contains the code that both share.

use super::device::HashDevice;
use crypto::hash::md6::{
    Md6, VALUE,
    forest::{Forest, LAYER, Tree},
};
use engine::{
    Fault, Timeouts,
    driver::{DeviceMemory, DriverError, Event, HostMemory, Stream},
};
use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};
use zeroize::Zeroize;

/// Bytes of messages that fit into a slot.
pub const BYTES: usize = 4 << 20;
/// Messages that fit into a slot.
pub const TREES: usize = 512;
/// Values of all levels: those for `BYTES` of messages, plus one incomplete node per level and tree.
const VALUES: usize = BYTES / 512 * 2 + 16 * TREES;
/// Offset of the layers, behind the state shared by all nodes.
const LAYERS: usize = 80;
/// Bytes of the descriptions: layers of all levels. A tree over `BYTES` has seven levels.
const DESCRIBED: usize = LAYERS + 8 * TREES * LAYER;
/// Interval at which the event is polled.
const TICK: Duration = Duration::from_micros(50);

/// A slot that is not in flight.
pub struct MessageSlot {
    input: HostMemory,
    described: HostMemory,
    values: HostMemory,
    input_there: DeviceMemory,
    described_there: DeviceMemory,
    values_there: DeviceMemory,
    stream: Stream,
    event: Event,
    /// Number of messages last submitted.
    trees: usize,
    device: Arc<HashDevice>,
}

/// A slot whose messages the device is hashing.
pub struct SlotInFlight {
    /// `None` only after `wait` has taken it.
    slot: Option<MessageSlot>,
}

/// A slot whose messages were not hashed, and why. It still contains all of them.
pub struct Failed {
    pub slot: MessageSlot,
    pub fault: Fault,
}

impl MessageSlot {
    /// Allocates a slot.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) fn new(device: &Arc<HashDevice>) -> Result<Self, Fault> {
        let context = &device.context;
        Ok(MessageSlot {
            input: HostMemory::new(context, BYTES)?,
            described: HostMemory::new(context, DESCRIBED)?,
            values: HostMemory::new(context, TREES * VALUE)?,
            input_there: DeviceMemory::new(context, BYTES)?,
            described_there: DeviceMemory::new(context, DESCRIBED)?,
            values_there: DeviceMemory::new(context, VALUES * VALUE)?,
            stream: Stream::new(context)?,
            event: Event::new(context)?,
            trees: 0,
            device: device.clone(),
        })
    }

    /// The memory for messages.
    pub fn input(&mut self) -> &mut [u8] {
        &mut self.input
    }

    /// The bytes of the messages.
    pub fn messages(&self) -> &[u8] {
        &self.input
    }

    /// The values at the top of the submitted trees, in order.
    pub fn values(&self) -> &[[u8; VALUE]] {
        &self.values.as_chunks().0[..self.trees]
    }

    /// Submits these trees over the input, at most `TREES` of them, to the device.
    ///
    /// # Errors
    /// The driver's error.
    pub fn submit(mut self, md6: &Md6, trees: &[Tree]) -> Result<SlotInFlight, Box<Failed>> {
        match self.send(md6, trees) {
            Ok(()) => {
                self.device.in_flight.fetch_add(BYTES, Ordering::Relaxed);
                Ok(SlotInFlight { slot: Some(self) })
            }
            Err(fault) => {
                // Part of it may be in flight.
                self.device.context.give_up();
                Err(Box::new(Failed { slot: self, fault: fault.into() }))
            }
        }
    }

    fn send(&mut self, md6: &Md6, trees: &[Tree]) -> Result<(), DriverError> {
        let forest = Forest::of_md6(trees);
        let described = LAYERS + forest.layers.len();
        let used =
            trees.iter().map(|tree| tree.data as usize + tree.bits.div_ceil(8) as usize).max().unwrap_or(0);
        // invariant: callers fill one slot, and the size and number of its messages bound everything below
        assert!(used <= BYTES && trees.len() <= TREES && described <= DESCRIBED && forest.values <= VALUES);
        let shared = md6.shared();
        self.described[..shared.len()].copy_from_slice(&*shared);
        self.described[LAYERS..described].copy_from_slice(&forest.layers);
        self.trees = trees.len();
        self.device.context.enter()?;
        let used = used.next_multiple_of(16).min(BYTES);
        // SAFETY: the slot's own memory. Nothing touches it before the event, or ever again once the
        // context was given up.
        unsafe {
            self.stream.upload(self.described.as_ptr(), &self.described_there, 0, described)?;
            self.stream.upload(self.input.as_ptr(), &self.input_there, 0, used)?;
        }
        for level in &forest.levels {
            let (kernel, geometry) = self.device.choose(level.nodes);
            let data = if level.number == 1 { &self.input_there } else { &self.values_there };
            let (first, count) = level.layers;
            let mut numbers = [
                self.described_there.address(0),
                self.described_there.address(LAYERS + first * LAYER),
                count as u64,
                level.number.into(),
                level.nodes.into(),
                data.address(0),
                self.values_there.address(0),
            ];
            // SAFETY: follows the kernels' contract: hash, layers, their number, level, nodes, data and
            // values. The layers are within data and values, as checked above.
            unsafe { self.stream.launch(kernel, geometry, &mut numbers)? };
        }
        // SAFETY: as for the uploads.
        unsafe {
            self.stream.download(&self.values_there, 0, self.values.as_mut_ptr(), trees.len() * VALUE)?;
        }
        self.stream.record(&self.event)
    }

    /// Wipes the messages, and submits the wiping of the device's memory.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) fn begin_wiping(mut self) -> Result<Self, DriverError> {
        self.input.zeroize();
        // If this fails, the device must not be waited for on behalf of the other slots either.
        self.clear().inspect_err(|_| self.device.context.give_up())?;
        Ok(self)
    }

    /// Waits until the device has wiped its memory.
    pub(super) fn end_wiping(&self) {
        if let Err(error) = self.event.wait() {
            log::debug!("gpu: not wiped: {error}");
        }
    }

    fn clear(&self) -> Result<(), DriverError> {
        self.device.context.enter()?;
        self.stream.clear(&self.described_there, 0, DESCRIBED)?;
        self.stream.clear(&self.input_there, 0, BYTES)?;
        self.stream.clear(&self.values_there, 0, VALUES * VALUE)?;
        self.stream.record(&self.event)
    }
}

impl Drop for MessageSlot {
    fn drop(&mut self) {
        if self.device.context.is_given_up() {
            return;
        }
        if let Err(error) = self.clear().and_then(|()| self.event.wait()) {
            log::debug!("gpu: not wiped: {error}");
            self.device.context.give_up();
        }
    }
}

impl SlotInFlight {
    /// Whether `wait` would return immediately.
    pub fn is_over(&self) -> bool {
        self.slot.as_ref().is_none_or(|slot| slot.event.has_happened().unwrap_or(true))
    }

    /// Waits for the results, with a time limit that allows for all slots in flight.
    ///
    /// # Errors
    /// The driver's error, or a timeout.
    pub fn wait(mut self) -> Result<MessageSlot, Box<Failed>> {
        let slot = self.slot.take().expect("dropped once"); // invariant: only this and drop take it
        let in_flight = slot.device.in_flight.fetch_sub(BYTES, Ordering::Relaxed);
        let (start, limit) = (Instant::now(), Timeouts::default().limit(in_flight));
        loop {
            let fault = match slot.event.has_happened() {
                Ok(true) => return Ok(slot),
                Ok(false) if start.elapsed() < limit => {
                    thread::sleep(TICK);
                    continue;
                }
                Ok(false) => Fault::Driver(DriverError::TimedOut(limit)),
                Err(error) => error.into(),
            };
            slot.device.context.give_up();
            return Err(Box::new(Failed { slot, fault }));
        }
    }
}

impl Drop for SlotInFlight {
    fn drop(&mut self) {
        if let Some(slot) = &self.slot {
            // The device still uses the memory, so the memory must never be freed.
            slot.device.context.give_up();
        }
    }
}
