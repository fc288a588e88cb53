//! Reading: from the buffer, or from the store through the engine.

use super::{
    File,
    state::{Fault, Identity, State, wrong_length},
};
use crate::{
    crypto::chunk::{CHUNK, ChunkId},
    engine::{Batch, ChunkJob, Op},
    format::{entry::Slot, layout},
    vault::{Damage, Error, Result},
};
use parking_lot::{RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use std::ops::Range;

/// Chunks from which on a read goes through a batch.
const BATCH: usize = 8;

impl File {
    /// Reads up to `out.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// `Damaged` if a chunk of the range, or what leads to it, does not authenticate; then nothing of the
    /// range is returned. Else the store's errors.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let st = self.state.upgradable_read();
        let len = out.len().min(usize::try_from(st.size.saturating_sub(offset)).unwrap_or(usize::MAX));
        if let Some(Fault::WrongLength(from)) = st.fault
            && offset + out.len() as u64 > from
        {
            return Err(wrong_length());
        }
        if len == 0 {
            return Ok(0);
        }
        let range = offset / layout::CHUNK..(offset + len as u64).div_ceil(layout::CHUNK);
        let st = self.with_groups(st, range)?;
        self.read_loaded(&st, offset, &mut out[..len])?;
        Ok(len)
    }

    /// Loads the groups of these chunks.
    fn with_groups<'a>(
        &self,
        st: RwLockUpgradableReadGuard<'a, State>,
        chunks: Range<u64>,
    ) -> Result<RwLockReadGuard<'a, State>> {
        let end = chunks.end.min(layout::chunks(st.tree.size()));
        if chunks.start >= end {
            return Ok(RwLockUpgradableReadGuard::downgrade(st));
        }
        let groups = layout::group_of(chunks.start)..=layout::group_of(end - 1);
        if groups.clone().all(|g| st.tree.is_loaded(g)) {
            return Ok(RwLockUpgradableReadGuard::downgrade(st));
        }
        let mut st = RwLockUpgradableReadGuard::upgrade(st);
        if let Some(identity) = st.identity.clone() {
            st.tree.trim_cache();
            for group in groups {
                st.tree.load(self.source(&identity), group)?;
            }
        }
        Ok(RwLockWriteGuard::downgrade(st))
    }

    fn read_loaded(&self, st: &State, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut stored = Vec::new();
        for piece in pieces(offset, out.len()) {
            let target = &mut out[piece.out.clone()];
            if let Some(plain) = st.buffer.get(piece.index) {
                target.copy_from_slice(&plain[piece.start..][..target.len()]);
            } else if let Some(slot) = self.stored_slot(st, piece.index)? {
                stored.push((piece, slot));
            } else {
                target.fill(0);
            }
        }
        let Some(identity) = &st.identity else { return Ok(()) };
        if stored.len() >= BATCH {
            return self.read_batch(st, identity, &stored, out);
        }
        stored.iter().try_for_each(|(piece, slot)| {
            self.read_piece(st, identity, piece, slot, &mut out[piece.out.clone()])
        })
    }

    /// The slot of a chunk whose content is in the store; `None` for zeros.
    fn stored_slot(&self, st: &State, index: u64) -> Result<Option<Slot>> {
        if st.buffer.is_punched(index) || index >= layout::chunks(st.tree.size()) {
            return Ok(None);
        }
        let Some(slot) = st.tree.slot(index)? else { return Ok(None) };
        if !slot.is_hole() {
            return Ok(Some(slot));
        }
        let id = ChunkId { index, epoch: slot.epoch, nonce: slot.nonce };
        match &st.identity {
            Some(identity) if identity.keys.chunk.hole_tag(&id) == slot.tag => Ok(None),
            _ => Err(damaged_chunk(index)),
        }
    }

    fn read_piece(
        &self,
        st: &State,
        identity: &Identity,
        piece: &Piece,
        slot: &Slot,
        out: &mut [u8],
    ) -> Result<()> {
        let len = layout::chunk_len(st.tree.size(), piece.index);
        let id = ChunkId { index: piece.index, epoch: slot.epoch, nonce: slot.nonce };
        let open = |bytes: &mut [u8]| {
            self.read_ciphertext(piece.index, bytes)?;
            let router = &self.context.router;
            router.open_one(&identity.keys.chunk, &id, &slot.tag, bytes).map_err(|_| {
                bytes.fill(0);
                damaged_chunk(piece.index)
            })
        };
        if piece.start == 0 && out.len() == len {
            return open(out);
        }
        let mut plain = super::buffer::Plain::zeros();
        open(&mut plain[..len])?;
        out.copy_from_slice(&plain[piece.start..][..out.len()]); // past `len` stand the zeros of a grown tail
        Ok(())
    }

    /// Reads the stored bytes of a chunk, `out.len()` of them.
    pub(super) fn read_ciphertext(&self, index: u64, out: &mut [u8]) -> Result<()> {
        if self.store.read_at(out, layout::chunk_offset(index))? < out.len() {
            return Err(damaged_chunk(index));
        }
        Ok(())
    }

    /// One read of the store over everything wanted, one batch.
    fn read_batch(
        &self,
        st: &State,
        identity: &Identity,
        stored: &[(Piece, Slot)],
        out: &mut [u8],
    ) -> Result<()> {
        let start = layout::chunk_offset(stored[0].0.index);
        let last = stored[stored.len() - 1].0.index;
        let end = layout::chunk_offset(last) + layout::chunk_len(st.tree.size(), last) as u64;
        let span = (end - start) as usize;
        let (input, output) = self.context.router.buffers.get_pair(span);
        let mut batch = Batch {
            op: Op::Open,
            keys: vec![identity.keys.chunk.clone()],
            jobs: Vec::with_capacity(stored.len()),
            input,
            output,
        };
        let got = self.store.read_at(&mut batch.input[..span], start)?;
        for (piece, slot) in stored {
            let offset = (layout::chunk_offset(piece.index) - start) as usize;
            let len = layout::chunk_len(st.tree.size(), piece.index);
            if offset + len > got {
                return Err(damaged_chunk(piece.index));
            }
            let id = ChunkId { index: piece.index, epoch: slot.epoch, nonce: slot.nonce };
            batch.jobs.push(ChunkJob { key: 0, id, len, offset, tag: slot.tag, ok: false });
        }
        self.context.router.run(&mut batch)?;
        if let Some(job) = batch.jobs.iter().find(|job| !job.ok) {
            return Err(damaged_chunk(job.id.index));
        }
        for ((piece, _), job) in stored.iter().zip(&batch.jobs) {
            let target = &mut out[piece.out.clone()];
            let have = job.len.saturating_sub(piece.start).min(target.len());
            target[..have].copy_from_slice(&batch.output[job.offset + piece.start..][..have]);
            target[have..].fill(0);
        }
        Ok(())
    }

    /// The content of a chunk as an application sees it, zeros past the end of the file.
    pub(super) fn read_chunk(&self, st: &mut State, index: u64) -> Result<super::buffer::Plain> {
        let mut plain = super::buffer::Plain::zeros();
        if index < layout::chunks(st.tree.size())
            && let Some(identity) = st.identity.clone()
        {
            st.tree.load(self.source(&identity), layout::group_of(index))?;
        }
        self.read_loaded(st, index * layout::CHUNK, &mut plain[..])?;
        Ok(plain)
    }
}

/// The part of one chunk that a range covers.
pub(super) struct Piece {
    pub(super) index: u64,
    /// Where in the chunk it starts.
    pub(super) start: usize,
    /// Where in the caller's buffer it is.
    pub(super) out: Range<usize>,
}

/// The pieces of `len` bytes from `offset` on.
pub(super) fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % layout::CHUNK) as usize;
        let next = len.min(done + CHUNK - start);
        let piece = Piece { index: at / layout::CHUNK, start, out: done..next };
        done = next;
        Some(piece)
    })
}

pub(super) fn damaged_chunk(index: u64) -> Error {
    Damage { what: format!("chunk {index}"), reason: "does not authenticate" }.into()
}
