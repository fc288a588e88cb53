//! Long files whose parts are hashed in any order, by all threads.

use super::{
    large::{Pass, read_exactly},
    source::Content,
};
use crypto::hash::{Digest, Function, Join};
use parking_lot::Mutex;
use std::{collections::BTreeMap, io, sync::atomic::AtomicBool};

/// The hash of a part, for a `Join`, and the digest if the part is the whole file.
pub(super) type PartResult = io::Result<(Vec<u8>, Option<Digest>)>;

/// A long file whose parts are hashed in any order.
pub(super) struct HashTree<C: Content> {
    pub pass: Pass<C>,
    part_len: usize,
    joined: Mutex<Joined>,
}

struct Joined {
    /// `None` if the file has a single part, or once it is finished.
    join: Option<Join>,
    /// Parts that wait for earlier ones.
    waiting: BTreeMap<u64, Vec<u8>>,
    /// Number of joined parts.
    pushed: u64,
    done: u64,
    failed: Option<io::Error>,
    /// The digest of a file with a single part.
    only: Option<Digest>,
}

impl<C: Content> HashTree<C> {
    pub(super) fn new(pass: Pass<C>, function: &Function, part_len: usize) -> Self {
        let joined = Joined {
            join: function.join(),
            waiting: BTreeMap::new(),
            pushed: 0,
            done: 0,
            failed: None,
            only: None,
        };
        HashTree { pass, part_len, joined: Mutex::new(joined) }
    }

    /// Number of parts; at least one.
    pub(super) fn parts(&self) -> u64 {
        self.pass.large.size.div_ceil(self.part_len as u64).max(1)
    }

    /// The length of every part but the last one.
    pub(super) fn part_len(&self) -> usize {
        self.part_len
    }

    /// The length of a part.
    pub(super) fn len(&self, index: u64) -> usize {
        (self.pass.large.size - self.offset(index)).min(self.part_len as u64) as usize
    }

    fn offset(&self, index: u64) -> u64 {
        index * self.part_len as u64
    }

    /// Index of its function.
    pub(super) fn function(&self) -> usize {
        self.pass.function
    }

    /// Reads a part, unless `stop` is set.
    pub(super) fn read(&self, index: u64, out: &mut [u8], stop: &AtomicBool) -> io::Result<()> {
        read_exactly(&self.pass.large.content, out, self.offset(index), stop)
    }

    /// Stores the result of a part. Returns the file's digest once the last one is in.
    pub(super) fn take(&self, index: u64, hashed: PartResult) -> Option<io::Result<Digest>> {
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
