//! A slot of the ring: what one piece at a time is described in and asked for through.

use super::{
    channel::Channel,
    fault::Fault,
    message::{Answer, Call, Order, Side},
    plan::{ALIGNMENT, KEY_SLOT, Limits, Piece, Run, TAG, VERDICT, Verdict},
    process::Process,
    ways::Way,
};
use crate::{
    crypto::chunk::Tag,
    engine::{
        Batch, Buffer, Op,
        buffer::{LentMemory, wipe},
    },
};
use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

/// Runs shorter than this on average are gathered in the slot's own memory: a copy by the CPU is then cheaper
/// than one by the device for each.
const SHORT_RUN: usize = 64 << 10;

/// A caller watches for the end of its piece this long at most before it sleeps: longer than a piece takes that is
/// alone on a device. To be woken up would take a good part of that time.
const ATTENTION: Duration = Duration::from_micros(400);

/// A lane of the device's process, and the memory that it shares with it.
pub(super) struct RingSlot {
    orders: Channel,
    /// Key slots and descriptors, then tags and verdicts.
    desk: LentMemory,
    /// Where input and output are gathered when the batch's own buffers do not serve; made when first needed, and again
    /// where longer ones are.
    gathered: [Option<LentMemory>; 2],
    process: Arc<Process>,
    limits: Limits,
    /// Of the piece that was submitted: the order's number, how many keys it has, and whether its end is watched for.
    number: u32,
    keys: usize,
    is_watched: bool,
    /// Where plaintext was or will be gathered, and how much.
    plaintext: (usize, usize),
}

impl RingSlot {
    /// A slot for pieces of at most so much.
    ///
    /// # Errors
    /// What the driver says, or the system.
    pub fn new(process: &Arc<Process>, limits: Limits) -> Result<Self, Fault> {
        let desk = process.lend(limits.desk())?;
        let orders = process.lane(&desk)?;
        let process = process.clone();
        let gathered = [None, None];
        Ok(RingSlot {
            orders,
            desk,
            gathered,
            process,
            limits,
            number: 0,
            keys: 0,
            is_watched: false,
            plaintext: (0, 0),
        })
    }

