//! A batch's way through the ring, piece by piece. Uploads, kernels and downloads of different pieces
//! overlap.

use super::{
    device::GpuDevice,
    fault::Fault,
    plan::{GpuPiece, Limits, PieceVerdict, Placed, next_piece},
    slot::RingSlot,
    transfer_modes::{TransferMode, TransferModes},
};
use crate::{Batch, Op};
use crypto::chunk::Tag;
use std::{collections::VecDeque, ops::Range, sync::atomic::Ordering};
use zeroize::Zeroizing;

/// Minimum number of pieces per batch, unless they would be shorter than `SHORTEST`.
const OVERLAP: usize = 4;
/// In bytes. Copying less takes hardly less time.
const SHORTEST: usize = 1 << 20;

/// Runs a checked batch. `order` comes from `Batch::check`, and `ways` selects how pieces are processed.
///
/// # Errors
/// If the device failed. The batch's input is then intact, and nothing writes to its output any more.
pub(super) fn run(
    device: &GpuDevice,
    batch: &mut Batch,
    order: &[usize],
    modes: TransferModes,
) -> Result<(), Fault> {
    let limits = limits(device, batch, order, modes);
    let mut work = BatchWork { device, batch, modes, in_flight: VecDeque::new(), touched: false };
    let mut rest = order;
    while let Some(piece) = next_piece(work.batch, &mut rest, limits) {
        let slot = work.slot()?;
        work.submit(slot, piece)?;
    }
    while work.finish_oldest()? {}
    work.touched = false;
    Ok(())
}

/// An idle device gets the batch in several pieces, so that copies and kernels overlap. A busy one has
/// other pieces to overlap with, and without copies there is nothing to overlap.
fn limits(device: &GpuDevice, batch: &Batch, order: &[usize], modes: TransferModes) -> Limits {
    let most = device.shape.limits();
    if device.chunks_in_flight.load(Ordering::Relaxed) > 0 || order.len() <= modes.direct {
        return most;
    }
    let bytes = order.iter().map(|job| batch.jobs[*job].len).fold(0, usize::saturating_add);
    let share = bytes.div_ceil(OVERLAP).next_multiple_of(4096).max(SHORTEST);
    Limits { bytes: share.min(most.bytes), ..most }
}

/// A piece on the device.
struct PieceInFlight {
    slot: RingSlot,
    piece: GpuPiece,
    /// The output arrives in the batch's own buffer.
    own: bool,
    /// One chunk of each launch, computed by the CPU meanwhile.
    samples: Vec<Sample>,
}

/// A chunk as computed by the CPU.
struct Sample {
    job: usize,
    ok: bool,
    tag: Tag,
    output: Zeroizing<Vec<u8>>,
}

/// A batch with its pieces on the device. On drop, the device no longer uses anything of the batch.
struct BatchWork<'a> {
    device: &'a GpuDevice,
    batch: &'a mut Batch,
    modes: TransferModes,
    /// Oldest first.
    in_flight: VecDeque<PieceInFlight>,
    /// The device may be using the batch's buffers or the slots.
    touched: bool,
}

