//! A window of chunks that gathers in the buffer that it will be sealed from.

use crate::{crypto::chunk::CHUNK, engine::Buffer, format::layout};
use std::ops::Range;

/// Groups of a window: whole ones, so that no entries are written twice and chunks and entries make one
/// contiguous write. Tests have short ones, to cross their borders often.
const GROUPS: u64 = if cfg!(test) { 1 } else { 8 };

/// Whole chunks of plaintext of one window, those that were written; zeros past the end of the file.
pub(super) struct Stripe {
    window: Range<u64>,
    written: Vec<bool>,
    count: usize,
    /// Plaintext, each chunk at its place in the window.
    input: Buffer,
    /// As long, for the ciphertext.
    output: Buffer,
}

impl Stripe {
    /// The window that a chunk is in.
    pub(super) fn window(index: u64) -> Range<u64> {
        let first = layout::group_of(index) / GROUPS * GROUPS;
        layout::first_chunk(first)..layout::first_chunk(first + GROUPS)
    }

    /// Bytes of each of the two buffers of a stripe: the same for all, so that they are used again.
    pub(super) const BYTES: usize = (GROUPS * layout::GROUP) as usize * CHUNK;

    /// Nothing of a window, over two buffers of `BYTES`.
    pub(super) fn new(window: Range<u64>, (input, output): (Buffer, Buffer)) -> Self {
        let written = vec![false; (window.end - window.start) as usize];
        Stripe { window, written, count: 0, input, output }
    }

    /// The first chunk of the window.
    pub(super) fn first(&self) -> u64 {
        self.window.start
    }

    /// Behind the last chunk of the window.
    pub(super) fn end(&self) -> u64 {
        self.window.end
    }

    /// Chunks written.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether every chunk of the window was.
    pub(super) fn is_full(&self) -> bool {
        self.count == self.written.len()
    }

    /// Whether the chunk is in the window, written or not.
    pub(super) fn covers(&self, index: u64) -> bool {
        self.window.contains(&index)
    }

    /// The chunks that were written, ascending.
    pub(super) fn chunks(&self) -> impl Iterator<Item = u64> {
        self.window.clone().zip(&self.written).filter(|(_, written)| **written).map(|(index, _)| index)
    }

    /// Where a chunk of the window is in the buffers, in chunks.
    pub(super) fn place(&self, index: u64) -> usize {
        (index - self.window.start) as usize
    }

    /// Where a chunk is in the buffers, if it was written.
    fn written_at(&self, index: u64) -> Option<usize> {
        self.covers(index).then(|| self.place(index)).filter(|place| self.written[*place])
    }

    /// A chunk, if it was written.
    pub(super) fn get(&self, index: u64) -> Option<&[u8; CHUNK]> {
        self.written_at(index).map(|place| &self.input.as_chunks().0[place])
    }

    /// As `get`.
    pub(super) fn get_mut(&mut self, index: u64) -> Option<&mut [u8; CHUNK]> {
        self.written_at(index).map(|place| &mut self.input.as_chunks_mut().0[place])
    }

    /// The place of a chunk of the window, which counts as written from here on; the content is left over.
    pub(super) fn put(&mut self, index: u64) -> &mut [u8; CHUNK] {
        let place = self.place(index);
        self.count += usize::from(!std::mem::replace(&mut self.written[place], true));
        &mut self.input.as_chunks_mut().0[place]
    }

    /// Forgets a chunk; whether there was one.
    pub(super) fn remove(&mut self, index: u64) -> bool {
        let Some(place) = self.written_at(index) else { return false };
        self.written[place] = false;
        self.count -= 1;
        true
    }

    /// Input and output, to be sealed.
    pub(super) fn into_buffers(self) -> (Buffer, Buffer) {
        (self.input, self.output)
    }
}