    /// Submits a piece: its upload, its kernels, its download, and the wiping of its keys on the device. Returns
    /// whether the output lands in the batch's buffer; otherwise it lands in the slot. `is_watched` says that the piece is
    /// soon done.
    ///
    /// # Safety
    /// The batch's input is not changed and its output not touched until `wait` returned without an error. The
    /// other process writes there.
    ///
    /// # Errors
    /// What the driver or the system says.
    pub unsafe fn submit(
        &mut self,
        piece: &Piece,
        batch: &Batch,
        way: Way,
        is_watched: bool,
    ) -> Result<bool, Fault> {
        // The batch's own buffers, if they serve.
        let own = [&batch.input, &batch.output].map(|buffer| self.own(piece, batch, buffer, way));
        let direct = own.map(|own| own.is_some() && way == Way::Direct);
        (self.keys, self.is_watched) = (piece.keys.len(), is_watched);
        self.number = self.number.wrapping_add(1);
        let side = usize::from(batch.op == Op::Open);
        self.plaintext = (side, if own[side].is_none() { piece.bytes } else { 0 });
        piece.describe(batch, direct, &mut self.desk[..piece.described_len()]);
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
            &Call::Do(Order {
                number: self.number,
                is_watched,
                opens: batch.op == Op::Open,
                keys: piece.keys.len(),
                chunks: piece.chunks.len(),
                classes: piece.classes.clone(),
                wide: way != Way::Narrow,
                input: self.side(0, own[0], piece, way)?,
                output: self.side(1, own[1], piece, way)?,
            }),
            None,
        )?;
        Ok(own[1].is_some())
    }

    /// The memory that a buffer of the batch lies in, if the device takes a piece from there, or puts it there,
    /// without the CPU's help.
    fn own<'a>(&self, piece: &Piece, batch: &Batch, buffer: &'a Buffer, way: Way) -> Option<&'a LentMemory> {
        let aligned =
            || piece.chunks.iter().all(|chunk| batch.jobs[chunk.job].offset.is_multiple_of(ALIGNMENT));
        let long_runs = || piece.runs.len() == 1 || piece.bytes / piece.runs.len() >= SHORT_RUN;
        let memory = buffer.lent().filter(|memory| memory.is_of(&self.process))?;
        let serves = if way == Way::Direct { aligned() } else { long_runs() };
        serves.then_some(memory)
    }

    /// The slot's own memory for input (0) or output (1), of so many bytes at least: most pieces are far shorter than
    /// the longest one, and memory of that length for every slot would be more than all else that a mount takes.
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

    /// What the process is told about input (0) or output (1).
    fn side(&self, side: usize, own: Option<&LentMemory>, piece: &Piece, way: Way) -> Result<Side, Fault> {
        let memory = own.or(self.gathered[side].as_ref()).ok_or(Fault::OutOfService)?.id();
        Ok(match way {
            Way::Direct => Side::Direct(memory),
            _ if own.is_some() => Side::Copied(memory, piece.runs.clone()),
            // Gathered as it lies on the device.
            _ => Side::Copied(memory, vec![Run { host: 0, place: 0, len: piece.bytes }]),
        })
    }

    /// Waits until what was submitted is done, and wipes the keys.
    ///
    /// # Errors
    /// What the driver says, or that there is no answer: then the other process may still be at it.
    pub fn wait(&mut self, limit: Duration) -> Result<(), Fault> {
        let answer = if self.is_watched && self.watch() { Ok(Answer::Done) } else { self.answer(limit) };
        let done = answer.and_then(|answer| match answer {
            Answer::Done => Ok(()),
            Answer::Failed(why) => Err(Fault::Refused(why)),
            _ => Err(Fault::Wrong("another answer than that to an order")),
        });
        if done.is_err() {
            // Before memory is given up that the device may write to.
            self.process.kill();
        }
        wipe(&mut self.desk[..self.keys * KEY_SLOT]);
        done
    }

    /// Watches for the device's word that it is done, for a while; whether it came. Others who want the processor
    /// get it.
    fn watch(&self) -> bool {
        let (done, end) = (self.desk.number(self.limits.done_at()), Instant::now() + ATTENTION);
        while done.load(Ordering::Acquire) != self.number {
            if Instant::now() >= end {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    /// Sleeps until the process says that the piece is done, or what went wrong.
    fn answer(&self, limit: Duration) -> Result<Answer, Fault> {
        if self.is_watched {
            self.orders.send(&Call::Tell, None)?;
        }
        Ok(self.orders.receive(Some(limit))?.0)
    }

    /// Tag and verdict of each chunk of the piece that was waited for. Tags are those of a piece that was sealed.
    pub fn results(&self) -> impl Iterator<Item = (Tag, Verdict)> {
        let tags = self.desk[self.limits.tags_at()..].as_chunks::<TAG>().0;
        let words = self.desk[self.limits.verdicts_at()..].as_chunks::<VERDICT>().0;
        let verdicts = words.iter().map(|word| Verdict::of(u32::from_le_bytes(*word), self.number));
        tags.iter().copied().zip(verdicts)
    }

    /// Wipes the plaintext that was gathered for the last piece.
    pub fn wipe(&mut self) {
        let (side, len) = self.plaintext;
        if let Some(gathered) = &mut self.gathered[side] {
            wipe(&mut gathered[..len]);
        }
    }

    /// Copies gathered output to where the batch wants it.
    pub fn scatter(&self, piece: &Piece, batch: &mut Batch) {
        let Some(gathered) = &self.gathered[1] else { return };
        for run in &piece.runs {
            batch.output[run.host..][..run.len].copy_from_slice(&gathered[run.place..][..run.len]);
        }
    }
}
