//! A slot of the ring: the memory, stream and event that one piece at a time goes through.

use super::{
    device::Shape,
    driver::{Context, DeviceMemory, DriverError, Event, HostMemory, Stream},
    fault::Fault,
    kernels::Kernels,
    plan::{ALIGNMENT, DESCRIPTOR, KEY_SLOT, Limits, Piece, RESULT, result_len},
};
use crate::engine::{Batch, Buffer};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use zeroize::Zeroize;

/// Runs shorter than this on average are gathered in the slot's own memory: a copy by the CPU is then cheaper
/// than one by the device for each.
const SHORT_RUN: usize = 64 << 10;

/// Memory, stream and event.
pub(super) struct Slot {
    /// Key slots and descriptors, of the host and of the device.
    described: HostMemory,
    described_there: DeviceMemory,
    /// The kernels write them.
    results: HostMemory,
    input_there: DeviceMemory,
    output_there: DeviceMemory,
    /// Where input and output are gathered when the batch's own buffers do not serve; made when first needed.
    gathered: [Option<HostMemory>; 2],
    stream: Stream,
    event: Arc<Event>,
    waiter: Waiter,
    context: Arc<Context>,
    limits: Limits,
}

/// How a piece is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Copied to the device, a thread for each tag.
    Narrow,
    /// Copied to the device, a warp for each chunk.
    Wide,
    /// By the same kernels, which read and write the host's memory.
    Direct,
}

impl Slot {
    /// A slot for pieces of that shape.
    ///
    /// # Errors
    /// What the driver says, or the system about a thread.
    pub fn new(context: &Arc<Context>, shape: &Shape) -> Result<Self, Fault> {
        let limits = shape.limits();
        let described = limits.keys * KEY_SLOT + limits.chunks * DESCRIPTOR;
        let event = Arc::new(Event::new(context)?);
        let slot = Slot {
            described: HostMemory::new(context, described)?,
            results: HostMemory::new(context, limits.chunks * RESULT)?,
            described_there: DeviceMemory::new(context, described)?,
            input_there: DeviceMemory::new(context, limits.bytes)?,
            output_there: DeviceMemory::new(context, limits.bytes)?,
            gathered: [None, None],
            stream: Stream::new(context)?,
            waiter: Waiter::start(event.clone())?,
            event,
            context: context.clone(),
            limits,
        };
        // Gaps between chunks are copied back, though no kernel writes them: what is there must be known.
        slot.wipe()?;
        Ok(slot)
    }

    /// Submits a piece: its upload, its kernels, its download, and the wiping of its keys on the device. Returns
    /// whether the output lands in the batch's buffer; otherwise it lands in the slot.
    ///
    /// # Safety
    /// The batch's input is not changed and its output not touched, and both stay where they are, until `wait`
    /// returned without an error.
    ///
    /// # Errors
    /// What the driver says; parts may have been submitted.
    pub unsafe fn submit(
        &mut self,
        piece: &Piece,
        batch: &mut Batch,
        kernels: &Kernels,
        way: Way,
    ) -> Result<bool, Fault> {
        self.context.enter()?;
        // The batch's own buffers, if they serve.
        let own = [&batch.input, &batch.output].map(|buffer| self.serves(piece, batch, buffer, way));
        let direct = own.map(|own| own && way == Way::Direct);
        let described = piece.described_len();
        piece.describe(batch, direct, &mut self.described[..described]);
        // SAFETY: the slot's own memory; it is not touched before `wait` has returned.
        unsafe { self.stream.upload(self.described.as_ptr(), &self.described_there, 0, described)? };
        if !own[0] {
            self.gather(piece, batch)?;
        }
        if !own[1] {
            gathered(&mut self.gathered[1], &self.context, self.limits.bytes)?;
        }
        if way == Way::Direct {
            let input = own[0].then_some(&batch.input);
            let output = own[1].then_some(&batch.output);
            let data = [(input, 0), (output, 1)].map(|(buffer, side)| self.mapped(buffer, side));
            self.launch(piece, batch, kernels, way, data)?;
        } else {
            self.upload(piece, batch, own[0])?;
            self.launch(
                piece,
                batch,
                kernels,
                way,
                [&self.input_there, &self.output_there].map(|m| m.address(0)),
            )?;
            self.download(piece, batch, own[1])?;
        }
        self.stream.record(&self.event)?;
        self.waiter.ask();
        self.stream.clear(&self.described_there, 0, piece.keys.len() * KEY_SLOT)?;
        Ok(own[1])
    }

    /// Whether the device takes a piece from this buffer of the batch, or puts it there, without the CPU's help.
    fn serves(&self, piece: &Piece, batch: &Batch, buffer: &Buffer, way: Way) -> bool {
        let aligned =
            || piece.chunks.iter().all(|chunk| batch.jobs[chunk.job].offset.is_multiple_of(ALIGNMENT));
        let long_runs = || piece.runs.len() == 1 || piece.bytes / piece.runs.len() >= SHORT_RUN;
        buffer.locked().is_some_and(|memory| memory.is_of(&self.context))
            && if way == Way::Direct { aligned() } else { long_runs() }
    }

    /// Copies the input into the slot's own memory.
    fn gather(&mut self, piece: &Piece, batch: &Batch) -> Result<(), DriverError> {
        let gathered = gathered(&mut self.gathered[0], &self.context, self.limits.bytes)?;
        for run in &piece.runs {
            gathered[run.place..][..run.len].copy_from_slice(&batch.input[run.host..][..run.len]);
        }
        Ok(())
    }

    /// Where kernels find the batch's buffer, or the slot's for that side.
    fn mapped(&self, buffer: Option<&Buffer>, side: usize) -> u64 {
        let memory = buffer.and_then(Buffer::locked).or(self.gathered[side].as_ref());
        memory.map_or(0, HostMemory::address) // invariant: `submit` has seen to one of them
    }

