//! Opens a long range of chunks at once: one read of the store, one batch, one plaintext buffer.

use super::{in_place::portions, locate::slot_to_open, range::RangeReader};
use crate::{
    chunk_range::ChunkRange,
    damage::damaged_chunk,
    error::{Error, Result},
    record::FileIdentity,
    rules::{Rule, holds},
    state::State,
    sync::RwLockReadGuard,
};
use crypto::chunk::{CHUNK, ChunkId};
use engine::{Batch, Buffer, ChunkJob, Op};
use format::{entry::Entry, layout};
use metrics::Activity;
use std::sync::Arc;

/// Plaintext of a range of whole chunks.
pub(crate) struct PlainRange {
    buffer: Buffer,
    /// Offset of the range in the file.
    start: u64,
    /// Bytes up to the end of the range or of the file, whichever comes first.
    len: usize,
    /// Id of the content from which the range was read.
    pub(super) content: u64,
}

impl PlainRange {
    /// Up to `len` bytes at `offset`, fewer at the end of the range.
    pub(crate) fn part(&self, offset: u64, len: usize) -> &[u8] {
        let from = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX).min(self.len);
        &self.buffer[from..from.saturating_add(len).min(self.len)]
    }
}

/// Whether the file's lock is held while chunks are read from the store.
enum ReadLock {
    Released,
    Held,
}

/// The sources of a range's chunks, collected under the file's lock.
#[derive(Default)]
struct Parts {
    /// Chunks in the store, ascending, each with its offset in the range.
    stored: Vec<ChunkJob>,
    /// Chunks not in the store: zeros, or chunks from the write buffer, which are copied into the input.
    zeros: Vec<u64>,
    buffered: Vec<u64>,
}

/// The sources of a range, and the state at that moment.
struct FoundRange<'a> {
    /// First chunk of the range.
    first: u64,
    /// Bytes up to the end of the range or of the file, whichever comes first.
    len: usize,
    /// Id of the file's content.
    version: u64,
    parts: Parts,
    /// Keys for the stored chunks; `None` if there are none.
    identity: Option<Arc<FileIdentity>>,
    /// The file's lock, if it is held until everything is read.
    _held: Option<RwLockReadGuard<'a, State>>,
}

