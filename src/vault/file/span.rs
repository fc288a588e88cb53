//! A run of chunks opened at once: one read of the store, one batch, one buffer of plaintext.

use super::{File, read::damaged_chunk, state::Identity};
use crate::{
    crypto::{
        chunk::{CHUNK, ChunkId},
        tags::Opened,
    },
    engine::{Batch, Buffer, ChunkJob, Op},
    format::{entry::Slot, layout},
    metrics::{self, Activity},
    vault::Result,
};
use std::{io::IoSliceMut, ops::Range};

/// Plaintext of a run of whole chunks.
pub(super) struct Span {
    buffer: Buffer,
    /// Where it begins in the file.
    start: u64,
    /// Bytes up to its end, or the file's.
    len: usize,
    /// Which content of the file it is of.
    pub(super) content: u64,
}

impl Span {
    /// Up to `len` bytes from `offset` on, fewer where the span ends.
    pub(super) fn part(&self, offset: u64, len: usize) -> &[u8] {
        let from = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX).min(self.len);
        &self.buffer[from..from.saturating_add(len).min(self.len)]
    }
}

/// What a span is made of, gathered under the file's lock.
#[derive(Default)]
struct Parts {
    /// Chunks that the store has, ascending, and their slots.
    stored: Vec<(u64, Slot)>,
    /// Chunks that are not in the store: zeros, or what the write buffer has (copied into the input).
    zeros: Vec<u64>,
    buffered: Vec<u64>,
}

impl File {
    /// Opens the chunks of a range, of which the first exists.
    ///
    /// # Errors
    /// `Damaged` if one does not authenticate, or what leads to it; else the store's.
    pub(super) fn open_span(&self, chunks: Range<u64>) -> Result<Span> {
        // The buffers first: nobody should hold a file while waiting for memory.
        let (mut content, spare) = self.buffers_for((chunks.end - chunks.start) as usize * CHUNK);
        let st = self.read_state(chunks.clone())?;
        let start = chunks.start * layout::CHUNK;
        let end = st.size.min(chunks.end * layout::CHUNK);
        let (version, stored_size) = (st.content, st.tree.size());
        let chunks = chunks.start..layout::chunks(end);
        // Most chunks of a file are stored.
        let stored = Vec::with_capacity((chunks.end - chunks.start) as usize);
        let mut parts = Parts { stored, ..Parts::default() };
        for index in chunks.clone() {
            let place = place(&chunks, index);
            if let Some(plain) = st.buffer.get(index) {
                content[place..place + CHUNK].copy_from_slice(&plain[..]);
                parts.buffered.push(index);
            } else if let Some(slot) = self.stored_slot(&st, index)? {
                parts.stored.push((index, slot));
            } else {
                parts.zeros.push(index);
            }
        }
        let identity = st.identity.clone();
        self.read_stored(&chunks, stored_size, &parts, &mut content)?;
        drop(st);

        if let Some(identity) = identity.filter(|_| !parts.stored.is_empty()) {
            let stored = Stored { chunks: &chunks, size: stored_size, identity: &identity };
            match spare {
                None => self.open_in_place(stored, &parts, &mut content)?,
                Some(output) => content = self.open_batch(stored, &parts, content, output)?,
            }
        }
        for &index in &parts.zeros {
            let place = place(&chunks, index);
            content[place..place + CHUNK].fill(0);
        }
        Ok(Span { buffer: content, start, len: (end - start) as usize, content: version })
    }

    /// Where chunks of so many bytes are read to, and where they are opened to unless that is done in place.
    fn buffers_for(&self, len: usize) -> (Buffer, Option<Buffer>) {
        let router = &self.context.router;
        if router.opens_in_place() {
            return (router.buffers.get(len), None);
        }
        let (input, output) = router.buffers.get_pair(len);
        (input, Some(output))
    }

    /// Reads the ciphertext of all stored chunks to their places with one call. What lies between groups
    /// goes aside, and what lies between stored chunks is overwritten later or never looked at.
    fn read_stored(&self, chunks: &Range<u64>, size: u64, parts: &Parts, input: &mut [u8]) -> Result<()> {
        let (Some((first, _)), Some((last, _))) = (parts.stored.first(), parts.stored.last()) else {
            return Ok(());
        };
        if !parts.buffered.is_empty() {
            return self.read_each(chunks, size, parts, input);
        }
        let mut aside = vec![0; gaps(*first, *last)];
        let (mut aside_rest, mut rest) = (&mut aside[..], &mut input[place(chunks, *first)..]);
        let mut pieces = Vec::new();
        let (mut index, mut wanted) = (*first, 0);
        while index <= *last {
            let end = group_end(index).min(*last + 1);
            let bytes = (end - index - 1) as usize * CHUNK + layout::chunk_len(size, end - 1);
            let (piece, after) = std::mem::take(&mut rest).split_at_mut(bytes);
            pieces.push(IoSliceMut::new(piece));
            rest = after;
            wanted += bytes;
            if end <= *last {
                let (gap, after) = std::mem::take(&mut aside_rest).split_at_mut(gap_before(end));
                pieces.push(IoSliceMut::new(gap));
                aside_rest = after;
                wanted += gap_before(end);
            }
            index = end;
        }
        let got = self.store.read_vectored_at(&mut pieces, layout::chunk_offset(*first))?;
        if got < wanted {
            let end = layout::chunk_offset(*first) + got as u64;
            let cut = |index: u64| layout::chunk_offset(index) + layout::chunk_len(size, index) as u64 > end;
            if let Some((index, _)) = parts.stored.iter().find(|(index, _)| cut(*index)) {
                return Err(damaged_chunk(*index));
            }
        }
        Ok(())
    }

