//! A slot of the ring: the memory, stream and event that one piece at a time goes through.

use super::{
    device::Shape,
    driver::{Context, DeviceMemory, DriverError, Event, HostMemory, Stream},
    fault::Fault,
    kernels::Kernels,
    plan::{DESCRIPTOR, KEY_SLOT, Limits, Piece, RESULT, result_len},
};
use crate::engine::Batch;
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
    /// Key slots and descriptors; results. Of the host and of the device.
    described: HostMemory,
    results: HostMemory,
    described_there: DeviceMemory,
    results_there: DeviceMemory,
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

/// How a piece in a slot moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// The output lands in the batch's buffer; otherwise in the slot.
    pub direct: bool,
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
        Ok(Slot {
            described: HostMemory::new(context, described)?,
            results: HostMemory::new(context, limits.chunks * RESULT)?,
            described_there: DeviceMemory::new(context, described)?,
            results_there: DeviceMemory::new(context, limits.chunks * RESULT)?,
            input_there: DeviceMemory::new(context, limits.bytes)?,
            output_there: DeviceMemory::new(context, limits.bytes)?,
            gathered: [None, None],
            stream: Stream::new(context)?,
            waiter: Waiter::start(event.clone())?,
            event,
            context: context.clone(),
            limits,
        })
    }

    /// Submits a piece: its upload, its kernels, its download, and the wiping of its keys on the device.
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
        wide: bool,
    ) -> Result<Way, Fault> {
        self.context.enter()?;
        let described = piece.described_len();
        piece.describe(batch, &mut self.described[..described]);
        // SAFETY: the slot's own memory; it is not touched before `wait` has returned.
        unsafe { self.stream.upload(self.described.as_ptr(), &self.described_there, 0, described)? };
        self.upload_input(piece, batch)?;
        self.launch(piece, batch, kernels, wide)?;
        let way = self.download_output(piece, batch)?;
        let results = piece.chunks.len() * result_len(batch.op);
        // SAFETY: as above.
        unsafe { self.stream.download(&self.results_there, 0, self.results.as_mut_ptr(), results)? };
        self.stream.record(&self.event)?;
        self.waiter.ask();
        self.stream.clear(&self.described_there, 0, piece.keys.len() * KEY_SLOT)?;
        Ok(way)
    }

    fn upload_input(&mut self, piece: &Piece, batch: &Batch) -> Result<(), Fault> {
        if batch.input.locked().is_some_and(|memory| self.takes(piece, memory)) {
            for run in &piece.runs {
                let from = batch.input[run.host..][..run.len].as_ptr();
                // SAFETY: the caller of `submit` promised to leave the input alone.
                unsafe { self.stream.upload(from, &self.input_there, run.place, run.len)? };
            }
            return Ok(());
        }
        let gathered = gathered(&mut self.gathered[0], &self.context, self.limits.bytes)?;
        for run in &piece.runs {
            gathered[run.place..][..run.len].copy_from_slice(&batch.input[run.host..][..run.len]);
        }
        // SAFETY: the slot's own memory; it is not touched before `wait` has returned.
        unsafe { self.stream.upload(gathered.as_ptr(), &self.input_there, 0, piece.bytes)? };
        Ok(())
    }

    fn launch(&self, piece: &Piece, batch: &Batch, kernels: &Kernels, wide: bool) -> Result<(), Fault> {
        let described = piece.keys.len() * KEY_SLOT;
        for (class, chunks) in piece.classes.iter().cloned() {
            let (kernel, blocks, threads) = kernels.choose(batch.op, class, chunks.len(), wide);
            let mut numbers = [
                self.described_there.address(0),
                self.described_there.address(described + chunks.start * DESCRIPTOR),
                chunks.len() as u64,
                self.input_there.address(0),
                self.output_there.address(0),
                self.results_there.address(chunks.start * result_len(batch.op)),
            ];
            // SAFETY: as the kernels' contract has it: key slots, descriptors, their number, input, output and
            // results; chunks are aligned and lie within both memories, keys within the key slots.
            unsafe { self.stream.launch(kernel, blocks, threads, &mut numbers)? };
        }
        Ok(())
    }

    fn download_output(&mut self, piece: &Piece, batch: &mut Batch) -> Result<Way, Fault> {
        if batch.output.locked().is_some_and(|memory| self.takes(piece, memory)) {
            for run in &piece.runs {
                let to = batch.output[run.host..][..run.len].as_mut_ptr();
                // SAFETY: the caller of `submit` promised to leave the output alone.
                unsafe { self.stream.download(&self.output_there, run.place, to, run.len)? };
            }
            return Ok(Way { direct: true });
        }
        let gathered = gathered(&mut self.gathered[1], &self.context, self.limits.bytes)?;
        // SAFETY: the slot's own memory; it is not touched before `wait` has returned.
        unsafe { self.stream.download(&self.output_there, 0, gathered.as_mut_ptr(), piece.bytes)? };
        Ok(Way { direct: false })
    }

    /// Whether the device copies the runs of a piece from or to this memory itself.
    fn takes(&self, piece: &Piece, memory: &HostMemory) -> bool {
        memory.is_of(&self.context) && (piece.runs.len() == 1 || piece.bytes / piece.runs.len() >= SHORT_RUN)
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

    /// Submits zeros over all that the device holds of it.
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
