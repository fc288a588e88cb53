//! A lane: the memory of the device, the stream and the event that one piece at a time goes through, and the thread
//! that waits for them.

use super::{Refusal, Table};
use crate::engine::{
    Op,
    gpu::{
        channel::{Channel, ChannelError},
        driver::{Context, DeviceMemory, Event, Registered, Stream},
        kernels::Kernels,
        message::{Answer, Order, Side},
        plan::{CLASSES, DESCRIPTOR, KEY_SLOT, Limits, Run, result_len},
    },
};
use std::{
    num::NonZero,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A piece for which nothing is copied is short: its event is asked for again and again during this time before the
/// thread goes to sleep, because waking up would take a good part of what such a piece takes.
const ATTENTION: Duration = Duration::from_micros(500);

/// Counts the lanes that ask, so that many short pieces keep few cores busy.
pub(super) struct Attentive {
    lanes: AtomicUsize,
    most: usize,
}

impl Attentive {
    /// For a quarter of the cores at most.
    pub fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        Attentive { lanes: AtomicUsize::new(0), most: cores.div_ceil(4) }
    }

    /// Leave to ask, until what is returned is dropped.
    fn begin(&self) -> Option<Leave<'_>> {
        let leave = Leave(self);
        (self.lanes.fetch_add(1, Ordering::Relaxed) < self.most).then_some(leave)
    }
}

struct Leave<'a>(&'a Attentive);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.lanes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory, stream and event.
pub(super) struct Lane {
    described: DeviceMemory,
    input: DeviceMemory,
    output: DeviceMemory,
    stream: Stream,
    event: Event,
    /// Key slots and descriptors, and behind them the results, which the kernels write.
    desk: Arc<Registered>,
    context: Arc<Context>,
    kernels: Arc<Kernels>,
    lent: Table,
    limits: Limits,
    attentive: Arc<Attentive>,
}

