//! A queue: the device memory, streams and events for one piece at a time, and the thread that submits the
//! piece. If the caller does not watch for its end, the thread waits for it.

use super::{MemoryTable, Refusal};
use crate::{
    Op,
    gpu::{
        channel::{Channel, ChannelError},
        driver::{CudaContext, DeviceMemory, Event, Registered, Stream},
        kernels::{Chosen, How, KernelChoice, Kernels},
        message::{ChannelSide, GpuCommand, PieceOrder, WorkerAnswer},
        plan::{CLASSES, DESCRIPTOR, KEY_SLOT, Limits, Run, TAG, VERDICT, made_len},
    },
};
use crypto::chunk::CHUNK;
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bytes of a word that kernels share.
const WORD: usize = size_of::<u64>();
/// Bytes of a chunk's progress (`kernels/batch.cuh`).
const PROGRESS: usize = 5 * WORD;

/// A check in a separate launch: its kernel, geometry and parameters.
type CheckLaunch<'a> = (KernelChoice<'a>, Vec<u64>);

/// Memory, streams and events.
pub(super) struct GpuQueue {
    described: DeviceMemory,
    /// A piece's bytes, or copies of the bytes that kernels used in host memory.
    input: DeviceMemory,
    output: DeviceMemory,
    /// Unchecked tags or verification results of a launch.
    made: DeviceMemory,
    /// Words that contain the number of a launch. `done_by`, by block: its multiprocessor. `claims`, by
    /// block: that its work is being checked. `progress`, by chunk: how far the launch has come
    /// (`Progress`).
    done_by: DeviceMemory,
    claims: DeviceMemory,
    progress: DeviceMemory,
    /// Number of launches so far; the first has number 1.
    launches: AtomicU64,
    stream: Stream,
    event: Event,
    /// Stream that checks launches while their output is downloaded, and the events for the end of the
    /// launches and of the checks.
    checks: Stream,
    made_at: Event,
    checked_at: Event,
    /// Key slots and descriptors, then the device's results: tags, verdicts, and the number of the order.
    control_block: Arc<Registered>,
    context: Arc<CudaContext>,
    kernels: Arc<Kernels>,
    lent: MemoryTable,
    limits: Limits,
}

