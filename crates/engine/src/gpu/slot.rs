//! A slot of the ring: describes one piece at a time and submits it.

use super::{
    channel::Channel,
    fault::Fault,
    message::{ChannelSide, GpuCommand, PieceOrder, WorkerAnswer},
    plan::{ALIGNMENT, GpuPiece, KEY_SLOT, Limits, PieceVerdict, Run, TAG, VERDICT},
    process::Process,
    transfer_modes::TransferMode,
};
use crate::{
    Batch, Buffer, Op,
    buffer::{LentMemory, wipe},
};
use crypto::chunk::Tag;
use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

/// If runs are shorter than this on average, in bytes, they are gathered in the slot's own memory. One copy
/// by the CPU is then cheaper than one by the device for each run.
const SHORT_RUN: usize = 64 << 10;

/// Maximum time that a caller watches for the end of its piece before it sleeps. This is longer than a
/// piece takes when it is alone on a device; being woken up would cost a good part of that.
const ATTENTION: Duration = Duration::from_micros(400);

/// A queue of the device's process, and the memory shared with it.
pub(super) struct RingSlot {
    orders: Channel,
    /// Key slots and descriptors, then tags and verdicts.
    control_block: LentMemory,
    /// Gathering areas for input and output, for when the batch's own buffers cannot be used. Allocated
    /// when first needed, and replaced when larger ones are.
    gathered: [Option<LentMemory>; 2],
    process: Arc<Process>,
    limits: Limits,
    /// State of the submitted piece: the order's number, the number of keys, and whether the caller watches
    /// for its end.
    number: u32,
    keys: usize,
    is_watched: bool,
    /// Index of the gathering area that contains plaintext, now or later, and the number of bytes.
    plaintext: (usize, usize),
}

impl RingSlot {
    /// A slot for pieces within `limits`.
    ///
    /// # Errors
    /// The driver's or the system's error.
    pub fn new(process: &Arc<Process>, limits: Limits) -> Result<Self, Fault> {
        let control_block = process.lend(limits.control_block())?;
        let orders = process.queue(&control_block)?;
        let process = process.clone();
        let gathered = [None, None];
        Ok(RingSlot {
            orders,
            control_block,
            gathered,
            process,
            limits,
            number: 0,
            keys: 0,
            is_watched: false,
            plaintext: (0, 0),
        })
    }

    /// Submits a piece: its upload, kernels and download, and the wiping of its keys on the device. Returns
    /// whether the output arrives in the batch's own buffer; otherwise it arrives in the slot. `is_watched`
    /// says that the piece will be done soon.
    ///
    /// # Safety
    /// Until `wait` has returned without an error, the batch's input must not change and its output must
    /// not be accessed. The other process writes there.
    ///
    /// # Errors
    /// The driver's or the system's error.
    pub unsafe fn submit(
        &mut self,
        piece: &GpuPiece,
        batch: &Batch,
        way: TransferMode,
        is_watched: bool,
    ) -> Result<bool, Fault> {
        // The batch's own buffers, where they can be used.
        let own = [&batch.input, &batch.output].map(|buffer| self.own(piece, batch, buffer, way));
        let direct = own.map(|own| own.is_some() && way == TransferMode::Direct);
        (self.keys, self.is_watched) = (piece.keys.len(), is_watched);
        self.number = self.number.wrapping_add(1);
        let side = usize::from(batch.op == Op::Open);
        self.plaintext = (side, if own[side].is_none() { piece.bytes } else { 0 });
        piece.describe(batch, direct, &mut self.control_block[..piece.described_len()]);
        if own[0].is_none() {
            let gathered = self.gathered(0, piece.bytes)?;
            for run in &piece.runs {
                gathered[run.place..][..run.len].copy_from_slice(&batch.input[run.host..][..run.len]);
            }
        }
        if own[1].is_none() {
            self.gathered(1, piece.bytes)?;
        }
        self.orders.send(
            &GpuCommand::Submit(PieceOrder {
                number: self.number,
                is_watched,
                opens: batch.op == Op::Open,
                keys: piece.keys.len(),
                chunks: piece.chunks.len(),
                classes: piece.classes.clone(),
                wide: way != TransferMode::Narrow,
                input: self.side(0, own[0], piece, way)?,
                output: self.side(1, own[1], piece, way)?,
            }),
            None,
        )?;
        Ok(own[1].is_some())
    }