impl Lane {
    /// A lane for pieces of at most so much.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(
        context: &Arc<Context>,
        kernels: &Arc<Kernels>,
        lent: &Table,
        desk: Arc<Registered>,
        limits: Limits,
        attentive: &Arc<Attentive>,
    ) -> Result<Self, Refusal> {
        let lane = Lane {
            described: DeviceMemory::new(context, limits.described())?,
            input: DeviceMemory::new(context, limits.bytes)?,
            output: DeviceMemory::new(context, limits.bytes)?,
            stream: Stream::new(context)?,
            event: Event::new(context)?,
            desk,
            context: context.clone(),
            kernels: kernels.clone(),
            lent: lent.clone(),
            limits,
            attentive: attentive.clone(),
        };
        // Gaps between chunks are copied back, though no kernel writes them: what is there must be known.
        lane.wipe()?;
        Ok(lane)
    }

    /// Takes orders until the other side is gone; then wipes what is on the device.
    pub fn work(&self, orders: &Channel) {
        loop {
            let done = match orders.receive(None) {
                Ok((order, _)) => self.run(&order),
                Err(ChannelError::Closed) => break,
                Err(_) => Err(Refusal::Bad("an order that makes no sense")),
            };
            let answer = done.map_or_else(|refusal| Answer::Failed(refusal.to_string()), |()| Answer::Done);
            if orders.send(&answer, None).is_err() {
                break;
            }
        }
        // After an error the driver refuses, and clears what it takes back by itself.
        let _ = self.wipe();
    }

    /// One piece: its upload, its kernels, its download, and the wiping of its keys on the device. Returns once the
    /// results are there; the wiping may still be under way.
    fn run(&self, order: &Order) -> Result<(), Refusal> {
        let [input, output] = self.check(order)?;
        self.context.enter()?;
        let described = order.keys * KEY_SLOT + order.chunks * DESCRIPTOR;
        // SAFETY: within the desk, as `check` saw. The other side writes nothing there until it has the answer.
        unsafe { self.stream.upload(self.desk.as_ptr(), &self.described, 0, described)? };
        let from = match &order.input {
            Side::Direct(_) => input.address(),
            Side::Copied(_, runs) => {
                for run in runs {
                    // SAFETY: within the memory, as `check` saw, and left alone by the other side until the answer.
                    unsafe {
                        self.stream.upload(input.as_ptr().add(run.host), &self.input, run.place, run.len)?;
                    }
                }
                self.input.address(0)
            }
        };
        let to = if let Side::Direct(_) = &order.output { output.address() } else { self.output.address(0) };
        self.launch(order, from, to)?;
        if let Side::Copied(_, runs) = &order.output {
            for run in runs {
                // SAFETY: as for the input.
                unsafe {
                    self.stream.download(&self.output, run.place, output.as_ptr().add(run.host), run.len)?;
                }
            }
        }
        self.stream.record(&self.event)?;
        self.stream.clear(&self.described, 0, order.keys * KEY_SLOT)?;
        let is_short = matches!((&order.input, &order.output), (Side::Direct(_), Side::Direct(_)));
        if is_short && self.ask()? { Ok(()) } else { Ok(self.event.wait()?) }
    }

    /// The memory of both sides, if everything is within its bounds.
    fn check(&self, order: &Order) -> Result<[Arc<Registered>; 2], Refusal> {
        let Limits { chunks, keys, .. } = self.limits;
        let in_order = |classes: &[(usize, Range<usize>)]| {
            classes.iter().all(|(class, range)| {
                *class < CLASSES && range.start < range.end && range.end <= order.chunks
            })
        };
        if order.chunks > chunks || order.keys > keys || !in_order(&order.classes) {
            return Err(Refusal::Bad("more than a piece holds"));
        }
        let memory = |side: &Side| {
            let memory =
                self.lent.lock().get(&side.memory()).cloned().ok_or(Refusal::Bad("unknown memory"))?;
            let end = |from: usize, len: usize| from.saturating_add(len);
            let fits = |run: &Run| {
                end(run.host, run.len) <= memory.len() && end(run.place, run.len) <= self.limits.bytes
            };
            match side {
                Side::Copied(_, runs) if !runs.iter().all(fits) => {
                    Err(Refusal::Bad("bytes beyond the memory"))
                }
                _ => Ok(memory),
            }
        };
        Ok([memory(&order.input)?, memory(&order.output)?])
    }

    fn launch(&self, order: &Order, from: u64, to: u64) -> Result<(), Refusal> {
        let op = if order.opens { Op::Open } else { Op::Seal };
        let (described, results) =
            (order.keys * KEY_SLOT, self.desk.address() + self.limits.results_at() as u64);
        for (class, chunks) in order.classes.iter().cloned() {
            let (kernel, geometry) = self.kernels.choose(op, class, chunks.len(), order.wide);
            let mut numbers = [
                self.described.address(0),
                self.described.address(described + chunks.start * DESCRIPTOR),
                chunks.len() as u64,
                from,
                to,
                results + (chunks.start * result_len(op)) as u64,
            ];
            // SAFETY: as the kernels' contract has it: key slots, descriptors, their number, input, output and
            // results. Chunks are aligned and lie within both memories, keys within the key slots: so the other side
            // has described them.
            unsafe { self.stream.launch(kernel, geometry, &mut numbers)? };
        }
        Ok(())
    }

    /// Asks again and again whether the event has happened, unless another lane does; whether it did.
    fn ask(&self) -> Result<bool, Refusal> {
        let Some(_attentive) = self.attentive.begin() else { return Ok(false) };
        let end = Instant::now() + ATTENTION;
        let mut happened = self.event.has_happened();
        while matches!(happened, Ok(false)) && Instant::now() < end {
            std::hint::spin_loop();
            happened = self.event.has_happened();
        }
        Ok(happened?)
    }

    /// Writes zeros over all that the device has for it.
    fn wipe(&self) -> Result<(), Refusal> {
        self.context.enter()?;
        self.stream.clear(&self.described, 0, self.limits.described())?;
        self.stream.clear(&self.input, 0, self.limits.bytes)?;
        self.stream.clear(&self.output, 0, self.limits.bytes)?;
        self.stream.record(&self.event)?;
        Ok(self.event.wait()?)
    }
}
