//! Files that are longer than a batch takes.

use super::{queue::LANES, source::Content, work::Worker};
use crate::crypto::hash::{Digest, Function, Join, Piece, Serial};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Bytes read at a time of each of several files.
const STRETCH: usize = 128 << 10;
/// Stretches of each file until they are shared anew: some milliseconds.
const TURN: usize = 16;

/// An open long file.
pub(super) struct Large<C> {
    /// Its number in the order of the output.
    pub number: u64,
    pub path: PathBuf,
    pub content: C,
    pub size: u64,
    results: Mutex<Results>,
}

/// The digests of the functions that are through, and how many are not.
struct Results {
    digests: Vec<Option<Digest>>,
    left: usize,
    failed: Option<io::Error>,
}

impl<C> Large<C> {
    pub(super) fn new(number: u64, path: PathBuf, content: C, size: u64, functions: usize) -> Self {
        let results = Results { digests: vec![None; functions], left: functions, failed: None };
        Large { number, path, content, size, results: Mutex::new(results) }
    }

    /// Takes the result of one function; with the last one, gives all of them.
    fn finish(&self, function: usize, result: io::Result<Digest>) -> Option<io::Result<Vec<Digest>>> {
        let mut results = self.results.lock();
        match result {
            Ok(digest) => results.digests[function] = Some(digest),
            Err(e) => results.failed = Some(e),
        }
        results.left -= 1;
        if results.left > 0 {
            return None;
        }
        Some(match results.failed.take() {
            Some(e) => Err(e),
            None => Ok(results.digests.iter().flatten().copied().collect()),
        })
    }
}

/// A long file and one of the functions.
pub(super) struct Pass<C: Content> {
    pub large: Arc<Large<C>>,
    /// Its number among the functions.
    pub function: usize,
}

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
}

/// What comes of a part: what a `Join` takes, or the digest if it is all of the file.
pub(super) type Hashed = io::Result<(Vec<u8>, Option<Digest>)>;

/// A long file whose parts are hashed in any order.
pub(super) struct Tree<C: Content> {
    pass: Pass<C>,
    part_len: usize,
    joined: Mutex<Joined>,
}

struct Joined {
    /// `None` if the file is one part, or once it is finished.
    join: Option<Join>,
    /// Parts that wait for earlier ones.
    waiting: BTreeMap<u64, Vec<u8>>,
    /// Parts that are in.
    pushed: u64,
    done: u64,
    failed: Option<io::Error>,
    /// Of a file that is one part.
    only: Option<Digest>,
}

impl<C: Content> Tree<C> {
    pub(super) fn new(pass: Pass<C>, function: &Function, part_len: usize) -> Self {
        let joined = Joined {
            join: function.join(),
            waiting: BTreeMap::new(),
            pushed: 0,
            done: 0,
            failed: None,
            only: None,
        };
        Tree { pass, part_len, joined: Mutex::new(joined) }
    }

    /// How many parts there are: at least one.
    pub(super) fn parts(&self) -> u64 {
        self.pass.large.size.div_ceil(self.part_len as u64).max(1)
    }

    /// Bytes of every part but the last one.
    pub(super) fn part_len(&self) -> usize {
        self.part_len
    }

    /// Bytes of a part.
    pub(super) fn len(&self, index: u64) -> usize {
        (self.pass.large.size - self.offset(index)).min(self.part_len as u64) as usize
    }

    fn offset(&self, index: u64) -> u64 {
        index * self.part_len as u64
    }

    /// The number of its function.
    pub(super) fn function(&self) -> usize {
        self.pass.function
    }
}