    fn upload(&self, piece: &Piece, batch: &Batch, own: bool) -> Result<(), DriverError> {
        match &self.gathered[0] {
            // SAFETY: the slot's own memory; it is not touched before `wait` has returned.
            Some(gathered) if !own => unsafe {
                self.stream.upload(gathered.as_ptr(), &self.input_there, 0, piece.bytes)
            },
            _ => piece.runs.iter().try_for_each(|run| {
                let from = batch.input[run.host..][..run.len].as_ptr();
                // SAFETY: the caller of `submit` promised to leave the input alone.
                unsafe { self.stream.upload(from, &self.input_there, run.place, run.len) }
            }),
        }
    }

    fn download(&mut self, piece: &Piece, batch: &mut Batch, own: bool) -> Result<(), DriverError> {
        match &mut self.gathered[1] {
            // SAFETY: the slot's own memory; it is not touched before `wait` has returned.
            Some(gathered) if !own => unsafe {
                self.stream.download(&self.output_there, 0, gathered.as_mut_ptr(), piece.bytes)
            },
            _ => piece.runs.iter().try_for_each(|run| {
                let to = batch.output[run.host..][..run.len].as_mut_ptr();
                // SAFETY: the caller of `submit` promised to leave the output alone.
                unsafe { self.stream.download(&self.output_there, run.place, to, run.len) }
            }),
        }
    }

    /// `data`: addresses of input and output.
    fn launch(
        &self,
        piece: &Piece,
        batch: &Batch,
        kernels: &Kernels,
        way: Way,
        data: [u64; 2],
    ) -> Result<(), DriverError> {
        let described = piece.keys.len() * KEY_SLOT;
        for (class, chunks) in piece.classes.iter().cloned() {
            let (kernel, geometry) = kernels.choose(batch.op, class, chunks.len(), way != Way::Narrow);
            let mut numbers = [
                self.described_there.address(0),
                self.described_there.address(described + chunks.start * DESCRIPTOR),
                chunks.len() as u64,
                data[0],
                data[1],
                self.results.address() + (chunks.start * result_len(batch.op)) as u64,
            ];
            // SAFETY: as the kernels' contract has it: key slots, descriptors, their number, input, output and
            // results; chunks are aligned and lie within both memories, keys within the key slots. The host's
            // memory is the slot's own, or the batch's, which the caller of `submit` leaves alone.
            unsafe { self.stream.launch(kernel, geometry, &mut numbers)? };
        }
        Ok(())
    }

    /// Waits until what was submitted is done, and wipes the keys.
    ///
    /// # Errors
    /// What the driver says, or `TimedOut`: then nothing of it may be touched or freed.
    pub fn wait(&mut self, limit: Duration) -> Result<(), Fault> {
        self.waiter.wait(limit)?;
        let keys = self.limits.keys * KEY_SLOT;
        self.described[..keys].zeroize();
        Ok(())
    }

    /// The results of the piece that was waited for.
    pub fn results(&self) -> &[u8] {
        &self.results
    }

    /// Copies gathered output to where the batch wants it.
    pub fn scatter(&self, piece: &Piece, batch: &mut Batch) {
        let Some(gathered) = &self.gathered[1] else { return };
        for run in &piece.runs {
            batch.output[run.host..][..run.len].copy_from_slice(&gathered[run.place..][..run.len]);
        }
    }

    /// Submits zeros over all that the device has for it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn wipe(&self) -> Result<(), Fault> {
        self.context.enter()?;
        self.stream.clear(&self.described_there, 0, self.described.len())?;
        self.stream.clear(&self.input_there, 0, self.limits.bytes)?;
        Ok(self.stream.clear(&self.output_there, 0, self.limits.bytes)?)
    }
}

fn gathered<'a>(
    memory: &'a mut Option<HostMemory>,
    context: &Arc<Context>,
    len: usize,
) -> Result<&'a mut HostMemory, DriverError> {
    match memory {
        Some(memory) => Ok(memory),
        None => Ok(memory.insert(HostMemory::new(context, len)?)),
    }
}

/// A thread that waits for the event of a slot: so the one that runs the batch can stop waiting.
struct Waiter {
    /// `None` only while it is dropped.
    ask: Option<Sender<()>>,
    done: Receiver<Result<(), DriverError>>,
    thread: Option<JoinHandle<()>>,
    stuck: bool,
}

impl Waiter {
    fn start(event: Arc<Event>) -> Result<Self, Fault> {
        let (ask, asked) = bounded(1);
        let (answer, done) = bounded(1);
        let wait = move || {
            for () in asked {
                if answer.send(event.wait()).is_err() {
                    return;
                }
            }
        };
        let thread =
            thread::Builder::new().name("gpu-event".to_owned()).spawn(wait).map_err(Fault::Thread)?;
        Ok(Waiter { ask: Some(ask), done, thread: Some(thread), stuck: false })
    }

    fn ask(&self) {
        if let Some(ask) = &self.ask {
            let _ = ask.send(()); // A thread that is gone shows when it is waited for.
        }
    }

    fn wait(&mut self, limit: Duration) -> Result<(), Fault> {
        match self.done.recv_timeout(limit) {
            Ok(result) => Ok(result?),
            Err(RecvTimeoutError::Timeout) => {
                self.stuck = true;
                Err(DriverError::TimedOut(limit).into())
            }
            Err(RecvTimeoutError::Disconnected) => Err(Fault::Wrong("the thread that waits is gone")),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take().filter(|_| !self.stuck) {
            let _ = thread.join(); // It does nothing that could panic.
        }
    }
}
