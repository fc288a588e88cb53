//! Reads all parts of a file that verify, and reports those that do not.

use super::File;
use crate::error::{Error, Result};
use format::layout;
use std::{io, ops::Range};

/// Bytes read at once, enough to keep the engine busy on all cores.
const PIECE: u64 = 8 << 20;

/// A range of a file's content. Ranges between segments are holes.
pub enum Segment<'a> {
    /// Bytes that verify, and their offset.
    Data(u64, &'a [u8]),
    /// A range that cannot be read, and the reason.
    Damaged(Range<u64>, String),
}

/// Passes the segments of the content to `give`, in order, until it fails.
///
/// # Errors
/// Those of `give`; or that nothing of the file can be read.
pub fn each_segment(file: &File, give: &mut dyn FnMut(Segment) -> io::Result<()>) -> io::Result<()> {
    if file.is_blank() {
        return Err(io::Error::other("its header is blank"));
    }
    let (mut at, mut buffer) = (0, Vec::new());
    while let Some((range, damage)) = next_range(file, at) {
        at = range.end;
        match damage {
            Some(reason) => give(Segment::Damaged(range, reason))?,
            None => each_piece(file, range, &mut buffer, give)?,
        }
    }
    Ok(())
}

/// The next range at or after `at` that has data, or whose entries do not verify; then with the reason.
pub fn next_range(file: &File, mut at: u64) -> Option<(Range<u64>, Option<String>)> {
    // The first byte after the group of `at`.
    let behind_group = |at: u64| {
        let next = layout::first_chunk(layout::group_of(at / layout::CHUNK) + 1);
        file.size().min(next.saturating_mul(layout::CHUNK))
    };
    if at == 0
        && let Err(e) = file.check_group(0)
    {
        // A read reports this even if the digest says that the group is a hole, which `seek` would skip.
        return (file.size() > 0).then(|| (0..behind_group(0), Some(e.to_string())));
    }
    loop {
        match file.seek(at, true) {
            // If a later group does not verify, this one has data up to its end.
            Ok(start) => {
                return Some((start..file.seek(start, false).unwrap_or_else(|_| behind_group(start)), None));
            }
            Err(Error::NoData) => return None,
            // Either this group does not verify, or it has only holes up to its end and a later one does
            // not verify.
            Err(_) => {
                let end = behind_group(at);
                if let Err(e) = file.check_group(layout::group_of(at / layout::CHUNK)) {
                    return Some((at..end, Some(e.to_string())));
                }
                at = end;
            }
        }
    }
}

/// Passes the segments of a range with data to `give`, in order, until it fails.
///
/// # Errors
/// Those of `give`.
pub fn each_piece(
    file: &File,
    range: Range<u64>,
    buffer: &mut Vec<u8>,
    give: &mut dyn FnMut(Segment) -> io::Result<()>,
) -> io::Result<()> {
    for piece in pieces(range, PIECE) {
        buffer.resize((piece.end - piece.start) as usize, 0);
        match file.read(piece.start, buffer) {
            Ok(read) => give(Segment::Data(piece.start, &buffer[..read]))?,
            Err(_) => each_chunk(file, piece, give)?,
        }
    }
    Ok(())
}

/// Reads chunk by chunk, to separate those that verify from those that do not.
fn each_chunk(
    file: &File,
    range: Range<u64>,
    give: &mut dyn FnMut(Segment) -> io::Result<()>,
) -> io::Result<()> {
    let mut chunk = [0; layout::CHUNK as usize];
    for bytes in pieces(range, layout::CHUNK) {
        let read: Result<usize> = file.read(bytes.start, &mut chunk[..(bytes.end - bytes.start) as usize]);
        match read {
            Ok(read) => give(Segment::Data(bytes.start, &chunk[..read]))?,
            Err(Error::Damaged(damage)) => give(Segment::Damaged(bytes, damage.reason.to_owned()))?,
            Err(e) => give(Segment::Damaged(bytes, e.to_string()))?,
        }
    }
    Ok(())
}

/// Splits a range at multiples of `len`.
fn pieces(range: Range<u64>, len: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let piece = at..range.end.min((at / len + 1).saturating_mul(len));
        at = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}
