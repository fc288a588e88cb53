//! The positions of a file at which operations act, and the segments between them.
//!
//! A segment is written, or zeroed, as a whole: operations never start or end in the middle of one. No
//! segment crosses a chunk border, except wide ones, which are never written.

use format::layout;
use std::ops::Range;

const C: u64 = layout::CHUNK;

/// A set of positions in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The first chunks.
    Small,
    /// As `Small`, but with positions that are not multiples of a sector.
    Odd,
    /// The end of the entries in the header page.
    Inline,
    /// The end of the first page of entries.
    Page,
    /// Every chunk from the first to past the end of the first page of entries.
    Stream,
    /// Every chunk of several extents, and parts of some chunks.
    Streams,
    /// The first chunk of each of many pages of entries.
    Groups,
}

/// Pages of entries in `Place::Groups`: more than a file may always keep in memory.
const GROUPS: u64 = 12;

pub(super) const PLACES: [(&str, Place); 7] = [
    ("small", Place::Small),
    ("odd", Place::Odd),
    ("inline", Place::Inline),
    ("page", Place::Page),
    ("stream", Place::Stream),
    ("streams", Place::Streams),
    ("groups", Place::Groups),
];

impl Place {
    /// The positions, ascending from 0.
    pub(super) fn marks(self) -> Vec<u64> {
        match self {
            Place::Small => {
                vec![0, 512, 2048, C, C + 1024, 2 * C, 2 * C + 512, 3 * C, 3 * C + 2048, 4 * C]
            }
            Place::Odd => vec![0, 100, 3000, C, C + 9, C + 700, 2 * C, 3 * C - 9, 3 * C, 3 * C + 77, 4 * C],
            Place::Inline => {
                vec![0, 512, C, 46 * C, 47 * C, 47 * C + 1000, 48 * C, 48 * C + 512, 49 * C, 50 * C]
            }
            Place::Page => {
                vec![
                    0,
                    C,
                    48 * C,
                    49 * C,
                    110 * C,
                    111 * C,
                    111 * C + 900,
                    112 * C,
                    112 * C + 512,
                    113 * C,
                    114 * C,
                ]
            }
            Place::Stream => (0..=116).map(|chunk| chunk * C).chain([116 * C + 700]).collect(),
            Place::Streams => {
                let parts = [3, 60, 64, 70, 100, 127].map(|chunk| chunk * C + 1024);
                let mut marks: Vec<u64> = (0..=140).map(|chunk| chunk * C).chain(parts).collect();
                marks.sort_unstable();
                marks
            }
            Place::Groups => {
                (0..GROUPS).map(layout::first_chunk).flat_map(|chunk| [chunk * C, (chunk + 1) * C]).collect()
            }
        }
    }
}

/// Content of a segment: the number of the write that produced it.
pub(super) type Value = u32;
pub(super) const ZEROS: Value = 0;
/// The file ends before the segment.
pub(super) const ABSENT: Value = Value::MAX;

/// The byte pattern of a value, which is repeated. None of its bytes is zero.
fn pattern(value: Value) -> [u8; 8] {
    if value == ZEROS {
        return [0; 8];
    }
    let seven = |at: u32| 0x80 | (value >> (7 * at)) as u8;
    [seven(0), seven(1), seven(2), seven(3), seven(4), 1, 2, 3]
}

/// Fills bytes at `offset` with a value.
pub(super) fn fill(value: Value, offset: u64, out: &mut [u8]) {
    let pattern = pattern(value);
    for (byte, at) in out.iter_mut().zip(offset..) {
        *byte = pattern[(at % 8) as usize];
    }
}

/// The value of at least 8 bytes at `offset`; `None` if they do not have a single value.
pub(super) fn identify(offset: u64, bytes: &[u8]) -> Option<Value> {
    let mut first = *bytes.first_chunk::<8>()?;
    let shift = (offset % 8) as usize;
    first.rotate_right(shift);
    let value = (0..5).fold(0, |value, at| value | Value::from(first[at] & 0x7f) << (7 * at));
    let mut wanted = pattern(value);
    wanted.rotate_left(shift);
    let (whole, rest) = bytes.as_chunks::<8>();
    (whole.iter().all(|eight| *eight == wanted) && wanted.starts_with(rest)).then_some(value)
}

/// The parts of a segment below `size` to read: all of it, or only the ends of a wide one.
pub(super) fn parts(segment: Range<u64>, size: u64) -> impl Iterator<Item = Range<u64>> {
    let end = segment.end.min(size);
    let wide = segment.end - segment.start > C && end - segment.start > C;
    let (first, last) = if wide { (segment.start + 512, end - 512) } else { (end, end) };
    [segment.start..first, last..end].into_iter().filter(|part| part.start < part.end)
}