    /// The memory that contains a buffer of the batch, if the device can read or write a piece there
    /// without the CPU's help.
    fn own<'a>(
        &self,
        piece: &GpuPiece,
        batch: &Batch,
        buffer: &'a Buffer,
        way: TransferMode,
    ) -> Option<&'a LentMemory> {
        let aligned =
            || piece.chunks.iter().all(|chunk| batch.jobs[chunk.job].offset.is_multiple_of(ALIGNMENT));
        let long_runs = || piece.runs.len() == 1 || piece.bytes / piece.runs.len() >= SHORT_RUN;
        let memory = buffer.lent().filter(|memory| memory.is_of(&self.process))?;
        let serves = if way == TransferMode::Direct { aligned() } else { long_runs() };
        serves.then_some(memory)
    }

    /// The slot's own memory for input (0) or output (1), at least `bytes` long. Most pieces are far
    /// shorter than the limit, and memory of full length for every slot would exceed everything else that a
    /// mount uses.
    fn gathered(&mut self, side: usize, bytes: usize) -> Result<&mut LentMemory, Fault> {
        let place = &mut self.gathered[side];
        place.take_if(|memory| memory.len() < bytes);
        match place {
            Some(memory) => Ok(memory),
            place => {
                let len = bytes.next_power_of_two().min(self.limits.bytes);
                Ok(place.insert(self.process.lend(len)?))
            }
        }
    }

    /// Describes input (0) or output (1) to the process.
    fn side(
        &self,
        side: usize,
        own: Option<&LentMemory>,
        piece: &GpuPiece,
        way: TransferMode,
    ) -> Result<ChannelSide, Fault> {
        let memory = own.or(self.gathered[side].as_ref()).ok_or(Fault::OutOfService)?.id();
        Ok(match way {
            TransferMode::Direct => ChannelSide::Direct(memory),
            _ if own.is_some() => ChannelSide::Copied(memory, piece.runs.clone()),
            // Gathered in the layout that it has on the device.
            _ => ChannelSide::Copied(memory, vec![Run { host: 0, place: 0, len: piece.bytes }]),
        })
    }

    /// Waits until the submitted piece is done, and wipes the keys.
    ///
    /// # Errors
    /// The driver's error, or that there is no answer. In that case the other process may still be working
    /// on the piece.
    pub fn wait(&mut self, limit: Duration) -> Result<(), Fault> {
        let answer =
            if self.is_watched && self.watch() { Ok(WorkerAnswer::Done) } else { self.answer(limit) };
        let done = answer.and_then(|answer| match answer {
            WorkerAnswer::Done => Ok(()),
            WorkerAnswer::Failed(why) => Err(Fault::Refused(why)),
            _ => Err(Fault::Wrong("another answer than that to an order")),
        });
        if done.is_err() {
            // Before releasing memory that the device may still write.
            self.process.kill();
        }
        wipe(&mut self.control_block[..self.keys * KEY_SLOT]);
        done
    }

    /// Watches for the device's completion number for a while, yielding the processor. Returns whether it
    /// appeared.
    fn watch(&self) -> bool {
        let (done, end) = (self.control_block.number(self.limits.done_at()), Instant::now() + ATTENTION);
        while done.load(Ordering::Acquire) != self.number {
            if Instant::now() >= end {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    /// Sleeps until the process reports that the piece is done, or an error.
    fn answer(&self, limit: Duration) -> Result<WorkerAnswer, Fault> {
        if self.is_watched {
            self.orders.send(&GpuCommand::Notify, None)?;
        }
        Ok(self.orders.receive(Some(limit))?.0)
    }

    /// Tag and verdict of each chunk of the completed piece. Tags are only valid for a seal.
    pub fn results(&self) -> impl Iterator<Item = (Tag, PieceVerdict)> {
        let tags = self.control_block[self.limits.tags_at()..].as_chunks::<TAG>().0;
        let words = self.control_block[self.limits.verdicts_at()..].as_chunks::<VERDICT>().0;
        let verdicts = words.iter().map(|word| PieceVerdict::of(u32::from_le_bytes(*word), self.number));
        tags.iter().copied().zip(verdicts)
    }

    /// Wipes the plaintext that was gathered for the last piece.
    pub fn wipe(&mut self) {
        let (side, len) = self.plaintext;
        if let Some(gathered) = &mut self.gathered[side] {
            wipe(&mut gathered[..len]);
        }
    }

    /// Copies gathered output to its place in the batch.
    pub fn scatter(&self, piece: &GpuPiece, batch: &mut Batch) {
        let Some(gathered) = &self.gathered[1] else { return };
        for run in &piece.runs {
            batch.output[run.host..][..run.len].copy_from_slice(&gathered[run.place..][..run.len]);
        }
    }
}