    /// The same chunk by chunk: the buffered ones between them are in the input already.
    fn read_each(&self, chunks: &Range<u64>, size: u64, parts: &Parts, input: &mut [u8]) -> Result<()> {
        parts.stored.iter().try_for_each(|(index, _)| {
            let len = layout::chunk_len(size, *index);
            self.read_ciphertext(*index, &mut input[place(chunks, *index)..][..len])
        })
    }

    fn open_in_place(&self, stored: Stored, parts: &Parts, content: &mut [u8]) -> Result<()> {
        let mut bytes = 0;
        let (mut at, mut rest) = (0, content);
        let mut chunks = Vec::with_capacity(parts.stored.len());
        for (index, slot) in &parts.stored {
            let (_, from) = std::mem::take(&mut rest).split_at_mut(place(stored.chunks, *index) - at);
            let (chunk, after) = from.split_at_mut(CHUNK);
            (at, rest) = (place(stored.chunks, *index) + CHUNK, after);
            // A tail that was grown since reads as zeros up to the end of its chunk.
            let (data, grown) = chunk.split_at_mut(layout::chunk_len(stored.size, *index));
            grown.fill(0);
            bytes += data.len();
            chunks.push(Opened { id: chunk_id(*index, slot), tag: slot.tag, data });
        }
        let (router, keys) = (&self.context.router, &stored.identity.keys.chunk);
        let open = || router.open_in_place(keys, &mut chunks);
        match metrics::measure(Activity::Batch, bytes, open)? {
            Some(place) => Err(damaged_chunk(parts.stored[place].0)),
            None => Ok(()),
        }
    }

    fn open_batch(&self, stored: Stored, parts: &Parts, input: Buffer, output: Buffer) -> Result<Buffer> {
        let job = |(index, slot): &(u64, Slot)| ChunkJob {
            key: 0,
            id: chunk_id(*index, slot),
            len: layout::chunk_len(stored.size, *index),
            offset: place(stored.chunks, *index),
            tag: slot.tag,
            ok: false,
        };
        let jobs = parts.stored.iter().map(job).collect();
        let keys = vec![stored.identity.keys.chunk.clone()];
        let mut batch = Batch { op: Op::Open, keys, jobs, input, output };
        let bytes = batch.jobs.iter().map(|job| job.len).sum();
        metrics::measure(Activity::Batch, bytes, || self.context.router.run(&mut batch))?;
        if let Some(job) = batch.jobs.iter().find(|job| !job.ok) {
            return Err(damaged_chunk(job.id.index));
        }
        // As above.
        for job in batch.jobs.iter().filter(|job| job.len < CHUNK) {
            batch.output[job.offset + job.len..job.offset + CHUNK].fill(0);
        }
        for &index in &parts.buffered {
            let place = place(stored.chunks, index);
            batch.output[place..place + CHUNK].copy_from_slice(&batch.input[place..place + CHUNK]);
        }
        Ok(batch.output)
    }
}

/// Whose chunks are opened.
#[derive(Clone, Copy)]
struct Stored<'a> {
    /// Those that the buffer has places for.
    chunks: &'a Range<u64>,
    /// Bytes of the stored version.
    size: u64,
    identity: &'a Identity,
}

fn chunk_id(index: u64, slot: &Slot) -> ChunkId {
    ChunkId { index, epoch: slot.epoch, nonce: slot.nonce }
}

fn place(chunks: &Range<u64>, index: u64) -> usize {
    (index - chunks.start) as usize * CHUNK
}

/// First chunk behind the group of `index`.
fn group_end(index: u64) -> u64 {
    layout::first_chunk(layout::group_of(index) + 1)
}

/// Bytes of leaf and node pages between a group's first chunk and the chunk before it.
fn gap_before(first: u64) -> usize {
    (layout::chunk_offset(first) - layout::chunk_offset(first - 1) - layout::CHUNK) as usize
}

/// Bytes of leaf and node pages between two chunks.
fn gaps(first: u64, last: u64) -> usize {
    (layout::chunk_offset(last) - layout::chunk_offset(first) - (last - first) * layout::CHUNK) as usize
}
