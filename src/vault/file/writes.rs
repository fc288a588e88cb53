//! A set of writes to one stored file, put into as few calls as their places allow.

use crate::store::BackingFile;
use std::{
    borrow::Cow,
    io::{self, IoSlice},
};

/// Pieces that go into one call at most.
const PIECES: usize = 1024;

/// Writes that do not overlap.
#[derive(Default)]
pub(super) struct Writes<'a> {
    pieces: Vec<(u64, Cow<'a, [u8]>)>,
}

impl<'a> Writes<'a> {
    pub(super) fn add(&mut self, offset: u64, bytes: &'a [u8]) {
        self.pieces.push((offset, Cow::Borrowed(bytes)));
    }

    pub(super) fn add_owned(&mut self, offset: u64, bytes: Vec<u8>) {
        self.pieces.push((offset, Cow::Owned(bytes)));
    }

    /// Borrows every piece of `other`.
    pub(super) fn add_all<'b: 'a>(&mut self, other: &'b Writes) {
        self.pieces.extend(other.pieces.iter().map(|(offset, bytes)| (*offset, Cow::Borrowed(&**bytes))));
    }

    /// Writes everything, in ascending order.
    pub(super) fn write(&self, store: &dyn BackingFile) -> io::Result<()> {
        let mut pieces: Vec<(u64, &[u8])> = self.pieces.iter().map(|(o, b)| (*o, &**b)).collect();
        pieces.sort_unstable_by_key(|(offset, _)| *offset);
        for run in pieces.chunk_by(|a, b| a.0 + a.1.len() as u64 == b.0) {
            for part in run.chunks(PIECES) {
                let slices: Vec<IoSlice> = part.iter().map(|(_, bytes)| IoSlice::new(bytes)).collect();
                store.write_vectored_at(&slices, part[0].0)?;
            }
        }
        Ok(())
    }

    pub(super) fn into_owned(self) -> Vec<(u64, Vec<u8>)> {
        self.pieces.into_iter().map(|(offset, bytes)| (offset, bytes.into_owned())).collect()
    }
}
