//! Opens chunks in the buffer they were read into, on all CPU threads. Each thread takes a run of chunks
//! that is contiguous in the store and small enough to be still in the cache when it is opened.

use super::small::ChunkReader;
use crate::{damage::damaged_chunk, error::Result};
use crypto::{
    chunk::{CHUNK, ChunkKeys},
    tags::Opened,
};
use engine::ChunkJob;
use format::layout;
use metrics::Activity;

/// Minimum chunks of a portion, if available: two of the widest vectors. A portion never exceeds one
/// group.
const LEAST: usize = 16;

/// Ascending chunks of one group, and the memory from the first of them to the last.
pub(super) struct Portion<'a> {
    chunks: &'a [ChunkJob],
    memory: &'a mut [u8],
}

/// Divides chunks among threads. Each chunk has its place in `content`.
pub(super) fn portions<'a>(
    mut chunks: &'a [ChunkJob],
    content: &'a mut [u8],
    threads: usize,
) -> Vec<Portion<'a>> {
    let most = chunks.len().div_ceil(threads.max(1)).max(LEAST);
    let (mut at, mut rest) = (0, content);
    let mut portions = Vec::with_capacity(chunks.len() / LEAST + 2);
    while let Some(first) = chunks.first() {
        let group = layout::group_of(first.id.index);
        let together = |chunk: &&ChunkJob| layout::group_of(chunk.id.index) == group;
        let (of_it, others) = chunks.split_at(chunks.iter().take(most).take_while(together).count());
        let end = of_it.last().unwrap_or(first).offset + CHUNK;
        let (_, from) = rest.split_at_mut(first.offset - at);
        let (memory, behind) = from.split_at_mut(end - first.offset);
        portions.push(Portion { chunks: of_it, memory });
        (chunks, at, rest) = (others, end, behind);
    }
    portions
}

impl ChunkReader<'_> {
    /// Reads the ciphertext of the chunks to their places. Unless `apart`, bytes between them are
    /// overwritten with data that is never used.
    pub(super) fn read_portion(&self, portion: &mut Portion, apart: bool) -> Result<()> {
        let Portion { chunks, memory } = portion;
        let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else { return Ok(()) };
        if apart {
            return chunks.iter().try_for_each(|chunk| {
                self.backing
                    .read_ciphertext(chunk.id.index, &mut memory[chunk.offset - first.offset..][..chunk.len])
            });
        }
        let wanted = &mut memory[..last.offset + last.len - first.offset];
        let got = self.backing.store.read_at(wanted, layout::chunk_offset(first.id.index))?;
        let is_cut = |chunk: &&ChunkJob| chunk.offset + chunk.len > first.offset + got;
        chunks.iter().find(is_cut).map_or(Ok(()), |cut| Err(damaged_chunk(cut.id.index)))
    }

    /// Opens chunks in place after they were read.
    pub(super) fn decrypt_portion(&self, keys: &ChunkKeys, portion: &mut Portion) -> Result<()> {
        let Portion { chunks, memory } = portion;
        let (mut at, mut rest) = (chunks.first().map_or(0, |first| first.offset), &mut **memory);
        let (mut bytes, mut sealed) = (0, Vec::with_capacity(chunks.len()));
        for job in *chunks {
            let (_, from) = std::mem::take(&mut rest).split_at_mut(job.offset - at);
            let (chunk, after) = from.split_at_mut(CHUNK);
            (at, rest) = (job.offset + CHUNK, after);
            // If the last chunk has grown since, it reads as zeros up to its new end.
            let (data, grown) = chunk.split_at_mut(job.len);
            grown.fill(0);
            bytes += data.len();
            sealed.push(Opened { id: job.id, tag: job.tag, data });
        }
        let open = || self.backing.context.router.decrypt_run(keys, &mut sealed);
        metrics::measure(Activity::Batch, bytes, open).map_err(|place| damaged_chunk(chunks[place].id.index))
    }

    /// Reads chunks to their places in `content` and opens them there, on all CPU threads.
    pub(super) fn decrypt_in_place(
        &self,
        keys: &ChunkKeys,
        chunks: &[ChunkJob],
        content: &mut [u8],
        apart: bool,
    ) -> Result<()> {
        let router = &self.backing.context.router;
        let portions = portions(chunks, content, router.threads());
        let mut parts: Vec<_> = portions.into_iter().map(|portion| (portion, Ok(()))).collect();
        router.share(&mut parts, |(portion, opened)| {
            *opened = self.read_portion(portion, apart).and_then(|()| self.decrypt_portion(keys, portion));
        })?;
        parts.into_iter().try_for_each(|(_, opened)| opened)
    }
}
