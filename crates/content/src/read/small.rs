//! Reads of a few chunks on the caller's thread: read directly to their destination, verified together,
//! and opened in place.

use super::locate::stored_slot;
use crate::{
    backing::Backing,
    buffer::PlainBuffer,
    chunk_range::{ChunkPart, parts},
    damage::damaged_chunk,
    error::Result,
    state::State,
};
use crypto::{
    chunk::{ChunkId, ChunkKeys},
    tags::Opened,
};
use format::{entry::Slot, layout};
use metrics::Activity;
use std::{io::IoSliceMut, ops::Range};

/// A chunk in the store, and the part of it that is wanted.
pub(super) struct WantedChunk<'a> {
    pub(super) index: u64,
    pub(super) slot: Slot,
    /// Start of the part within the chunk.
    pub(super) start: usize,
    /// Destination of the part.
    pub(super) out: &'a mut [u8],
}

impl WantedChunk<'_> {
    fn part(&self) -> Range<usize> {
        self.start..self.start + self.out.len()
    }
}

/// Opens chunks of a stored file whose slots are loaded.
#[derive(Clone, Copy)]
pub(crate) struct ChunkReader<'a> {
    pub(super) backing: &'a Backing,
}

impl<'a> ChunkReader<'a> {
    pub(crate) fn of(backing: &'a Backing) -> Self {
        ChunkReader { backing }
    }

    /// Reads bytes of chunks whose slots are loaded.
    ///
    /// # Errors
    /// As `File::read`.
    pub(crate) fn read_loaded(&self, st: &State, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut wanted = Vec::new();
        read_unstored(st, offset, out, &mut wanted)?;
        self.decrypt_wanted(st, &mut wanted)
    }

    /// Opens chunks of the flushed version.
    pub(super) fn decrypt_wanted(&self, st: &State, wanted: &mut [WantedChunk]) -> Result<()> {
        match &st.stored.identity {
            Some(identity) if !wanted.is_empty() => {
                self.decrypt_chunks(st.stored.tree.size(), &identity.keys.chunk, wanted)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Opens these chunks, ascending, of a stored version of `size` bytes.
    ///
    /// # Errors
    /// `Damaged` if one of them does not authenticate; no plaintext is returned then. Otherwise the
    /// store's.
    fn decrypt_chunks(&self, size: u64, keys: &ChunkKeys, wanted: &mut [WantedChunk]) -> Result<()> {
        // Chunks that are wanted only in part are opened in separate buffers. Bytes past a chunk's end
        // are zeros, in case the last chunk has grown.
        let len = |one: &WantedChunk| layout::chunk_len(size, one.index);
        let mut aside: Vec<Option<PlainBuffer>> =
            wanted.iter().map(|one| (one.part() != (0..len(one))).then(PlainBuffer::zeros)).collect();
        let mut chunks: Vec<Opened> = wanted
            .iter_mut()
            .zip(&mut aside)
            .map(|(one, aside)| Opened {
                id: ChunkId { index: one.index, epoch: one.slot.epoch, nonce: one.slot.nonce },
                tag: one.slot.tag,
                data: match aside {
                    Some(plain) => &mut plain[..layout::chunk_len(size, one.index)],
                    None => one.out,
                },
            })
            .collect();
        for adjacent in chunks.chunk_by_mut(|a, b| are_adjacent(a.id.index, b.id.index)) {
            self.read_adjacent(adjacent)?;
        }
        let bytes = chunks.iter().map(|chunk| chunk.data.len()).sum();
        let router = &self.backing.context.router;
        let opened = metrics::measure(Activity::Single, bytes, || router.decrypt_few(keys, &mut chunks));
        if let Err(place) = opened {
            let index = chunks[place].id.index;
            chunks.iter_mut().for_each(|chunk| chunk.data.fill(0));
            return Err(damaged_chunk(index));
        }
        for (one, aside) in wanted.iter_mut().zip(&aside) {
            if let Some(plain) = aside {
                one.out.copy_from_slice(&plain[one.part()]);
            }
        }
        Ok(())
    }

    /// Reads the ciphertext of chunks that are adjacent in the store.
    fn read_adjacent(&self, adjacent: &mut [Opened]) -> Result<()> {
        let offset = layout::chunk_offset(adjacent[0].id.index);
        let mut pieces: Vec<IoSliceMut> =
            adjacent.iter_mut().map(|chunk| IoSliceMut::new(chunk.data)).collect();
        let mut got = match &mut pieces[..] {
            [one] => self.backing.store.read_at(one, offset)?,
            several => self.backing.store.read_vectored_at(several, offset)?,
        };
        for chunk in adjacent {
            got = got.checked_sub(chunk.data.len()).ok_or_else(|| damaged_chunk(chunk.id.index))?;
        }
        Ok(())
    }
}

/// Reads the bytes that are not in the store, and adds the stored chunks to `wanted`.
pub(super) fn read_unstored<'a>(
    st: &State,
    offset: u64,
    out: &'a mut [u8],
    wanted: &mut Vec<WantedChunk<'a>>,
) -> Result<()> {
    let mut rest = out;
    for ChunkPart { index, start, out } in parts(offset, rest.len()) {
        let (out, after) = std::mem::take(&mut rest).split_at_mut(out.len());
        rest = after;
        if let Some(plain) = st.dirty.buffer.get(index) {
            out.copy_from_slice(&plain[start..][..out.len()]);
        } else if let Some(slot) = stored_slot(st, index)? {
            wanted.push(WantedChunk { index, slot, start, out });
        } else {
            out.fill(0);
        }
    }
    Ok(())
}

/// Whether the second chunk directly follows the first in the store.
fn are_adjacent(first: u64, second: u64) -> bool {
    layout::chunk_offset(second) == layout::chunk_offset(first) + layout::CHUNK
}
