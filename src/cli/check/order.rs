//! The order of a check: files of a directory by their stored names, then the directories in it. What is done up to a place in
//! that order need not be done again.

use super::report::{Finding, Report};
use crate::vault::WalkPath;
use serde::{Deserialize, Serialize};
use std::{
    cmp::Ordering,
    collections::VecDeque,
    ffi::{OsStr, OsString},
    path::Path,
};

/// A place in the order, in the names of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    dir: OsString,
    /// `None` is the directory itself, before anything in it.
    file: Option<OsString>,
}

/// How far an earlier check came, as a directory of this one sees it.
#[derive(Clone, Copy)]
pub enum Earlier<'p> {
    /// It had not come here.
    Behind,
    /// It ended here, or in a directory below. The path from here to where that was, and the last file there.
    Here(&'p Path, Option<&'p OsStr>),
}

impl<'p> Earlier<'p> {
    /// As the root sees it.
    pub fn of(last: Option<&'p Place>) -> Self {
        last.map_or(Earlier::Behind, |last| Earlier::Here(Path::new(&last.dir), last.file.as_deref()))
    }

    /// Whether it has seen the directory itself.
    pub fn has_dir(self) -> bool {
        matches!(self, Earlier::Here(..))
    }

    /// Whether it has seen this file in the directory.
    pub fn has_file(self, name: &OsStr) -> bool {
        match self {
            Earlier::Behind => false,
            Earlier::Here(way, last) => way != Path::new("") || last.is_some_and(|last| name <= last),
        }
    }

    /// As a directory in this one sees it; `None` if it has seen all of that.
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

/// A place in the order, as a walk comes to it.
pub struct Spot {
    /// The directory, in the names of the store.
    pub dir: WalkPath,
    /// As [`Place`] has it.
    pub file: Option<OsString>,
}

impl From<Spot> for Place {
    fn from(spot: Spot) -> Self {
        Place { dir: spot.dir.path().into_os_string(), file: spot.file }
    }
}

/// What is being checked, in order: what is done behind something that is not done yet does not count.
pub struct Progress {
    /// Number of the first that is not done.
    first: u64,
    waiting: VecDeque<(Spot, Option<Report>)>,
    /// All that is done.
    done: Report,
    /// The place of the last; before there is one, that of an earlier check.
    last: Option<Spot>,
    earlier: Option<Place>,
}

impl Progress {
    /// Goes on behind what was done before.
    pub fn from(done: Report, earlier: Option<Place>) -> Self {
        Progress { first: 0, waiting: VecDeque::new(), done, last: None, earlier }
    }

    /// Begins with something; returns its number.
    pub fn begin(&mut self, spot: Spot) -> u64 {
        self.waiting.push_back((spot, None));
        self.first + self.waiting.len() as u64 - 1
    }

    /// Ends it.
    pub fn end(&mut self, number: u64, report: Report) {
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

    /// Adds a finding that belongs to no place.
    pub fn add(&mut self, finding: Finding) {
        self.done.findings.push(finding);
    }

    /// What is done, and up to where.
    pub fn into_done(self) -> (Report, Option<Place>) {
        (self.done, self.last.map(Place::from).or(self.earlier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: &str, file: Option<&str>) -> Place {
        Place { dir: dir.into(), file: file.map(OsString::from) }
    }

    /// As this directory sees it; `None` if everything in it or in one above was seen.
    fn seen_from<'p>(last: &'p Place, dir: &str) -> Option<Earlier<'p>> {
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
        let mut progress = Progress::from(Report::default(), None);
        let spot =
            |file: &str| Spot { dir: WalkPath::default().join(OsStr::new("d")), file: Some(file.into()) };
        let one = || Report { files: 1, ..Report::default() };
        let numbers = ["a", "b", "c"].map(|file| progress.begin(spot(file)));
        progress.end(numbers[2], one());
        progress.end(numbers[0], one());
        assert_eq!(progress.begin(spot("e")), 3);
        let (done, last) = progress.into_done();
        assert_eq!((done.files, last), (1, Some(place("d", Some("a")))));
    }
}
