//! Copying to and from unusual filesystems. A target may be case-insensitive but case-preserving, as are
//! vfat, exFAT and others.

use super::{
    copy::{Metadata, copy},
    plain::PlainSide,
    report::TransferReport,
    side::{CopiedAttribute, CopyTarget, New, Room, Side},
};
use crate::cli::signals::Interrupt;
use content::{Segment, Time};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::UNIX_EPOCH,
};
use store::{DirFile, Node, StoreDir};
use tempfile::TempDir;
use vault::Stat;

/// Any existing directory: these tests have no vault to exclude.
const VAULT: &str = "/proc";

/// A filesystem with unusual behaviour.
struct OddPlain(PlainSide, Odd);

/// Its peculiarities.
#[derive(Clone, Copy, Default)]
struct Odd {
    /// Names are case-insensitive.
    folds: bool,
    /// The inode number of all its nodes.
    number: Option<u64>,
    /// A name that it refuses to create.
    refused: Option<&'static str>,
}

impl OddPlain {
    /// The existing spelling of a name, or the name itself if it does not exist.
    fn kept(&self, dir: &StoreDir, name: &OsStr) -> io::Result<OsString> {
        let mut names = self.0.names(dir)?.into_iter();
        let same = |kept: &OsString| self.1.folds && kept.eq_ignore_ascii_case(name);
        Ok(names.find(same).unwrap_or_else(|| name.to_owned()))
    }
}

impl Side for OddPlain {
    type Dir = StoreDir;
    type Node = Node<'static>;

    fn at(&self, path: &Path) -> io::Result<Option<Self::Node>> {
        self.0.at(path)
    }

    fn names(&self, dir: &StoreDir) -> io::Result<Vec<OsString>> {
        self.0.names(dir)
    }

    fn node(&self, dir: &StoreDir, name: &OsStr) -> io::Result<Option<Self::Node>> {
        self.0.node(dir, &self.kept(dir, name)?)
    }

    fn stat(&self, node: &Self::Node) -> io::Result<Stat> {
        let stat = self.0.stat(node)?;
        Ok(Stat { ino: self.1.number.unwrap_or(stat.ino), ..stat })
    }

    fn enter(&self, node: &Self::Node) -> io::Result<StoreDir> {
        self.0.enter(node)
    }

    fn node_of_dir(&self, dir: &StoreDir) -> io::Result<Self::Node> {
        self.0.node_of_dir(dir)
    }

    fn link_target(&self, node: &Self::Node) -> io::Result<OsString> {
        self.0.link_target(node)
    }

    fn attributes(&self, node: &Self::Node) -> io::Result<Vec<CopiedAttribute>> {
        self.0.attributes(node)
    }

    fn each_segment(
        &self,
        node: &Self::Node,
        give: &mut dyn FnMut(Segment) -> io::Result<()>,
    ) -> io::Result<Stat> {
        self.0.each_segment(node, give)
    }
}

impl CopyTarget for OddPlain {
    type File = DirFile;

    fn make(&self, dir: &StoreDir, name: &OsStr, new: New) -> io::Result<()> {
        self.0.make(dir, &self.kept(dir, name)?, new)
    }

    fn link(&self, node: &Self::Node, dir: &StoreDir, name: &OsStr) -> io::Result<()> {
        self.0.link(node, dir, &self.kept(dir, name)?)
    }

    fn create(&self, dir: &StoreDir, name: &OsStr) -> io::Result<DirFile> {
        self.0.create(dir, &self.kept(dir, name)?)
    }

    fn node_of_file(&self, file: &DirFile) -> Self::Node {
        self.0.node_of_file(file)
    }

    fn write(&self, file: &DirFile, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(file, at, bytes)
    }

    fn set_len(&self, file: &DirFile, len: u64) -> io::Result<()> {
        self.0.set_len(file, len)
    }

    fn set_owner(&self, node: &Self::Node, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        self.0.set_owner(node, user, group)
    }

    fn set_mode(&self, node: &Self::Node, mode: u32) -> io::Result<()> {
        self.0.set_mode(node, mode)
    }

    fn set_times(&self, node: &Self::Node, accessed: Time, modified: Time) -> io::Result<()> {
        self.0.set_times(node, accessed, modified)
    }

    fn set_attribute(&self, node: &Self::Node, name: &OsStr, value: &[u8]) -> io::Result<()> {
        self.0.set_attribute(node, name, value)
    }

    fn room(&self, node: &Self::Node) -> io::Result<Room> {
        self.0.room(node)
    }

    fn store(&self, files: &[&DirFile]) -> io::Result<()> {
        self.0.store(files)
    }

