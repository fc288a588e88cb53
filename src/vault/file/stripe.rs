//! A window of chunks that gathers in the buffer that it will be sealed from.

use crate::{crypto::chunk::CHUNK, engine::Buffer, format::layout};
use std::ops::Range;

/// The length of the windows that begin now, in groups, a power of two. Whole groups: so no entries are written twice,
/// and chunks and entries make one contiguous write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Length(u64);

impl Length {
    /// 256 KiB.
    pub(super) const SHORTEST: Length = Length(1);
    /// 2 MiB. Tests have short ones, to cross their borders often.
    const LONGEST: Length = Length(if cfg!(test) { 2 } else { 8 });

    /// The length where so many files are streamed at once and their stripes may take so many bytes: the longest of
    /// which each stream can have two, one that fills and one on its way. Longer ones are faster, because there are
    /// fewer of them to wait for; but a stream that gets no memory for a stripe is far slower than one with a short one.
    pub(super) fn of(streams: usize, memory: usize) -> Self {
        let fits = |length: &Length| length.bytes().saturating_mul(4 * streams) <= memory;
        Length::LONGEST.and_shorter().find(fits).unwrap_or(Length::SHORTEST)
    }

    /// This one and all that are shorter.
    pub(super) fn and_shorter(self) -> impl Iterator<Item = Length> {
        std::iter::successors(Some(self), |length| (length.0 > 1).then_some(Length(length.0 / 2)))
    }

    /// Bytes of each of the two buffers of a stripe: the same for all of a length, so that they are used again.
    fn bytes(self) -> usize {
        (self.0 * layout::GROUP) as usize * CHUNK
    }

    /// The window that a chunk is in. It is made of two of half the length.
    pub(super) fn window(self, index: u64) -> Range<u64> {
        let first = layout::group_of(index) / self.0 * self.0;
        layout::first_chunk(first)..layout::first_chunk(first + self.0)
    }
}

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
    /// Bytes of each of the two buffers that a window needs: as many as any window of that length, the first one of a
    /// file too, which has fewer chunks.
    pub(super) fn bytes_for(window: &Range<u64>) -> usize {
        let groups = layout::group_of(window.end - 1) + 1 - layout::group_of(window.start);
        (groups * layout::GROUP) as usize * CHUNK
    }

    /// Nothing of a window, over two buffers of `bytes_for` it.
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

    /// The same, but for chunks below `flushed` where that lies in the window: a stream was flushed there and goes on.
    pub(super) fn is_full_behind(&self, flushed: u64) -> bool {
        let lacks =
            self.window.clone().zip(&self.written).filter(|(_, written)| !**written).map(|(index, _)| index);
        self.is_full() || self.covers(flushed) && lacks.max().is_none_or(|last| last < flushed)
    }

    /// Its window.
    pub(super) fn window(&self) -> Range<u64> {
        self.window.clone()
    }

    /// Bytes of the window at most.
    pub(super) fn bytes(&self) -> usize {
        self.input.len()
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

    /// The same for up to `most` chunks from one of the window on, as far as the window goes; and how many of them
    /// had not been written.
    pub(super) fn put_run(&mut self, index: u64, most: usize) -> (usize, &mut [u8]) {
        let first = self.place(index);
        let run = first..self.written.len().min(first.saturating_add(most));
        let written = &mut self.written[run.clone()];
        let new = written.iter().filter(|written| !**written).count();
        written.fill(true);
        self.count += new;
        (new, self.input.as_chunks_mut::<CHUNK>().0[run].as_flattened_mut())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_streams_the_shorter() {
        let memory = 40 * Length::LONGEST.bytes();
        let lengths: Vec<Length> = (0..100).map(|streams| Length::of(streams, memory)).collect();
        assert!(lengths.is_sorted_by(|few, more| few >= more));
        assert_eq!(
            (lengths[0], lengths[10], lengths[11]),
            (Length::LONGEST, Length::LONGEST, Length::SHORTEST)
        );
        for (streams, length) in lengths.iter().enumerate().take(20) {
            assert!(2 * streams * 2 * length.bytes() <= memory, "{streams}");
        }
        assert_eq!(Length::of(usize::MAX / 8, memory), Length::SHORTEST);
    }

    #[test]
    fn windows_cover_all_chunks_and_halves_make_a_whole() {
        for length in Length(16).and_shorter() {
            let mut end = 0;
            for _ in 0..20 {
                let window = length.window(end);
                assert_eq!(window.start, end);
                assert!(window.clone().all(|index| length.window(index) == window));
                assert_eq!(Stripe::bytes_for(&window), length.bytes());
                let halves = length.and_shorter().nth(1).unwrap_or(length);
                assert_eq!(halves.window(end).start, end);
                assert_eq!(halves.window(window.end - 1).end, window.end);
                end = window.end;
            }
        }
    }
}
