//! Files compared with lists of known hashes: which are known, which moved, which are new, and which of the
//! known ones were not there. The verdicts are hashdeep's.

use super::{list::KnownFile, worker::Hashed};
use crate::crypto::hash::Digest;
use std::{collections::HashMap, path::Path};

/// What a list says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It is known by this name.
    Matched(&'a Path),
    /// It is known by another name only.
    Moved(&'a Path),
    /// One of its hashes is known, but another, or its size, is not the same there.
    Partial(&'a Path),
    /// It is not known.
    New,
}

/// Known files, and which of them were met.
#[derive(Debug, Default)]
pub struct Known {
    files: Vec<KnownFile>,
    met: Vec<bool>,
    /// By function and digest, in the lists' order.
    index: HashMap<(usize, Digest), Vec<usize>>,
}

/// How an audit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Audit {
    /// Files that are as the lists say.
    pub matched: u64,
    /// Files of which not all hashes are as the lists say.
    pub partial: u64,
    /// Files that are known by another name.
    pub moved: u64,
    /// Files that are not known.
    pub new: u64,
    /// Known files that were not met.
    pub missing: u64,
    /// Files that could not be read.
    pub unreadable: u64,
}

impl Audit {
    /// Counts a verdict.
    pub fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Matched(_) => self.matched += 1,
            Verdict::Partial(_) => self.partial += 1,
            Verdict::Moved(_) => self.moved += 1,
            Verdict::New => self.new += 1,
        }
    }

    /// Whether every file is where and what the lists say, and no other is there.
    pub fn passed(&self) -> bool {
        *self == Audit { matched: self.matched, ..Audit::default() }
    }
}

impl Known {
    /// Adds the files of a list.
    pub fn add(&mut self, files: Vec<KnownFile>) {
        for file in files {
            let number = self.files.len();
            for (function, digest) in file.digests.iter().enumerate() {
                if let Some(digest) = digest {
                    self.index.entry((function, *digest)).or_default().push(number);
                }
            }
            self.files.push(file);
            self.met.push(false);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Judges a file that is called `path`, and remembers which known file it is.
    pub fn judge(&mut self, path: &Path, hashed: &Hashed) -> Verdict<'_> {
        let candidates = |&(function, digest): &(usize, &Digest)| self.index.get(&(function, *digest));
        let Some(candidates) = hashed.digests.iter().enumerate().find_map(|c| candidates(&c)) else {
            return Verdict::New;
        };
        let mut equal = candidates.iter().copied().filter(|&number| is_equal(&self.files[number], hashed));
        let Some(first) = equal.next() else {
            return Verdict::Partial(&self.files[candidates[0]].path);
        };
        if self.files[first].path == path {
            self.met[first] = true;
            return Verdict::Matched(&self.files[first].path);
        }
        match equal.find(|&number| self.files[number].path == path) {
            Some(number) => {
                self.met[number] = true;
                Verdict::Matched(&self.files[number].path)
            }
            None => {
                self.met[first] = true;
                Verdict::Moved(&self.files[first].path)
            }
        }
    }

    /// The known files that were not met, in the lists' order.
    pub fn missing(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().zip(&self.met).filter(|(_, met)| !**met).map(|(file, _)| file.path.as_path())
    }
}

/// Whether all that a list says of a file is so.
fn is_equal(known: &KnownFile, hashed: &Hashed) -> bool {
    let digests = known.digests.iter().zip(&hashed.digests);
    known.size.is_none_or(|size| size == hashed.size)
        && digests.into_iter().all(|(known, is)| known.is_none_or(|known| known == *is))
}