impl GpuQueue {
    /// A queue for pieces within `limits`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(
        context: &Arc<CudaContext>,
        kernels: &Arc<Kernels>,
        lent: &MemoryTable,
        control_block: Arc<Registered>,
        limits: Limits,
    ) -> Result<Self, Refusal> {
        let queue = GpuQueue {
            described: DeviceMemory::new(context, limits.described())?,
            input: DeviceMemory::new(context, limits.bytes)?,
            output: DeviceMemory::new(context, limits.bytes)?,
            made: DeviceMemory::new(context, limits.chunks * TAG)?,
            done_by: DeviceMemory::new(context, limits.chunks * WORD)?,
            claims: DeviceMemory::new(context, limits.chunks * WORD)?,
            progress: DeviceMemory::new(context, limits.chunks * PROGRESS)?,
            launches: AtomicU64::new(0),
            stream: Stream::new(context)?,
            event: Event::new(context)?,
            checks: Stream::new(context)?,
            made_at: Event::new(context)?,
            checked_at: Event::new(context)?,
            control_block,
            context: context.clone(),
            kernels: kernels.clone(),
            lent: lent.clone(),
            limits,
        };
        // Downloads include the gaps between chunks, which no kernel writes, so their content must be
        // defined.
        queue.wipe()?;
        Ok(queue)
    }

    /// Takes orders until the other side is gone, then wipes its memory on the device.
    pub fn work(&self, orders: &Channel) {
        loop {
            let done = match orders.receive(None) {
                Ok((GpuCommand::Submit(order), _)) => match self.submit(&order) {
                    Ok(()) if order.is_watched => continue,
                    submitted => submitted.and_then(|()| Ok(self.event.wait()?)),
                },
                Ok((GpuCommand::Notify, _)) => self.event.wait().map_err(Refusal::from),
                Err(ChannelError::Closed) => break,
                Err(_) => Err(Refusal::Bad("an order that makes no sense")),
            };
            let answer = done
                .map_or_else(|refusal| WorkerAnswer::Failed(refusal.to_string()), |()| WorkerAnswer::Done);
            if orders.send(&answer, None).is_err() {
                break;
            }
        }
        // After an error the driver refuses this, but it clears memory when it reclaims it.
        let _ = self.wipe();
    }

    /// Submits one piece: its upload, kernels, download and completion number, and the wiping of its keys
    /// and plaintext on the device.
    fn submit(&self, order: &PieceOrder) -> Result<(), Refusal> {
        let [input, output] = self.memory_of(order)?;
        self.context.enter()?;
        let described = order.keys * KEY_SLOT + order.chunks * DESCRIPTOR;
        // SAFETY: within the control block, as `memory_of` checked. The other side does not write there
        // until the piece is done.
        unsafe { self.stream.upload(self.control_block.as_ptr(), &self.described, 0, described)? };
        let from = match &order.input {
            ChannelSide::Direct(_) => input.address(),
            ChannelSide::Copied(_, runs) => {
                for run in runs {
                    // SAFETY: within the memory, as `memory_of` checked, and unchanged by the other side
                    // until it is done.
                    unsafe {
                        self.stream.upload(input.as_ptr().add(run.host), &self.input, run.place, run.len)?;
                    }
                }
                self.input.address(0)
            }
        };
        let to = if let ChannelSide::Direct(_) = &order.output {
            output.address()
        } else {
            self.output.address(0)
        };
        let checks = self.launch(order, from, to)?;
        if let ChannelSide::Copied(_, runs) = &order.output {
            self.stream.record(&self.made_at)?;
            self.checks.wait_for(&self.made_at)?;
            self.check_launches(checks)?;
            self.checks.record(&self.checked_at)?;
            for run in runs {
                // SAFETY: as for the input.
                unsafe {
                    self.stream.download(&self.output, run.place, output.as_ptr().add(run.host), run.len)?;
                }
            }
            self.stream.wait_for(&self.checked_at)?;
        }
        self.stream.write_number(&self.control_block, self.limits.done_at(), order.number)?;
        self.stream.record(&self.event)?;
        self.stream.clear(&self.described, 0, order.keys * KEY_SLOT)?;
        self.clear_plaintext(order)
    }

    /// Submits zeroing of a piece's plaintext that is still on the device.
    fn clear_plaintext(&self, order: &PieceOrder) -> Result<(), Refusal> {
        let (side, memory) =
            if order.opens { (&order.output, &self.output) } else { (&order.input, &self.input) };
        let len = match side {
            ChannelSide::Copied(_, runs) => runs.iter().map(|run| run.place + run.len).max().unwrap_or(0),
            ChannelSide::Direct(_) if order.opens => order.chunks * CHUNK,
            ChannelSide::Direct(_) => 0,
        };
        if len > 0 {
            self.stream.clear(memory, 0, len)?;
        }
        Ok(())
    }

    /// The memory of both sides, if all ranges of the order are within bounds.
    fn memory_of(&self, order: &PieceOrder) -> Result<[Arc<Registered>; 2], Refusal> {
        let Limits { chunks, keys, .. } = self.limits;
        let in_order = |classes: &[(usize, Range<usize>)]| {
            classes.iter().all(|(class, range)| {
                *class < CLASSES && range.start < range.end && range.end <= order.chunks
            })
        };
        if order.chunks > chunks || order.keys > keys || !in_order(&order.classes) {
            return Err(Refusal::Bad("more than a piece holds"));
        }
        let memory = |side: &ChannelSide| {
            let memory =
                self.lent.lock().get(&side.memory()).cloned().ok_or(Refusal::Bad("unknown memory"))?;
            let end = |from: usize, len: usize| from.saturating_add(len);
            let fits = |run: &Run| {
                end(run.host, run.len) <= memory.len() && end(run.place, run.len) <= self.limits.bytes
            };
            match side {
                ChannelSide::Copied(_, runs) if !runs.iter().all(fits) => {
                    Err(Refusal::Bad("bytes beyond the memory"))
                }
                ChannelSide::Direct(_) if !self.limits.keeps(order.chunks) => {
                    Err(Refusal::Bad("more chunks than can be kept"))
                }
                _ => Ok(memory),
            }
        };
        Ok([memory(&order.input)?, memory(&order.output)?])
    }

    /// Submits a launch for the chunks of each class. Returns the checks that need separate launches. Only
    /// checks write to the control block.
    fn launch(&self, order: &PieceOrder, from: u64, to: u64) -> Result<Vec<CheckLaunch<'_>>, Refusal> {
        let op = if order.opens { Op::Open } else { Op::Seal };
        let how = match (&order.output, order.wide) {
            (ChannelSide::Direct(_), _) => How::Checked,
            (ChannelSide::Copied(..), true) => How::Wide,
            (ChannelSide::Copied(..), false) => How::Narrow,
        };
        let mut checks = Vec::new();
        for (class, chunks) in order.classes.iter().cloned() {
            let Chosen { launch: (kernel, geometry), blocks, run, check } =
                self.kernels.choose(op, class, chunks.len(), how);
            let made = match how {
                How::Checked => self.progress.address(chunks.start * PROGRESS),
                How::Wide | How::Narrow => self.made.address(chunks.start * made_len(op)),
            };
            let launched = [
                self.described.address(0),
                self.described.address(order.keys * KEY_SLOT + chunks.start * DESCRIPTOR),
                chunks.len() as u64,
                from,
                to,
                made,
                self.launches.fetch_add(1, Ordering::Relaxed) + 1,
                // No launch has more blocks than chunks.
                self.done_by.address(chunks.start * WORD),
            ];
            let control_block = self.control_block.address();
            let checked = [
                self.claims.address(chunks.start * WORD),
                u64::from(order.number),
                control_block + (self.limits.tags_at() + chunks.start * TAG) as u64,
                control_block + (self.limits.verdicts_at() + chunks.start * VERDICT) as u64,
            ];
            let mut parameters = match check {
                Some(check) => {
                    let of_launch = [u64::from(order.opens), u64::from(blocks), run as u64];
                    checks.push((check, [&launched[..], &checked, &of_launch].concat()));
                    launched.to_vec()
                }
                None => {
                    let [kept_in, kept_out] = self.kept(order, chunks.start);
                    [&launched[..], &checked, &[u64::from(blocks), kept_in, kept_out]].concat()
                }
            };
            // SAFETY: follows the kernels' contract. The other side's descriptors keep chunks aligned and
            // within both memories, and keys within the key slots. `memory_of` checked that there is room
            // for the copies. The control block has room for the tag and the verdict of every chunk.
            unsafe { self.stream.launch(kernel, geometry, &mut parameters)? };
        }
        Ok(checks)
    }

    /// Submits the separate checks to the stream `checks`, which waits for the launches.
    fn check_launches(&self, checks: Vec<CheckLaunch>) -> Result<(), Refusal> {
        for ((kernel, geometry), mut parameters) in checks {
            // SAFETY: as for the launch, which has filled in results and trace.
            unsafe { self.checks.launch(kernel, geometry, &mut parameters)? };
        }
        Ok(())
    }

    /// Addresses of the device's copies of input and output that are in host memory, for the chunks from
    /// `chunk` on; 0 for none. Plaintext to be sealed is read from the host again instead: if the first
    /// read was corrupted, the copy would pass the check.
    fn kept(&self, order: &PieceOrder, chunk: usize) -> [u64; 2] {
        let address = |side: &ChannelSide, memory: &DeviceMemory| match side {
            ChannelSide::Direct(_) => memory.address(chunk * CHUNK),
            ChannelSide::Copied(..) => 0,
        };
        let input = if order.opens { address(&order.input, &self.input) } else { 0 };
        [input, address(&order.output, &self.output)]
    }

    /// Zeroes all of this queue's device memory.
    fn wipe(&self) -> Result<(), Refusal> {
        self.context.enter()?;
        self.stream.clear(&self.described, 0, self.limits.described())?;
        self.stream.clear(&self.input, 0, self.limits.bytes)?;
        self.stream.clear(&self.output, 0, self.limits.bytes)?;
        self.stream.clear(&self.done_by, 0, self.limits.chunks * WORD)?;
        self.stream.clear(&self.claims, 0, self.limits.chunks * WORD)?;
        self.stream.clear(&self.progress, 0, self.limits.chunks * PROGRESS)?;
        self.stream.record(&self.event)?;
        Ok(self.event.wait()?)
    }
}
