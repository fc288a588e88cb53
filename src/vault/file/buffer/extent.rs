//! An extent: chunks of a stream, gathered in the buffer that they will be sealed from.

use crate::{crypto::chunk::CHUNK, engine::Buffer, format::layout, vault::file::chunk_range::ChunkRange};

/// The length of the extents that begin now, in groups, a power of two. Whole groups: so no entries are written twice,
/// and chunks and entries make one contiguous write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::vault::file) struct Length(u64);

impl Length {
    /// 256 KiB.
    pub(in crate::vault::file) const SHORTEST: Length = Length(1);
    /// 2 MiB. Tests have short ones, to cross their borders often.
    const LONGEST: Length = Length(if cfg!(test) { 2 } else { 8 });

    /// The length where so many files are streamed at once and their extents may take so many bytes: the longest of
    /// which each stream can have two, one that fills and one in flight. Longer ones are faster, because there are
    /// fewer of them to wait for; but a stream that gets no memory for an extent is far slower than one with a short one.
    pub(in crate::vault::file) fn of(streams: usize, memory: usize) -> Self {
        let fits = |length: &Length| length.bytes().saturating_mul(4 * streams) <= memory;
        Length::LONGEST.and_shorter().find(fits).unwrap_or(Length::SHORTEST)
    }

    /// This one and all that are shorter.
    pub(in crate::vault::file) fn and_shorter(self) -> impl Iterator<Item = Length> {
        std::iter::successors(Some(self), |length| (length.0 > 1).then_some(Length(length.0 / 2)))
    }

    /// Bytes of each of the two buffers of an extent: the same for all of a length, so that they are used again.
    fn bytes(self) -> usize {
        (self.0 * layout::GROUP) as usize * CHUNK
    }

    /// The range of the extent that a chunk is in. It is made of two of half the length.
    pub(in crate::vault::file) fn range(self, index: u64) -> ChunkRange {
        let first = layout::group_of(index) / self.0 * self.0;
        layout::first_chunk(first)..layout::first_chunk(first + self.0)
    }
}

/// Whether an extent may begin at this chunk.
pub(in crate::vault::file) fn is_border(index: u64) -> bool {
    Length::SHORTEST.range(index).start == index
}

/// Whole chunks of plaintext of one range, those that were written; zeros past the end of the file.
pub(in crate::vault::file) struct Extent {
    range: ChunkRange,
    written: Vec<bool>,
    count: usize,
    /// Plaintext, each chunk at its place in the range.
    input: Buffer,
    /// As long, for the ciphertext.
    output: Buffer,
}

impl Extent {
    /// Bytes of each of the two buffers that a range needs: as many as any range of that length, the first one of a
    /// file too, which has fewer chunks.
    pub(in crate::vault::file) fn bytes_for(range: &ChunkRange) -> usize {
        let groups = layout::group_of(range.end - 1) + 1 - layout::group_of(range.start);
        (groups * layout::GROUP) as usize * CHUNK
    }

    /// Nothing of a range, over two buffers of `bytes_for` it.
    pub(in crate::vault::file) fn new(range: ChunkRange, (input, output): (Buffer, Buffer)) -> Self {
        let written = vec![false; (range.end - range.start) as usize];
        Extent { range, written, count: 0, input, output }
    }

    /// The first chunk of the range.
    pub(in crate::vault::file) fn first(&self) -> u64 {
        self.range.start
    }

    /// Behind the last chunk of the range.
    pub(in crate::vault::file) fn end(&self) -> u64 {
        self.range.end
    }

    /// Chunks written.
    pub(in crate::vault::file) fn count(&self) -> usize {
        self.count
    }

    /// Whether every chunk of the range was.
    pub(in crate::vault::file) fn is_full(&self) -> bool {
        self.count == self.written.len()
    }

    /// The same, but for chunks below `flushed` where that lies in the range: a stream was flushed there and goes on.
    pub(in crate::vault::file) fn is_full_behind(&self, flushed: u64) -> bool {
        let lacks =
            self.range.clone().zip(&self.written).filter(|(_, written)| !**written).map(|(index, _)| index);
        self.is_full() || self.covers(flushed) && lacks.max().is_none_or(|last| last < flushed)
    }

    /// The chunks that it is for.
    pub(in crate::vault::file) fn range(&self) -> ChunkRange {
        self.range.clone()
    }

    /// Bytes of the range at most.
    pub(in crate::vault::file) fn bytes(&self) -> usize {
        self.input.len()
    }

    /// Whether the chunk is in the range, written or not.
    pub(in crate::vault::file) fn covers(&self, index: u64) -> bool {
        self.range.contains(&index)
    }

    /// The chunks that were written, ascending.
    pub(in crate::vault::file) fn chunks(&self) -> impl Iterator<Item = u64> {
        self.range.clone().zip(&self.written).filter(|(_, written)| **written).map(|(index, _)| index)
    }

    /// Where a chunk of the range is in the buffers, in chunks.
    pub(in crate::vault::file) fn place(&self, index: u64) -> usize {
        (index - self.range.start) as usize
    }

    /// Where a chunk is in the buffers, if it was written.
    fn written_at(&self, index: u64) -> Option<usize> {
        self.covers(index).then(|| self.place(index)).filter(|place| self.written[*place])
    }

    /// A chunk, if it was written.
    pub(in crate::vault::file) fn get(&self, index: u64) -> Option<&[u8; CHUNK]> {
        self.written_at(index).map(|place| &self.input.as_chunks().0[place])
    }

    /// As `get`.
    pub(in crate::vault::file) fn get_mut(&mut self, index: u64) -> Option<&mut [u8; CHUNK]> {
        self.written_at(index).map(|place| &mut self.input.as_chunks_mut().0[place])
    }

    /// The place of a chunk of the range, which counts as written from here on; its content is unspecified.
    pub(in crate::vault::file) fn put(&mut self, index: u64) -> &mut [u8; CHUNK] {
        let place = self.place(index);
        self.count += usize::from(!std::mem::replace(&mut self.written[place], true));
        &mut self.input.as_chunks_mut().0[place]
    }

    /// The same for up to `most` chunks from one of the range on, as far as the range goes; and how many of them
    /// had not been written.
    pub(in crate::vault::file) fn put_chunks(&mut self, index: u64, most: usize) -> (usize, &mut [u8]) {
        let first = self.place(index);
        let places = first..self.written.len().min(first.saturating_add(most));
        let written = &mut self.written[places.clone()];
        let new = written.iter().filter(|written| !**written).count();
        written.fill(true);
        self.count += new;
        (new, self.input.as_chunks_mut::<CHUNK>().0[places].as_flattened_mut())
    }

    /// Forgets a chunk; whether there was one.
    pub(in crate::vault::file) fn remove(&mut self, index: u64) -> bool {
        let Some(place) = self.written_at(index) else { return false };
        self.written[place] = false;
        self.count -= 1;
        true
    }

    /// Input and output, to be sealed.
    pub(in crate::vault::file) fn into_buffers(self) -> (Buffer, Buffer) {
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
    fn ranges_cover_all_chunks_and_halves_make_a_whole() {
        for length in Length(16).and_shorter() {
            let mut end = 0;
            for _ in 0..20 {
                let range = length.range(end);
                assert_eq!(range.start, end);
                assert!(range.clone().all(|index| length.range(index) == range));
                assert_eq!(Extent::bytes_for(&range), length.bytes());
                let halves = length.and_shorter().nth(1).unwrap_or(length);
                assert_eq!(halves.range(end).start, end);
                assert_eq!(halves.range(range.end - 1).end, range.end);
                end = range.end;
            }
        }
    }
}
