//! Long files whose parts are hashed in any order, by all threads.

use super::{
    large::{Pass, read_exactly},
    source::Content,
    work::Worker,
};
use crate::crypto::hash::{Digest, Function, Join};
use parking_lot::Mutex;
use std::{collections::BTreeMap, io, sync::Arc};

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
    /// Hashes a part, here or on a GPU.
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
        let data = &mut buffer[..len];
        let hashed = self.read(&tree, index, data).map(|()| match tree.parts() {
            1 => (Vec::new(), function.digests(&[data]).first().copied()),
            parts => (function.part(index, data, index + 1 == parts), None),
        });
        self.buffer = buffer;
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