impl<S: super::Source> Worker<'_, S> {
    /// Reads a part and hashes it, here or on a GPU.
    pub(super) fn part(&mut self, tree: Arc<Tree<S::Content>>, index: u64) {
        let function = &self.functions()[tree.pass.function];
        if let Function::Md6(md6) = function
            && let Some(slot) = self.slot()
        {
            return self.fly(slot, md6, tree, index);
        }
        let len = tree.len(index);
        self.reserve(len);
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.read(&tree, index, &mut buffer[..len]);
        self.buffer = buffer;
        let hashed = read.map(|()| {
            let data = &self.buffer[..len];
            match tree.parts() {
                1 => (Vec::new(), function.digests(&[data]).first().copied()),
                parts => (function.part(index, data, index + 1 == parts), None),
            }
        });
        self.progress_in(tree.pass.function, len as u64);
        self.take_part(&tree, index, hashed);
    }

    /// Reads a part.
    pub(super) fn read(&self, tree: &Tree<S::Content>, index: u64, out: &mut [u8]) -> io::Result<()> {
        read_exactly(&tree.pass.large.content, out, tree.offset(index), self.stop())
    }

    /// Takes the result of a part.
    pub(super) fn take_part(&self, tree: &Tree<S::Content>, index: u64, hashed: Hashed) {
        if let Some(result) = tree.take(index, hashed) {
            self.finish_pass(&tree.pass, result);
        }
    }

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

    /// Reads a stretch of each file and hashes them; what ends, or cannot be read, is through.
    fn advance(&mut self, lanes: &mut Vec<Lane<S::Content>>) {
        let Some(Lane { pass, serial, .. }) = lanes.first() else { return };
        let (function, stretch) = (pass.function, STRETCH - STRETCH % serial.block());
        self.reserve(LANES * stretch);
        let mut lens = Vec::with_capacity(lanes.len());
        let (mut at, stop) = (0, self.stop());
        let mut buffer = std::mem::take(&mut self.buffer);
        lanes.retain(|lane| {
            let large = &lane.pass.large;
            let len = (large.size - lane.offset).min(stretch as u64) as usize;
            match read_exactly(&large.content, &mut buffer[at..at + len], lane.offset, stop) {
                Ok(()) => {
                    lens.push(len);
                    at += len;
                    true
                }
                Err(e) => {
                    self.finish_pass(&lane.pass, Err(e));
                    false
                }
            }
        });
        let mut rest = &buffer[..at];
        let mut pieces = Vec::with_capacity(lanes.len());
        for (lane, len) in lanes.iter_mut().zip(&lens) {
            let (data, others) = rest.split_at(*len);
            rest = others;
            lane.offset += *len as u64;
            let last = lane.offset == lane.pass.large.size;
            pieces.push(Piece { serial: &mut lane.serial, data, last });
        }
        Serial::advance(&mut pieces);
        drop(pieces);
        self.buffer = buffer;
        self.progress_in(function, at as u64);
        lanes.retain(|lane| {
            let ended = lane.offset == lane.pass.large.size;
            if ended {
                self.finish_pass(&lane.pass, Ok(lane.serial.digest()));
            }
            !ended
        });
    }

    fn finish_pass(&self, pass: &Pass<S::Content>, result: io::Result<Digest>) {
        let large = &pass.large;
        if let Some(result) = large.finish(pass.function, result) {
            self.emit_large(large.number, large.path.clone(), result.map(|digests| (large.size, digests)));
        }
    }
}

/// Reads exactly these bytes of a long file, unless `stop` is set.
fn read_exactly(content: &impl Content, out: &mut [u8], offset: u64, stop: &AtomicBool) -> io::Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    match content.read_full(out, offset)? {
        read if read == out.len() => Ok(()),
        _ => Err(io::Error::other("it became shorter while it was read")),
    }
}

impl<C: Content> Tree<C> {
    /// Takes the result of a part; with the last one, gives the file's.
    fn take(&self, index: u64, hashed: Hashed) -> Option<io::Result<Digest>> {
        let mut joined = self.joined.lock();
        let joined = &mut *joined;
        joined.done += 1;
        match hashed {
            Ok((part, only)) => {
                joined.waiting.insert(index, part);
                joined.only = only;
            }
            Err(e) => joined.failed = Some(e),
        }
        while let Some(part) = joined.waiting.remove(&joined.pushed) {
            if let (Some(join), None) = (&mut joined.join, &joined.only) {
                join.push(&part);
            }
            joined.pushed += 1;
        }
        if joined.done < self.parts() {
            return None;
        }
        if let Some(e) = joined.failed.take() {
            return Some(Err(e));
        }
        let join = joined.join.take();
        joined.only.or_else(|| join.map(Join::finish)).map(Ok)
    }
}
