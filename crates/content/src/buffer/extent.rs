//! An extent: chunks of a stream, collected in the buffer from which they are sealed.

use crate::chunk_range::ChunkRange;
use crypto::chunk::CHUNK;
use engine::Buffer;
use format::layout;

/// Length of a new extent in groups, a power of two. An extent has whole groups, so no entries are
/// written twice, and its chunks and entries form one contiguous write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Length(u64);

impl Length {
    /// 256 KiB.
    pub(crate) const SHORTEST: Length = Length(1);
    /// 2 MiB. Tests use short extents so that they cross the borders often.
    const LONGEST: Length = Length(if cfg!(any(test, feature = "testing")) { 2 } else { 8 });

    /// The length for this many concurrent streams and this many bytes of memory for extents: the longest
    /// that gives each stream two extents, one filling and one in flight. Longer extents are faster,
    /// because there are fewer to wait for. But a stream without memory for an extent is far slower than
    /// one with a short extent.
    pub(crate) fn of(streams: usize, memory: usize) -> Self {
        let fits = |length: &Length| length.bytes().saturating_mul(4 * streams) <= memory;
        Length::LONGEST.and_shorter().find(fits).unwrap_or(Length::SHORTEST)
    }

    /// This length and all shorter ones.
    pub(crate) fn and_shorter(self) -> impl Iterator<Item = Length> {
        std::iter::successors(Some(self), |length| (length.0 > 1).then_some(Length(length.0 / 2)))
    }

    /// Bytes of each of an extent's two buffers. All extents of one length use the same size, so buffers
    /// are reused.
    fn bytes(self) -> usize {
        (self.0 * layout::GROUP) as usize * CHUNK
    }

    /// The range of the extent that contains a chunk. It consists of two ranges of half the length.
    pub(crate) fn range(self, index: u64) -> ChunkRange {
        let first = layout::group_of(index) / self.0 * self.0;
        layout::first_chunk(first)..layout::first_chunk(first + self.0)
    }
}

/// Whether an extent may begin at this chunk.
pub(crate) fn is_border(index: u64) -> bool {
    Length::SHORTEST.range(index).start == index
}

/// Whole chunks of plaintext from one range. Bytes past the end of the file are zeros.
pub(crate) struct Extent {
    range: ChunkRange,
    written: Vec<bool>,
    count: usize,
    /// Plaintext, each chunk at its position in the range.
    input: Buffer,
    /// Same length, for the ciphertext.
    output: Buffer,
}

impl Extent {
    /// Bytes of each of the two buffers that a range needs. The size depends only on the range's length
    /// in groups, although the first range of a file has fewer chunks.
    pub(crate) fn bytes_for(range: &ChunkRange) -> usize {
        let groups = layout::group_of(range.end - 1) + 1 - layout::group_of(range.start);
        (groups * layout::GROUP) as usize * CHUNK
    }

    /// An extent without chunks. Each of the two buffers has `bytes_for` the range.
    pub(crate) fn new(range: ChunkRange, (input, output): (Buffer, Buffer)) -> Self {
        let written = vec![false; (range.end - range.start) as usize];
        Extent { range, written, count: 0, input, output }
    }

    /// The first chunk of the range.
    pub(crate) fn first(&self) -> u64 {
        self.range.start
    }

    /// The chunk after the last one of the range.
    pub(crate) fn end(&self) -> u64 {
        self.range.end
    }

    /// Number of chunks written.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether every chunk of the range was written.
    pub(crate) fn is_full(&self) -> bool {
        self.count == self.written.len()
    }

    /// Like `is_full`, but chunks below `flushed` may be missing if it is in the range: the stream was
    /// flushed there and continues.
    pub(crate) fn is_full_behind(&self, flushed: u64) -> bool {
        let lacks =
            self.range.clone().zip(&self.written).filter(|(_, written)| !**written).map(|(index, _)| index);
        self.is_full() || self.covers(flushed) && lacks.max().is_none_or(|last| last < flushed)
    }

    /// The range of chunks that the extent covers.
    pub(crate) fn range(&self) -> ChunkRange {
        self.range.clone()
    }

    /// Size of each of its buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.input.len()
    }

    /// Whether the chunk is in the range, written or not.
    pub(crate) fn covers(&self, index: u64) -> bool {
        self.range.contains(&index)
    }

    /// The written chunks, ascending.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = u64> {
        self.range.clone().zip(&self.written).filter(|(_, written)| **written).map(|(index, _)| index)
    }

    /// Position of a chunk of the range in the buffers, in chunks.
    pub(crate) fn place(&self, index: u64) -> usize {
        (index - self.range.start) as usize
    }

    /// Position of a chunk in the buffers, if it was written.
    fn written_at(&self, index: u64) -> Option<usize> {
        self.covers(index).then(|| self.place(index)).filter(|place| self.written[*place])
    }

    /// Plaintext of a chunk, if it was written.
    pub(crate) fn get(&self, index: u64) -> Option<&[u8; CHUNK]> {
        self.written_at(index).map(|place| &self.input.as_chunks().0[place])
    }

    /// As `get`, mutable.
    pub(crate) fn get_mut(&mut self, index: u64) -> Option<&mut [u8; CHUNK]> {
        self.written_at(index).map(|place| &mut self.input.as_chunks_mut().0[place])
    }

    /// Marks a chunk of the range as written and returns its buffer, whose content is unspecified.
    pub(crate) fn put(&mut self, index: u64) -> &mut [u8; CHUNK] {
        let place = self.place(index);
        self.count += usize::from(!std::mem::replace(&mut self.written[place], true));
        &mut self.input.as_chunks_mut().0[place]
    }

    /// Like `put` for up to `most` chunks from `index`, limited to the range. Also returns how many of
    /// them were not written before.
    pub(crate) fn put_chunks(&mut self, index: u64, most: usize) -> (usize, &mut [u8]) {
        let first = self.place(index);
        let places = first..self.written.len().min(first.saturating_add(most));
        let written = &mut self.written[places.clone()];
        let new = written.iter().filter(|written| !**written).count();
        written.fill(true);
        self.count += new;
        (new, self.input.as_chunks_mut::<CHUNK>().0[places].as_flattened_mut())
    }

    /// Forgets a chunk. Returns whether it was written.
    pub(crate) fn remove(&mut self, index: u64) -> bool {
        let Some(place) = self.written_at(index) else { return false };
        self.written[place] = false;
        self.count -= 1;
        true
    }

    /// The input and output buffers, for sealing.
    pub(crate) fn into_buffers(self) -> (Buffer, Buffer) {
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
