//! A set of writes to one stored file, combined into as few calls as possible.

use std::io::{self, IoSlice};
use store::BackingFile;

/// Maximum pieces in one call.
const PIECES: usize = 1024;

/// Writes that do not overlap.
#[derive(Default)]
pub(super) struct Writes<'a> {
    pieces: Vec<(u64, &'a [u8])>,
}

impl<'a> Writes<'a> {
    pub(super) fn add(&mut self, offset: u64, bytes: &'a [u8]) {
        self.pieces.push((offset, bytes));
    }

    /// Writes everything in ascending order.
    pub(super) fn write(&self, store: &dyn BackingFile) -> io::Result<()> {
        let mut pieces = self.pieces.clone();
        pieces.sort_unstable_by_key(|(offset, _)| *offset);
        for adjacent in pieces.chunk_by(|a, b| a.0 + a.1.len() as u64 == b.0) {
            for part in adjacent.chunks(PIECES) {
                let slices: Vec<IoSlice> = part.iter().map(|(_, bytes)| IoSlice::new(bytes)).collect();
                store.write_vectored_at(&slices, part[0].0)?;
            }
        }
        Ok(())
    }
}
