//! Tasks for long files: a part of one file, or a turn of several files side by side.

use super::{
    serial::{LANES, Lane},
    source::Source,
    tree::HashTree,
    worker::Worker,
};
use crypto::hash::{Function, Serial};
use std::sync::Arc;

/// Bytes read and hashed per step, for each of several files.
const STEP: usize = 128 << 10;
/// Steps of each file before the files are redistributed: some milliseconds.
const TURN: usize = 16;

impl<S: Source> Worker<'_, S> {
    /// Hashes a part on the CPU or on a GPU.
    pub(super) fn part(&mut self, tree: Arc<HashTree<S::Content>>, index: u64) {
        let function = &self.functions()[tree.pass.function];
        if let Function::Md6(md6) = function
            && let Some(slot) = self.slot()
        {
            return self.submit_parts(slot, md6, tree, index);
        }
        let len = tree.len(index);
        self.reserve(len);
        let mut buffer = std::mem::take(&mut self.buffer);
        let data = &mut buffer[..len];
        let hashed = tree.read(index, data, self.stop()).map(|()| match tree.parts() {
            1 => (Vec::new(), function.digests(&[data]).first().copied()),
            parts => (function.part(index, data, index + 1 == parts), None),
        });
        self.buffer = buffer;
        self.progress_in(tree.pass.function, len as u64);
        self.take_part(&tree, index, hashed);
    }

    /// Hashes several long files side by side for one turn, or until one ends. The others return to the
    /// queue, where idle threads take their share, so no file is tied to the thread that began it.
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

    /// Hashes the next step of each file. Removes files that are done or cannot be read.
    fn advance(&mut self, lanes: &mut Vec<Lane<S::Content>>) {
        let Some(Lane { pass, serial, .. }) = lanes.first() else { return };
        let (function, step) = (pass.function, STEP - STEP % serial.block());
        self.reserve(LANES * step);
        let stop = self.stop();
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut pieces, mut failed) = (Vec::with_capacity(lanes.len()), Vec::new());
        for (number, (lane, out)) in lanes.iter_mut().zip(buffer.chunks_mut(step)).enumerate() {
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
            let done = lane.is_done();
            if done {
                self.finish_pass(&lane.pass, Ok(lane.serial.digest()));
            }
            !done
        });
        self.buffer = buffer;
    }
}
