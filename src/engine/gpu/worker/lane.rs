//! A lane: the memory of the device, the stream and the event that one piece at a time goes through, and the thread
//! that submits it and, if its caller does not watch for its end, waits for it.

use super::{Refusal, Table};
use crate::engine::{
    Op,
    gpu::{
        channel::{Channel, ChannelError},
        driver::{Context, DeviceMemory, Event, Registered, Stream},
        kernels::Kernels,
        message::{Answer, Call, Order, Side},
        plan::{CLASSES, DESCRIPTOR, KEY_SLOT, Limits, Run, result_len},
    },
};
use std::{ops::Range, sync::Arc};

/// Memory, stream and event.
pub(super) struct Lane {
    described: DeviceMemory,
    input: DeviceMemory,
    output: DeviceMemory,
    stream: Stream,
    event: Event,
    /// Key slots and descriptors, and behind them what the device writes: the results, and the number of the order.
    desk: Arc<Registered>,
    context: Arc<Context>,
    kernels: Arc<Kernels>,
    lent: Table,
    limits: Limits,
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
        };
        // Gaps between chunks are copied back, though no kernel writes them: what is there must be known.
        lane.wipe()?;
        Ok(lane)
    }

    /// Takes orders until the other side is gone; then wipes what is on the device.
    pub fn work(&self, orders: &Channel) {
        loop {
            let done = match orders.receive(None) {
                Ok((Call::Do(order), _)) => match self.submit(&order) {
                    Ok(()) if order.is_watched => continue,
                    submitted => submitted.and_then(|()| Ok(self.event.wait()?)),
                },
                Ok((Call::Tell, _)) => self.event.wait().map_err(Refusal::from),
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

    /// Submits one piece: its upload, its kernels, its download, its number, and the wiping of its keys on the device.
    fn submit(&self, order: &Order) -> Result<(), Refusal> {
        let [input, output] = self.check(order)?;
        self.context.enter()?;
        let described = order.keys * KEY_SLOT + order.chunks * DESCRIPTOR;
        // SAFETY: within the desk, as `check` saw. The other side writes nothing there until the piece is done.
        unsafe { self.stream.upload(self.desk.as_ptr(), &self.described, 0, described)? };
        let from = match &order.input {
            Side::Direct(_) => input.address(),
            Side::Copied(_, runs) => {
                for run in runs {
                    // SAFETY: within the memory, as `check` saw, and left alone by the other side until it is done.
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
        self.stream.write_number(&self.desk, self.limits.done_at(), order.number)?;
        self.stream.record(&self.event)?;
        Ok(self.stream.clear(&self.described, 0, order.keys * KEY_SLOT)?)
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
