//! The order of a check: files of a directory by their stored names, then the directories in it. What is done up to a place in
//! that order need not be done again.

use super::report::Report;
use serde::{Deserialize, Serialize};
use std::{
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

impl Place {
    /// That of a directory, given from the vault's root.
    pub fn of_dir(dir: &Path) -> Self {
        Place { dir: dir.as_os_str().to_owned(), file: None }
    }

    /// That of a file in a directory.
    pub fn of_file(dir: &Path, file: &OsStr) -> Self {
        Place { file: Some(file.to_owned()), ..Place::of_dir(dir) }
    }

    /// Whether a check that came as far as this has seen the directory itself.
    pub fn is_behind_dir(&self, dir: &Path) -> bool {
        dir <= self.dir()
    }

    /// Whether it has seen this file in the directory.
    pub fn is_behind_file(&self, dir: &Path, file: &OsStr) -> bool {
        dir < self.dir() || dir == self.dir() && self.file.as_deref().is_some_and(|last| file <= last)
    }

    /// Whether it has seen everything below the directory.
    pub fn is_behind_all_of(&self, dir: &Path) -> bool {
        dir < self.dir() && !self.dir().starts_with(dir)
    }

    fn dir(&self) -> &Path {
        Path::new(&self.dir)
    }
}

/// What is being checked, in order: what is done behind something that is not done yet does not count.
pub struct Progress {
    /// Number of the first that is not done.
    first: u64,
    waiting: VecDeque<(Place, Option<Report>)>,
    /// All that is done, and the place of the last.
    done: Report,
    last: Option<Place>,
}

impl Progress {
    /// Goes on behind what was done before.
    pub fn from(done: Report, last: Option<Place>) -> Self {
        Progress { first: 0, waiting: VecDeque::new(), done, last }
    }

    /// Begins with something; returns its number.
    pub fn begin(&mut self, place: Place) -> u64 {
        self.waiting.push_back((place, None));
        self.first + self.waiting.len() as u64 - 1
    }

    /// Ends it.
    pub fn end(&mut self, number: u64, report: Report) {
        if let Some((_, done)) = self.waiting.get_mut((number - self.first) as usize) {
            *done = Some(report);
        }
        while let Some((_, Some(_))) = self.waiting.front() {
            let Some((place, Some(report))) = self.waiting.pop_front() else { return };
            self.done.add(report);
            self.last = Some(place);
            self.first += 1;
        }
    }

    /// What is done, and up to where.
    pub fn into_done(self) -> (Report, Option<Place>) {
        (self.done, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_knows_what_is_before_it() {
        let place = Place::of_file(Path::new("b/d"), OsStr::new("m"));
        for dir in ["", "a", "a/z", "b", "b/c", "b/c/x", "b/d"] {
            assert!(place.is_behind_dir(Path::new(dir)), "{dir}");
        }
        for dir in ["b/d/a", "b/e", "b.", "c"] {
            assert!(!place.is_behind_dir(Path::new(dir)), "{dir}");
            assert!(!place.is_behind_file(Path::new(dir), OsStr::new("a")), "{dir}");
        }
        for (dir, file, seen) in
            [("b", "z", true), ("b/d", "m", true), ("b/d", "n", false), ("b/d", "a", true)]
        {
            assert_eq!(place.is_behind_file(Path::new(dir), OsStr::new(file)), seen, "{dir} {file}");
        }
        for (dir, seen) in
            [("", false), ("a", true), ("b", false), ("b/c", true), ("b/d", false), ("b/d/a", false)]
        {
            assert_eq!(place.is_behind_all_of(Path::new(dir)), seen, "{dir}");
        }
        assert!(!Place::of_dir(Path::new("b")).is_behind_file(Path::new("b"), OsStr::new("a")));
    }

    #[test]
    fn what_is_done_behind_something_that_is_not_does_not_count() {
        let mut progress = Progress::from(Report::default(), None);
        let place = |file: &str| Place::of_file(Path::new("d"), OsStr::new(file));
        let one = || Report { files: 1, ..Report::default() };
        let numbers = ["a", "b", "c"].map(|file| progress.begin(place(file)));
        progress.end(numbers[2], one());
        progress.end(numbers[0], one());
        assert_eq!(progress.begin(place("e")), 3);
        let (done, last) = progress.into_done();
        assert_eq!((done.files, last), (1, Some(place("a"))));
    }
}
