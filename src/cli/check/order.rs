//! The order of a check: the files of a directory by their stored names, then its subdirectories.
//! Everything before a given place in that order can be skipped when a check resumes.

use super::report::{CheckReport, Finding};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Ordering,
    collections::VecDeque,
    ffi::{OsStr, OsString},
    path::Path,
};
use vault::WalkPath;

/// A place in the order, in stored names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckPlace {
    dir: OsString,
    /// `None` for the directory itself, which precedes its contents.
    file: Option<OsString>,
}

/// How far an earlier check got, relative to a directory.
#[derive(Clone, Copy)]
pub enum Earlier<'p> {
    /// It did not reach this directory.
    Behind,
    /// It ended in this directory or below. Holds the path from here to the directory where it ended,
    /// and the last file checked there.
    Here(&'p Path, Option<&'p OsStr>),
}

impl<'p> Earlier<'p> {
    /// Relative to the root.
    pub fn of(last: Option<&'p CheckPlace>) -> Self {
        last.map_or(Earlier::Behind, |last| Earlier::Here(Path::new(&last.dir), last.file.as_deref()))
    }

    /// Whether the directory itself has been checked.
    pub fn has_dir(self) -> bool {
        matches!(self, Earlier::Here(..))
    }

    /// Whether this file of the directory has been checked.
    pub fn has_file(self, name: &OsStr) -> bool {
        match self {
            Earlier::Behind => false,
            Earlier::Here(way, last) => way != Path::new("") || last.is_some_and(|last| name <= last),
        }
    }

    /// Relative to a subdirectory; `None` if that has been checked completely.
    pub fn inside(self, name: &OsStr) -> Option<Self> {
        let Earlier::Here(way, file) = self else { return Some(Earlier::Behind) };
        let mut way = way.components();
        let Some(next) = way.next() else { return Some(Earlier::Behind) };
        match name.cmp(next.as_os_str()) {
            Ordering::Less => None,
            Ordering::Equal => Some(Earlier::Here(way.as_path(), file)),
            Ordering::Greater => Some(Earlier::Behind),
        }
    }
}

/// A place in the order, as the walk records it.
pub struct CheckSpot {
    /// Path of the directory in stored names.
    pub dir: WalkPath,
    /// As in [`CheckPlace`].
    pub file: Option<OsString>,
}

impl From<CheckSpot> for CheckPlace {
    fn from(spot: CheckSpot) -> Self {
        CheckPlace { dir: spot.dir.path().into_os_string(), file: spot.file }
    }
}

/// Tracks entries in order. A completed entry counts only once all entries before it are complete.
pub struct CheckProgress {
    /// Number of the first incomplete entry.
    first: u64,
    waiting: VecDeque<(CheckSpot, Option<CheckReport>)>,
    /// Combined report of the entries that count as complete.
    done: CheckReport,
    /// Place of the last completed entry of this check.
    last: Option<CheckSpot>,
    earlier: Option<CheckPlace>,
}

impl CheckProgress {
    /// Resumes after the work of an earlier check.
    pub fn from(done: CheckReport, earlier: Option<CheckPlace>) -> Self {
        CheckProgress { first: 0, waiting: VecDeque::new(), done, last: None, earlier }
    }

    /// Registers an entry and returns its number.
    pub fn begin(&mut self, spot: CheckSpot) -> u64 {
        self.waiting.push_back((spot, None));
        self.first + self.waiting.len() as u64 - 1
    }

    /// Marks an entry as complete.
    pub fn end(&mut self, number: u64, report: CheckReport) {
        if let Some((_, done)) = self.waiting.get_mut((number - self.first) as usize) {
            *done = Some(report);
        }
        while let Some((_, Some(_))) = self.waiting.front() {
            let Some((spot, Some(report))) = self.waiting.pop_front() else { return };
            self.done.add(report);
            self.last = Some(spot);
            self.first += 1;
        }
    }

    /// Adds a finding that has no place in the order.
    pub fn add(&mut self, finding: Finding) {
        self.done.findings.push(finding);
    }

    /// The report of everything completed, and the place up to which the check is complete.
    pub fn into_done(self) -> (CheckReport, Option<CheckPlace>) {
        (self.done, self.last.map(CheckPlace::from).or(self.earlier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: &str, file: Option<&str>) -> CheckPlace {
        CheckPlace { dir: dir.into(), file: file.map(OsString::from) }
    }

    /// How far the check got relative to `dir`; `None` if `dir` or a directory above it has been checked
    /// completely.
    fn seen_from<'p>(last: &'p CheckPlace, dir: &str) -> Option<Earlier<'p>> {
        Path::new(dir).iter().try_fold(Earlier::of(Some(last)), Earlier::inside)
    }

    #[test]
    fn what_was_checked_before_is_not_checked_again() {
        let last = place("b/d", Some("m"));
        for dir in ["", "b", "b/d"] {
            assert!(seen_from(&last, dir).unwrap().has_dir(), "{dir}");
        }
        for dir in ["a", "a/z", "b/c", "b/c/x"] {
            assert!(seen_from(&last, dir).is_none(), "{dir}");
        }
        for dir in ["b/d/a", "b/e", "b.", "c"] {
            let earlier = seen_from(&last, dir).unwrap();
            assert!(!earlier.has_dir() && !earlier.has_file(OsStr::new("a")), "{dir}");
        }
        for (dir, file, seen) in
            [("b", "z", true), ("b/d", "m", true), ("b/d", "n", false), ("b/d", "a", true)]
        {
            assert_eq!(seen_from(&last, dir).unwrap().has_file(OsStr::new(file)), seen, "{dir} {file}");
        }
        assert!(!seen_from(&place("b", None), "b").unwrap().has_file(OsStr::new("a")));
        assert!(!Earlier::of(None).has_dir());
    }

    #[test]
    fn what_is_done_behind_something_that_is_not_does_not_count() {
        let mut progress = CheckProgress::from(CheckReport::default(), None);
        let spot = |file: &str| CheckSpot {
            dir: WalkPath::default().join(OsStr::new("d")),
            file: Some(file.into()),
        };
        let one = || CheckReport { files: 1, ..CheckReport::default() };
        let numbers = ["a", "b", "c"].map(|file| progress.begin(spot(file)));
        progress.end(numbers[2], one());
        progress.end(numbers[0], one());
        assert_eq!(progress.begin(spot("e")), 3);
        let (done, last) = progress.into_done();
        assert_eq!((done.files, last), (1, Some(place("d", Some("a")))));
    }
}