impl BatchWork<'_> {
    /// A slot for the next piece. Finishes older pieces if none is free.
    fn slot(&mut self) -> Result<RingSlot, Fault> {
        loop {
            if let Some(slot) = self.device.try_take() {
                return Ok(slot);
            }
            // Finish our own pieces first: a caller that blocks in `take` must hold no slot, or callers
            // could deadlock.
            if !self.finish_oldest()? {
                return self.device.take();
            }
        }
    }

    fn submit(&mut self, mut slot: RingSlot, piece: GpuPiece) -> Result<(), Fault> {
        self.touched = true;
        let chunks = piece.chunks.len();
        let in_flight =
            self.device.chunks_in_flight.fetch_add(chunks, Ordering::Relaxed).saturating_add(chunks);
        let is_watched = in_flight <= self.modes.watched;
        let way = match self.modes.of(in_flight) {
            TransferMode::Direct if !self.device.shape.limits().keeps(chunks) => TransferMode::Wide,
            way => way,
        };
        // SAFETY: `self` borrows the buffers and touches none of a piece's bytes before its `wait`. If that
        // does not succeed, `drop` replaces the buffers in the batch.
        match unsafe { slot.submit(&piece, self.batch, way, is_watched) } {
            Ok(own) => {
                let samples = samples(self.device, self.batch, &piece);
                self.in_flight.push_back(PieceInFlight { slot, piece, own, samples });
                Ok(())
            }
            Err(fault) => {
                self.device.chunks_in_flight.fetch_sub(chunks, Ordering::Relaxed);
                Err(fault)
            }
        }
    }

    /// Waits for the oldest piece and takes its results. Returns false if there is none.
    fn finish_oldest(&mut self) -> Result<bool, Fault> {
        let Some(mut oldest) = self.in_flight.pop_front() else { return Ok(false) };
        let waited = oldest.slot.wait(self.device.limit());
        self.device.chunks_in_flight.fetch_sub(oldest.piece.chunks.len(), Ordering::Relaxed);
        waited?;
        let delivered = self.deliver(&oldest);
        self.device.put(oldest.slot);
        delivered.map(|()| true)
    }

    fn deliver(&mut self, done: &PieceInFlight) -> Result<(), Fault> {
        let piece = &done.piece;
        if !done.own {
            done.slot.scatter(piece, self.batch);
        }
        for (chunk, (tag, verdict)) in piece.chunks.iter().zip(done.slot.results()) {
            take_result(self.batch, chunk, tag, verdict)?;
        }
        done.samples.iter().try_for_each(|sample| compare(self.batch, sample))
    }
}

impl Drop for BatchWork<'_> {
    /// After a failure: ends the device's process. Memory lent to it may still be written for a while, so
    /// the batch's data moves to other memory. A buffer in another device's memory stays: it was copied for
    /// this one.
    fn drop(&mut self) {
        if !self.touched {
            return;
        }
        self.device.end_service();
        let chunks: usize = self.in_flight.iter().map(|piece| piece.piece.chunks.len()).sum();
        self.device.chunks_in_flight.fetch_sub(chunks, Ordering::Relaxed);
        for buffer in [&mut self.batch.input, &mut self.batch.output] {
            if buffer.lent().is_some_and(|memory| memory.is_of(&self.device.process)) {
                buffer.move_to_heap();
            }
        }
    }
}

/// Takes over the result of one chunk. If a chunk does not verify, the CPU checks it again: a device error
/// must not turn good data into an error. A chunk that the device did not check is recomputed.
fn take_result(batch: &mut Batch, chunk: &Placed, tag: Tag, verdict: PieceVerdict) -> Result<(), Fault> {
    let job = &mut batch.jobs[chunk.job];
    if batch.op == Op::Seal {
        job.tag = tag;
    }
    match (verdict, batch.op) {
        (PieceVerdict::Confirmed, _) => job.ok = true,
        (PieceVerdict::Unverified, Op::Open) => {
            job.ok = false;
            let range = job.offset..job.offset + job.len;
            if batch.keys[job.key].verify(&job.id, &job.tag, &batch.input[range.clone()]).is_ok() {
                return Err(Fault::Wrong("a good chunk does not verify"));
            }
            batch.output[range].fill(0);
        }
        (PieceVerdict::Unknown, _) => {
            let expected = sample(batch, chunk.job);
            let job = &mut batch.jobs[chunk.job];
            (job.ok, job.tag) = (expected.ok, expected.tag);
            batch.output[job.offset..job.offset + job.len].copy_from_slice(&expected.output);
        }
        (PieceVerdict::Refuted, _) | (PieceVerdict::Unverified, Op::Seal) => {
            return Err(Fault::Wrong("a chunk that the device made otherwise the second time"));
        }
    }
    Ok(())
}

/// Computes one chunk of each launch on the CPU.
fn samples(device: &GpuDevice, batch: &Batch, piece: &GpuPiece) -> Vec<Sample> {
    let one_of = |chunks: &Range<usize>| piece.chunks[chunks.start + device.sample(chunks.len())].job;
    piece.classes.iter().map(|(_, chunks)| sample(batch, one_of(chunks))).collect()
}

