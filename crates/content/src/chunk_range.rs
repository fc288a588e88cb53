//! Ranges of chunks, and the parts of chunks that a byte range covers.

use crypto::chunk::CHUNK;
use format::layout;
use std::ops::Range;

/// A range of chunk indices.
pub(super) type ChunkRange = Range<u64>;

/// The chunks that a byte range touches.
pub(super) fn chunks_of(bytes: &Range<u64>) -> ChunkRange {
    bytes.start / layout::CHUNK..layout::chunks(bytes.end)
}

/// The part of one chunk that a byte range covers.
pub(super) struct ChunkPart {
    pub(super) index: u64,
    /// Start of the part within the chunk.
    pub(super) start: usize,
    /// Position of the part in the caller's buffer.
    pub(super) out: Range<usize>,
}

/// The parts of the `len` bytes at `offset`, ascending.
pub(super) fn parts(offset: u64, len: usize) -> impl Iterator<Item = ChunkPart> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % layout::CHUNK) as usize;
        let next = len.min(done + CHUNK - start);
        let part = ChunkPart { index: at / layout::CHUNK, start, out: done..next };
        done = next;
        Some(part)
    })
}

const _: () = assert!(CHUNK as u64 == layout::CHUNK);
