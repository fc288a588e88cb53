//! Long files whose function requires hashing from beginning to end. Several are hashed side by side.

use super::{
    large::{Pass, read_exactly},
    source::Content,
};
use crypto::hash::{Piece, Serial};
use std::{io, sync::atomic::AtomicBool};

/// Number of messages in the widest vector.
pub(super) const LANES: usize = 8;

/// A long file that is hashed from beginning to end, and its progress.
pub(super) struct Lane<C: Content> {
    pub pass: Pass<C>,
    pub serial: Serial,
    offset: u64,
}

impl<C: Content> Lane<C> {
    /// Nothing is hashed yet.
    pub(super) fn new(pass: Pass<C>, serial: Serial) -> Self {
        Lane { pass, serial, offset: 0 }
    }

    /// Whether part of the file is already hashed.
    pub(super) fn is_begun(&self) -> bool {
        self.offset > 0
    }

    /// Whether the whole file is hashed.
    pub(super) fn is_done(&self) -> bool {
        self.offset == self.pass.large.size
    }

    /// Reads the next bytes, until `out` is full or the file ends.
    pub(super) fn next<'a>(&'a mut self, out: &'a mut [u8], stop: &AtomicBool) -> io::Result<Piece<'a>> {
        let Lane { pass, serial, offset } = self;
        let large = &pass.large;
        let len = (large.size - *offset).min(out.len() as u64) as usize;
        let data = &mut out[..len];
        read_exactly(&large.content, data, *offset, stop)?;
        *offset += len as u64;
        Ok(Piece { serial, data, last: *offset == large.size })
    }
}
