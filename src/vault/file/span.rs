//! A run of chunks opened at once: one read of the store, one batch, one buffer of plaintext.

use super::{
    File,
    read::damaged_chunk,
    state::{Identity, State},
};
use crate::{
    crypto::{
        chunk::{CHUNK, ChunkId},
        tags::Opened,
    },
    engine::{Batch, Buffer, ChunkJob, Op},
    format::{entry::Entry, layout},
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
    /// Chunks that the store has, ascending, at their places.
    stored: Vec<ChunkJob>,
    /// Chunks that are not in the store: zeros, or what the write buffer has (copied into the input).
    zeros: Vec<u64>,
    buffered: Vec<u64>,
}

impl File {
    /// Opens the chunks of a range, as far as they exist: the file may have been cut since the range was chosen.
    ///
    /// # Errors
    /// `Damaged` if one does not authenticate, or what leads to it; else the store's.
    pub(super) fn open_span(&self, chunks: Range<u64>) -> Result<Span> {
        // The buffers first: nobody should hold a file while waiting for memory.
        let (mut content, spare) = self.buffers_for((chunks.end - chunks.start) as usize * CHUNK);
        let st = self.read_state(chunks.clone())?;
        let start = chunks.start * layout::CHUNK;
        let end = st.size.min(chunks.end * layout::CHUNK).max(start);
        let version = st.content;
        let chunks = chunks.start..layout::chunks(end);
        let mut parts = self.parts(&st, &chunks, &mut content)?;
        let identity = st.identity.clone();
        self.read_stored(&chunks, st.tree.size(), &parts, &mut content)?;
        drop(st);

        let stored = std::mem::take(&mut parts.stored);
        if let Some(identity) = identity.filter(|_| !stored.is_empty()) {
            match spare {
                None => self.open_in_place(&identity, &stored, &mut content)?,
                Some(output) => {
                    let copied = parts.buffered.iter().map(|index| place(&chunks, *index));
                    content = self.open_batch(&identity, stored, content, output, copied)?;
                }
            }
        }
        for &index in &parts.zeros {
            let place = place(&chunks, index);
            content[place..place + CHUNK].fill(0);
        }
        Ok(Span { buffer: content, start, len: (end - start) as usize, content: version })
    }

    /// Where the content of each chunk is. What is in the write buffer is copied to its place in `content`.
    fn parts(&self, st: &State, chunks: &Range<u64>, content: &mut [u8]) -> Result<Parts> {
        let size = st.tree.size();
        // Most chunks of a file are stored.
        let stored = Vec::with_capacity((chunks.end - chunks.start) as usize);
        let mut parts = Parts { stored, ..Parts::default() };
        let mut first = chunks.start;
        while first < chunks.end {
            let end = group_end(first).min(chunks.end);
            let is_stored = first < layout::chunks(size);
            let entries = if is_stored { st.tree.entries(layout::group_of(first))? } else { &[] };
            for index in first..end {
                let offset = place(chunks, index);
                let entry = entries.get(layout::place_in_group(index)).unwrap_or(&Entry([None; 2]));
                if let Some(plain) = st.buffer.get(index) {
                    content[offset..offset + CHUNK].copy_from_slice(&plain[..]);
                    parts.buffered.push(index);
                } else if let Some(slot) = self.slot_to_open(st, index, entry)? {
                    let id = ChunkId { index, epoch: slot.epoch, nonce: slot.nonce };
                    let len = layout::chunk_len(size, index);
                    parts.stored.push(ChunkJob { key: 0, id, len, offset, tag: slot.tag, ok: false });
                } else {
                    parts.zeros.push(index);
                }
            }
            first = end;
        }
        Ok(parts)
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
        let (Some(first), Some(last)) = (parts.stored.first(), parts.stored.last()) else {
            return Ok(());
        };
        let (first, last) = (first.id.index, last.id.index);
        if !parts.buffered.is_empty() {
            return self.read_each(&parts.stored, input);
        }
        let mut aside = vec![0; gaps(first, last)];
        let (mut aside_rest, mut rest) = (&mut aside[..], &mut input[place(chunks, first)..]);
        let mut pieces = Vec::new();
        let (mut index, mut wanted) = (first, 0);
        while index <= last {
            let end = group_end(index).min(last + 1);
            let bytes = (end - index - 1) as usize * CHUNK + layout::chunk_len(size, end - 1);
            let (piece, after) = std::mem::take(&mut rest).split_at_mut(bytes);
            pieces.push(IoSliceMut::new(piece));
            rest = after;
            wanted += bytes;
            if end <= last {
                let (gap, after) = std::mem::take(&mut aside_rest).split_at_mut(gap_before(end));
                pieces.push(IoSliceMut::new(gap));
                aside_rest = after;
                wanted += gap_before(end);
            }
            index = end;
        }
        let got = self.store.read_vectored_at(&mut pieces, layout::chunk_offset(first))?;
        if got < wanted {
            let end = layout::chunk_offset(first) + got as u64;
            let cut = |job: &&ChunkJob| layout::chunk_offset(job.id.index) + job.len as u64 > end;
            if let Some(job) = parts.stored.iter().find(cut) {
                return Err(damaged_chunk(job.id.index));
            }
        }
        Ok(())
    }

    /// The same chunk by chunk: the buffered ones between them are in the input already.
    fn read_each(&self, stored: &[ChunkJob], input: &mut [u8]) -> Result<()> {
        stored
            .iter()
            .try_for_each(|job| self.read_ciphertext(job.id.index, &mut input[job.offset..][..job.len]))
    }

    fn open_in_place(&self, identity: &Identity, stored: &[ChunkJob], content: &mut [u8]) -> Result<()> {
        let mut bytes = 0;
        let (mut at, mut rest) = (0, content);
        let mut chunks = Vec::with_capacity(stored.len());
        for job in stored {
            let (_, from) = std::mem::take(&mut rest).split_at_mut(job.offset - at);
            let (chunk, after) = from.split_at_mut(CHUNK);
            (at, rest) = (job.offset + CHUNK, after);
            // A tail that was grown since reads as zeros up to the end of its chunk.
            let (data, grown) = chunk.split_at_mut(job.len);
            grown.fill(0);
            bytes += data.len();
            chunks.push(Opened { id: job.id, tag: job.tag, data });
        }
        let open = || self.context.router.open_in_place(&identity.keys.chunk, &mut chunks);
        match metrics::measure(Activity::Batch, bytes, open)? {
            Some(place) => Err(damaged_chunk(stored[place].id.index)),
            None => Ok(()),
        }
    }

    /// `copied` are the places of chunks that are plaintext already.
    fn open_batch(
        &self,
        identity: &Identity,
        jobs: Vec<ChunkJob>,
        input: Buffer,
        output: Buffer,
        copied: impl Iterator<Item = usize>,
    ) -> Result<Buffer> {
        let keys = vec![identity.keys.chunk.clone()];
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
        for place in copied {
            batch.output[place..place + CHUNK].copy_from_slice(&batch.input[place..place + CHUNK]);
        }
        Ok(batch.output)
    }
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
