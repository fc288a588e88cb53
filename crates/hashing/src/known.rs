//! Compares files with lists of known hashes: which files are known, moved or new, and which known files
//! are missing. The verdicts are those of hashdeep.

use super::{list::KnownFile, worker::Hashed};
use crypto::hash::Digest;
use std::{collections::HashMap, path::Path};

/// The result of looking up a file in the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// The file is known by this name.
    Matched(&'a Path),
    /// The file is known only by another name.
    Moved(&'a Path),
    /// One of its hashes is known, but another one or the size differs.
    Partial(&'a Path),
    /// The file is not known.
    New,
}

/// Known files, and which of them were found.
#[derive(Debug, Default)]
pub struct Known {
    files: Vec<KnownFile>,
    found: Vec<bool>,
    /// Numbers of the known files by function and digest, in the lists' order.
    index: HashMap<(usize, Digest), Vec<usize>>,
}

/// The counts of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Audit {
    /// Files that agree with the lists.
    pub matched: u64,
    /// Files for which only some hashes agree with the lists.
    pub partial: u64,
    /// Files known only by another name.
    pub moved: u64,
    /// Files that are not known.
    pub new: u64,
    /// Known files that were not found.
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

    /// Whether every known file was found, unchanged and under its name, and no other files were found.
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
            self.found.push(false);
        }
    }

    /// The number of known files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are no known files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Looks up the file called `path`, and marks the known file that it matches as found.
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
            self.found[first] = true;
            return Verdict::Matched(&self.files[first].path);
        }
        match equal.find(|&number| self.files[number].path == path) {
            Some(number) => {
                self.found[number] = true;
                Verdict::Matched(&self.files[number].path)
            }
            None => {
                self.found[first] = true;
                Verdict::Moved(&self.files[first].path)
            }
        }
    }

    /// The known files that were not found, in the lists' order.
    pub fn missing(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().zip(&self.found).filter(|(_, found)| !**found).map(|(file, _)| file.path.as_path())
    }
}

/// Whether the size and all digests agree with those in the list. Values that the list lacks are ignored.
fn is_equal(known: &KnownFile, hashed: &Hashed) -> bool {
    let digests = known.digests.iter().zip(&hashed.digests);
    known.size.is_none_or(|size| size == hashed.size)
        && digests.into_iter().all(|(known, is)| known.is_none_or(|known| known == *is))
}