    fn rename(&self, dir: &StoreDir, from: &OsStr, to: &OsStr) -> io::Result<()> {
        if self.1.refused.is_some_and(|refused| to == refused) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.0.rename(dir, from, &self.kept(dir, to)?)
    }

    fn rename_new(&self, dir: &StoreDir, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.0.rename_new(dir, from, &self.kept(dir, to)?)
    }

    fn remove(&self, dir: &StoreDir, name: &OsStr) -> io::Result<()> {
        self.0.remove(dir, &self.kept(dir, name)?)
    }

    fn store_names(&self, dir: &StoreDir) -> io::Result<()> {
        self.0.store_names(dir)
    }

    fn finish(&self) -> io::Result<()> {
        self.0.finish()
    }
}

/// A directory with these files, all with the same modification time.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        File::options().write(true).open(path).unwrap().set_modified(UNIX_EPOCH).unwrap();
    }
    dir
}

/// Copies a tree to a case-insensitive target.
fn copied(source: &TempDir, target: &TempDir) -> TransferReport {
    copied_oddly((source, Odd::default()), (target, Odd { folds: true, ..Odd::default() }))
}

fn copied_oddly((source, from): (&TempDir, Odd), (target, to): (&TempDir, Odd)) -> TransferReport {
    let plain = |odd| OddPlain(PlainSide::beside(Path::new(VAULT)).unwrap(), odd);
    let interrupt = Interrupt::watch().unwrap();
    let done =
        copy((&plain(from), source.path()), (&plain(to), target.path()), Metadata::Trusted, &interrupt);
    let (report, outcome) = done.unwrap_or_else(|e| panic!("{}", e.message));
    outcome.unwrap_or_else(|e| panic!("{}", e.message));
    report
}

/// The paths of all problems.
fn problems(report: &TransferReport) -> Vec<&str> {
    report.problems.iter().map(|problem| problem.path.to_str().unwrap()).collect()
}

fn content(dir: &TempDir, name: &str) -> String {
    fs::read_to_string(dir.path().join(name)).unwrap()
}

#[test]
fn what_the_target_takes_for_another_ones_is_named_and_replaces_nothing() {
    let source = tree(&[("A", "one"), ("a", "two"), ("D/x", "of D"), ("d/y", "of d"), ("other", "whole")]);
    let target = tree(&[]);
    for again in [false, true] {
        let report = copied(&source, &target);
        let mut found = problems(&report);
        found.sort_unstable();
        assert_eq!(found, ["a", "d"], "again: {again}");
        assert!(report.judge().is_err());
        assert_eq!(report.present, if again { 3 } else { 0 });
        assert_eq!([content(&target, "A"), content(&target, "D/x")], ["one", "of D"]);
        let mut names: Vec<_> =
            fs::read_dir(target.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["A", "D", "other"]);
        assert!(!target.path().join("D/y").exists(), "directories are not merged");
    }
}

#[test]
fn what_was_there_in_another_case_is_replaced_once() {
    let target = tree(&[("Notes", "old")]);
    let report = copied(&tree(&[("notes", "newer")]), &target);
    assert_eq!((problems(&report), content(&target, "Notes")), (vec![], "newer".to_owned()));
    let report = copied(&tree(&[("nOTES", "newest"), ("notes", "newer")]), &target);
    assert_eq!((problems(&report), content(&target, "Notes")), (vec!["notes"], "newest".to_owned()));
}

#[test]
fn a_number_that_another_file_had_makes_no_link() {
    let source = tree(&[("a", "one"), ("b", "other")]);
    fs::hard_link(source.path().join("a"), source.path().join("c")).unwrap();
    let target = tree(&[]);
    let from = Odd { number: Some(7), ..Odd::default() };
    let report = copied_oddly((&source, from), (&target, Odd::default()));
    assert_eq!(problems(&report), [""; 0]);
    assert_eq!(["a", "b", "c"].map(|name| content(&target, name)), ["one", "other", "one"]);
    assert_eq!(fs::metadata(target.path().join("c")).unwrap().nlink(), 2);
}

#[test]
fn what_did_not_get_its_name_gets_no_link() {
    let source = tree(&[("a", "newer")]);
    fs::hard_link(source.path().join("a"), source.path().join("b")).unwrap();
    let target = tree(&[("a", "old")]);
    let to = Odd { refused: Some("a"), ..Odd::default() };
    let report = copied_oddly((&source, Odd::default()), (&target, to));
    assert_eq!(problems(&report), ["a"]);
    assert_eq!(["a", "b"].map(|name| content(&target, name)), ["old", "newer"]);
}