/// Computes a job's chunk on the CPU.
fn sample(batch: &Batch, number: usize) -> Sample {
    let job = &batch.jobs[number];
    let (keys, input) = (&batch.keys[job.key], &batch.input[job.offset..][..job.len]);
    let mut output = Zeroizing::new(vec![0; job.len]);
    let (ok, tag) = match batch.op {
        Op::Seal => (true, keys.seal(&job.id, input, &mut output)),
        Op::Open => (keys.open(&job.id, &job.tag, input, &mut output).is_ok(), job.tag),
    };
    Sample { job: number, ok, tag, output }
}

fn compare(batch: &Batch, sample: &Sample) -> Result<(), Fault> {
    let job = &batch.jobs[sample.job];
    let output = &batch.output[job.offset..][..job.len];
    let same = job.ok == sample.ok && job.tag == sample.tag && *output == sample.output[..];
    if same { Ok(()) } else { Err(Fault::Wrong("a chunk differs from the CPU's")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferPool, ChunkJob, CpuEngine, Engine};
    use crypto::{
        chunk::{CHUNK, ChunkId, ChunkKeys},
        cipher::Cipher,
        integrity::Integrity,
    };
    use std::sync::Arc;

    const FIRST: Placed = Placed { job: 0, place: 0, key: 0 };

    /// A chunk that was sealed or, for `Op::Open`, is about to be opened, and its tag.
    fn done(op: Op) -> (Batch, Tag) {
        let keys = ChunkKeys::new(Cipher::Aes256, Integrity::TurboShake128x4, &[1; 32], &[2; 32]);
        let (mut input, output) = BufferPool::new(usize::MAX).get_pair(CHUNK);
        input.fill(7);
        let id = ChunkId { index: 7, epoch: 9, nonce: [3; 10] };
        let job = ChunkJob { key: 0, id, len: CHUNK, offset: 0, tag: [0; 16], ok: false };
        let mut batch = Batch { op: Op::Seal, keys: vec![Arc::new(keys)], jobs: vec![job], input, output };
        CpuEngine::with_threads(1).run(&mut batch).expect("a good batch");
        let tag = batch.jobs[0].tag;
        if op == Op::Open {
            std::mem::swap(&mut batch.input, &mut batch.output);
            batch.op = op;
        }
        batch.jobs[0].ok = false;
        (batch, tag)
    }

    #[test]
    fn what_the_device_did_not_confirm_is_done_by_the_cpu() {
        for op in [Op::Seal, Op::Open] {
            for verdict in [PieceVerdict::Confirmed, PieceVerdict::Unknown] {
                let (mut batch, tag) = done(op);
                take_result(&mut batch, &FIRST, tag, verdict).expect("it is right");
                assert!(batch.jobs[0].ok && batch.jobs[0].tag == tag, "{op:?} {verdict:?}");
            }
            let (mut batch, tag) = done(op);
            let right = batch.output.to_vec();
            batch.output[CHUNK - 1] ^= 1;
            take_result(&mut batch, &FIRST, [7; 16], PieceVerdict::Unknown).expect("it is done again");
            assert!(batch.jobs[0].ok && batch.jobs[0].tag == tag && *batch.output == right[..], "{op:?}");
            let (mut batch, tag) = done(op);
            take_result(&mut batch, &FIRST, tag, PieceVerdict::Refuted).expect_err("it was refuted");
            let (mut batch, tag) = done(op);
            take_result(&mut batch, &FIRST, tag, PieceVerdict::Unverified).expect_err("it is good");
        }
    }

    #[test]
    fn a_bad_chunk_is_zeros_whoever_says_so() {
        for verdict in [PieceVerdict::Unverified, PieceVerdict::Unknown] {
            let (mut batch, tag) = done(Op::Open);
            batch.input[5] ^= 1;
            batch.output.fill(0xee);
            take_result(&mut batch, &FIRST, tag, verdict).expect("no fault of the device");
            assert!(!batch.jobs[0].ok && batch.output.iter().all(|byte| *byte == 0), "{verdict:?}");
        }
    }
}