impl RangeReader<'_> {
    /// Opens the chunks of a range that exist. The file may have been truncated since the range was
    /// chosen.
    ///
    /// # Errors
    /// `Damaged` if a chunk, or a page above it, does not authenticate; otherwise the store's.
    pub(crate) fn decrypt_range(&self, chunks: ChunkRange) -> Result<PlainRange> {
        match self.try_decrypt_range(chunks.clone(), ReadLock::Released) {
            Err(Error::Damaged(_)) if holds(Rule::ReadAgainHeld) => {
                self.try_decrypt_range(chunks, ReadLock::Held)
            }
            result => result,
        }
    }

    /// Reads whole chunks directly into `out` and opens them there on the CPU. Returns the number of bytes:
    /// fewer only at the end of the file.
    ///
    /// # Errors
    /// Those of `decrypt_range`, and `Damaged` if the stored length is wrong. After an error, the content of
    /// `out` is unspecified.
    pub(crate) fn read_whole(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let end = offset.saturating_add(out.len() as u64);
        self.core.state.read().check_readable(end)?;
        let chunks = offset / layout::CHUNK..end / layout::CHUNK;
        match self.try_read_whole_chunks(&chunks, out, ReadLock::Released) {
            Err(Error::Damaged(_)) if holds(Rule::ReadAgainHeld) => {
                self.try_read_whole_chunks(&chunks, out, ReadLock::Held)
            }
            result => result,
        }
    }

    fn try_read_whole_chunks(&self, chunks: &ChunkRange, out: &mut [u8], lock: ReadLock) -> Result<usize> {
        let found = self.find(chunks, out, lock)?;
        self.fill_in_place(&found, out)?;
        Ok(found.len)
    }

    /// Opens a range. With the lock released, a chunk may be overwritten while it is read; it then does
    /// not verify.
    fn try_decrypt_range(&self, chunks: ChunkRange, lock: ReadLock) -> Result<PlainRange> {
        // Get the buffers first: no thread should lock a file while it waits for memory.
        let (mut content, spare) = self.buffers_for((chunks.end - chunks.start) as usize * CHUNK);
        let mut found = self.find(&chunks, &mut content, lock)?;
        match (spare, &found.identity) {
            (None, _) | (Some(_), None) => self.fill_in_place(&found, &mut content)?,
            (Some(output), Some(identity)) => {
                let Parts { stored, zeros, buffered } = std::mem::take(&mut found.parts);
                // Buffered chunks are in place already.
                let apart = !buffered.is_empty();
                let mut portions = portions(&stored, &mut content, 1);
                portions.iter_mut().try_for_each(|portion| self.chunks().read_portion(portion, apart))?;
                let copied = buffered.iter().map(|index| place(found.first, *index));
                content = self.open_batch(identity, stored, content, output, copied)?;
                fill_zeros(found.first, &zeros, &mut content);
            }
        }
        let FoundRange { len, version, .. } = found;
        Ok(PlainRange { buffer: content, start: chunks.start * layout::CHUNK, len, content: version })
    }

    /// Collects the sources of a range under the file's lock.
    fn find(&self, chunks: &ChunkRange, content: &mut [u8], lock: ReadLock) -> Result<FoundRange<'_>> {
        let st = self.state_with_slots(chunks)?;
        // A write completed above may have broken the state. The length was checked earlier.
        st.check_readable(0)?;
        let start = chunks.start * layout::CHUNK;
        let end = st.dirty.size.min(chunks.end * layout::CHUNK).max(start);
        let version = st.times.content;
        let parts = parts(&st, &(chunks.start..layout::chunks(end)), content)?;
        let identity = st.stored.identity.clone().filter(|_| !parts.stored.is_empty());
        let _held = matches!(lock, ReadLock::Held).then_some(st);
        Ok(FoundRange { first: chunks.start, len: (end - start) as usize, version, parts, identity, _held })
    }

    /// Reads and opens these chunks in place.
    fn fill_in_place(&self, found: &FoundRange, content: &mut [u8]) -> Result<()> {
        let Parts { stored, zeros, buffered } = &found.parts;
        if let Some(identity) = &found.identity {
            // Buffered chunks are in place already.
            self.chunks().decrypt_in_place(&identity.keys.chunk, stored, content, !buffered.is_empty())?;
        }
        fill_zeros(found.first, zeros, content);
        Ok(())
    }

    /// An input buffer of this many bytes, and an output buffer unless chunks are opened in place.
    fn buffers_for(&self, len: usize) -> (Buffer, Option<Buffer>) {
        let router = &self.core.backing.context.router;
        if router.opens_in_place() {
            return (router.buffers.get(len), None);
        }
        let (input, output) = router.buffers.get_pair(len);
        (input, Some(output))
    }

    /// `copied`: offsets of chunks that are plaintext already.
    fn open_batch(
        &self,
        identity: &FileIdentity,
        jobs: Vec<ChunkJob>,
        input: Buffer,
        output: Buffer,
        copied: impl Iterator<Item = usize>,
    ) -> Result<Buffer> {
        let keys = vec![identity.keys.chunk.clone()];
        let mut batch = Batch { op: Op::Open, keys, jobs, input, output };
        let bytes = batch.jobs.iter().map(|job| job.len).sum();
        metrics::measure(Activity::Batch, bytes, || self.core.backing.context.router.run(&mut batch))?;
        if let Some(job) = batch.jobs.iter().find(|job| !job.ok) {
            return Err(damaged_chunk(job.id.index));
        }
        // A chunk that the end of the file cuts short is filled with zeros.
        for job in batch.jobs.iter().filter(|job| job.len < CHUNK) {
            batch.output[job.offset + job.len..job.offset + CHUNK].fill(0);
        }
        for place in copied {
            batch.output[place..place + CHUNK].copy_from_slice(&batch.input[place..place + CHUNK]);
        }
        Ok(batch.output)
    }
}

/// Finds the content of each chunk. Chunks in the write buffer are copied to their place in
/// `content`.
fn parts(st: &State, chunks: &ChunkRange, content: &mut [u8]) -> Result<Parts> {
    let size = st.stored.tree.size();
    // Most chunks of a file are stored.
    let stored = Vec::with_capacity((chunks.end - chunks.start) as usize);
    let mut parts = Parts { stored, ..Parts::default() };
    let mut first = chunks.start;
    while first < chunks.end {
        let end = group_end(first).min(chunks.end);
        let is_stored = first < layout::chunks(size);
        let entries = if is_stored { st.stored.tree.entries(layout::group_of(first))? } else { &[] };
        for index in first..end {
            let offset = place(chunks.start, index);
            let entry = entries.get(layout::place_in_group(index)).unwrap_or(&Entry([None; 2]));
            if let Some(plain) = st.dirty.buffer.get(index) {
                content[offset..offset + CHUNK].copy_from_slice(&plain[..]);
                parts.buffered.push(index);
            } else if let Some(slot) = slot_to_open(st, index, entry)? {
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

/// Offset of a chunk in a range that begins with the chunk `first`.
fn place(first: u64, index: u64) -> usize {
    (index - first) as usize * CHUNK
}

fn fill_zeros(first: u64, zeros: &[u64], content: &mut [u8]) {
    for &index in zeros {
        let place = place(first, index);
        content[place..place + CHUNK].fill(0);
    }
}

/// The first chunk after the group of `index`.
fn group_end(index: u64) -> u64 {
    layout::first_chunk(layout::group_of(index) + 1)
}
