//! A few chunks at once, on the caller's thread: read straight to where they are wanted, verified side by side,
//! opened in place.

use super::{File, buffer::Plain, read::damaged_chunk};
use crate::{
    crypto::{
        chunk::{ChunkId, ChunkKeys},
        tags::Opened,
    },
    format::{entry::Slot, layout},
    metrics::{self, Activity},
    vault::Result,
};
use std::{io::IoSliceMut, ops::Range};

/// A chunk that the store has, and the part of it that is wanted.
pub(super) struct Wanted<'a> {
    pub(super) index: u64,
    pub(super) slot: Slot,
    /// Where in the chunk the part begins.
    pub(super) start: usize,
    /// Where it goes.
    pub(super) out: &'a mut [u8],
}

impl Wanted<'_> {
    fn part(&self) -> Range<usize> {
        self.start..self.start + self.out.len()
    }
}

impl File {
    /// Opens these chunks, ascending, of a stored version of `size` bytes.
    ///
    /// # Errors
    /// `Damaged` if one of them does not authenticate: then none is given. Else the store's.
    pub(super) fn open_few(&self, size: u64, keys: &ChunkKeys, wanted: &mut [Wanted]) -> Result<()> {
        // Those of which a part is wanted are opened aside; past their end stand the zeros of a grown tail.
        let len = |one: &Wanted| layout::chunk_len(size, one.index);
        let mut aside: Vec<Option<Plain>> =
            wanted.iter().map(|one| (one.part() != (0..len(one))).then(Plain::zeros)).collect();
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
        for run in chunks.chunk_by_mut(|a, b| are_adjacent(a.id.index, b.id.index)) {
            self.read_run(run)?;
        }
        let bytes = chunks.iter().map(|chunk| chunk.data.len()).sum();
        let router = &self.context.router;
        let opened = metrics::measure(Activity::Single, bytes, || router.open_few(keys, &mut chunks));
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

    /// Reads the ciphertext of chunks that lie side by side in the store.
    fn read_run(&self, run: &mut [Opened]) -> Result<()> {
        let offset = layout::chunk_offset(run[0].id.index);
        let mut pieces: Vec<IoSliceMut> = run.iter_mut().map(|chunk| IoSliceMut::new(chunk.data)).collect();
        let mut got = match &mut pieces[..] {
            [alone] => self.store.read_at(alone, offset)?,
            several => self.store.read_vectored_at(several, offset)?,
        };
        for chunk in run {
            got = got.checked_sub(chunk.data.len()).ok_or_else(|| damaged_chunk(chunk.id.index))?;
        }
        Ok(())
    }
}

/// Whether the second chunk is stored right behind the first.
fn are_adjacent(first: u64, second: u64) -> bool {
    layout::chunk_offset(second) == layout::chunk_offset(first) + layout::CHUNK
}
