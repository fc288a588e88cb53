//! Long files that are hashed from their beginning to their end, several side by side.

use super::{
    large::{Pass, read_exactly},
    queue::LANES,
    source::Content,
    work::Worker,
};
use crate::crypto::hash::{Piece, Serial};
use std::{io, sync::atomic::AtomicBool};

/// Bytes taken at a time of each of several files.
const STRETCH: usize = 128 << 10;
/// Stretches of each file until they are shared anew: some milliseconds.
const TURN: usize = 16;

/// A long file that is hashed from its beginning to its end, and how far that is.
pub(super) struct Lane<C: Content> {
    pub pass: Pass<C>,
    serial: Serial,
    offset: u64,
}

impl<C: Content> Lane<C> {
    /// At the beginning.
    pub(super) fn new(pass: Pass<C>, serial: Serial) -> Self {
        Lane { pass, serial, offset: 0 }
    }

    /// Whether something of it is hashed already.
    pub(super) fn is_begun(&self) -> bool {
        self.offset > 0
    }

    /// Reads the next bytes, as many as `out` has room for or the file has.
    fn next<'a>(&'a mut self, out: &'a mut [u8], stop: &AtomicBool) -> io::Result<Piece<'a>> {
        let Lane { pass, serial, offset } = self;
        let large = &pass.large;
        let len = (large.size - *offset).min(out.len() as u64) as usize;
        let data = &mut out[..len];
        read_exactly(&large.content, data, *offset, stop)?;
        *offset += len as u64;
        Ok(Piece { serial, data, last: *offset == large.size })
    }
}

impl<S: super::Source> Worker<'_, S> {
    /// Hashes several long files side by side for a turn, or until one ends. The others go back to the queue, where
    /// threads without work find their share of them: no file has to wait for the thread that began it.
    pub(super) fn serial(&mut self, mut lanes: Vec<Lane<S::Content>>) {
        let taken = lanes.len();
        for _ in 0..TURN {
            self.advance(&mut lanes);
            if lanes.len() < taken {
                break;
            }
        }
        self.queue.put_back(lanes, taken);
    }

    /// Hashes a stretch of each file; what ends, or cannot be read, is through.
    fn advance(&mut self, lanes: &mut Vec<Lane<S::Content>>) {
        let Some(Lane { pass, serial, .. }) = lanes.first() else { return };
        let (function, stretch) = (pass.function, STRETCH - STRETCH % serial.block());
        self.reserve(LANES * stretch);
        let stop = self.stop();
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut pieces, mut failed) = (Vec::with_capacity(lanes.len()), Vec::new());
        for (number, (lane, out)) in lanes.iter_mut().zip(buffer.chunks_mut(stretch)).enumerate() {
            match lane.next(out, stop) {
                Ok(piece) => pieces.push(piece),
                Err(e) => failed.push((number, e)),
            }
        }
        Serial::advance(&mut pieces);
        self.progress_in(function, pieces.iter().map(|piece| piece.data.len() as u64).sum());
        for (number, e) in failed.into_iter().rev() {
            self.finish_pass(&lanes.remove(number).pass, Err(e));
        }
        lanes.retain(|lane| {
            let ended = lane.offset == lane.pass.large.size;
            if ended {
                self.finish_pass(&lane.pass, Ok(lane.serial.digest()));
            }
            !ended
        });
        self.buffer = buffer;
    }
}
