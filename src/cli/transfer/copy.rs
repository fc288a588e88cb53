//! Copies a tree from one side to the other.
//!
//! A file is written under a temporary name. Complete files wait in a queue until their content is
//! durable, many of them with one sync, and only then get their final names. A directory waits in the
//! same queue for its attributes, because each name created in it changes its time.

use super::{
    names::is_temporary,
    report::{Problem, TransferReport},
    side::{CopyTarget, New, Side},
};
use crate::cli::{
    exit::{Code, Failure, Outcome},
    progress::Late,
    signals::Interrupt,
};
use rustix::io::Errno;
use std::{
    collections::{HashMap, HashSet},
    ffi::{OsStr, OsString},
    fmt::Display,
    io,
    path::Path,
    rc::Rc,
};
use vault::{Climb, Kind, Ladder, Left, Stat, WalkPath};

/// The queue is settled at this number of entries, or after this number of bytes.
const DUE_MAX: usize = 128;
const DUE_BYTES: u64 = 64 << 20;

/// Whether owners, set-user-id and set-group-id bits, file capabilities and special files are copied
/// from the source.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Metadata {
    Trusted,
    /// A store's metadata is not authenticated. Otherwise, a writer of the store could plant a
    /// set-user-id program or a device, or gain ownership of plaintext.
    Untrusted,
}

/// A copy in progress.
pub struct Copy<'a, S: Side, T: CopyTarget> {
    pub(super) source: &'a S,
    pub(super) target: &'a T,
    pub(super) interrupt: &'a Interrupt,
    pub(super) metadata: Metadata,
    pub(super) progress: Late,
    pub(super) report: TransferReport,
    /// The root directory of the copy in the target.
    pub(super) top: Rc<T::Dir>,
    /// Inodes with several names: the path of the first name in the target, and the source's attributes.
    pub(super) links: HashMap<(u64, u64), (WalkPath, Stat)>,
    pub(super) due: Vec<Due<S, T>>,
    pub(super) due_bytes: u64,
}

/// A directory being copied, on both sides.
pub(super) struct CopyDirs<S: Side, T: CopyTarget> {
    pub from: S::Dir,
    pub to: Rc<T::Dir>,
}

/// State of a directory being copied.
pub(super) struct CopyLevel {
    path: WalkPath,
    stat: Stat,
    /// Names that the target had before the copy, minus those found to be other spellings of source
    /// names.
    pub(super) before: HashSet<OsString>,
    names: std::vec::IntoIter<OsString>,
    /// Names given to damaged files.
    saved: HashSet<OsString>,
}

impl<S: Side, T: CopyTarget> Climb for CopyDirs<S, T> {
    type Mark = (<S::Dir as Climb>::Mark, <T::Dir as Climb>::Mark);

    fn mark(&self) -> io::Result<Self::Mark> {
        Ok((self.from.mark()?, self.to.mark()?))
    }

    fn above(&self, levels: usize, (from, to): &Self::Mark) -> io::Result<Self> {
        Ok(CopyDirs { from: self.from.above(levels, from)?, to: Rc::new(self.to.above(levels, to)?) })
    }
}

/// An entry of the queue, waiting for the content before it to be durable.
pub(super) enum Due<S: Side, T: CopyTarget> {
    /// A file that needs its final name.
    File(Whole<T>),
    /// A directory that needs its attributes.
    Dir(Box<(CopyDirs<S, T>, CopyLevel)>),
}

/// A file that is completely written.
pub(super) struct Whole<T: CopyTarget> {
    pub file: T::File,
    pub dir: Rc<T::Dir>,
    pub temporary: OsString,
    pub path: WalkPath,
    pub bytes: u64,
    /// Whether it may replace an existing entry of its name.
    pub replaces: bool,
}

/// A node being copied.
pub(super) struct CopyJob<'l, S: Side, T: CopyTarget> {
    pub node: S::Node,
    pub stat: Stat,
    pub dir: &'l Rc<T::Dir>,
    pub name: &'l OsStr,
    pub path: &'l WalkPath,
    /// Names that the target had before the copy; `None` if a single node is copied.
    pub before: Option<&'l HashSet<OsString>>,
}

/// Copies `from` to `to`, as far as it can be read. Returns the report, and the error that ended the
/// copy early.
///
/// # Errors
/// If there is nothing to copy, or the target has no place for it.
pub fn copy<S: Side, T: CopyTarget>(
    (source, from): (&S, &Path),
    (target, to): (&T, &Path),
    metadata: Metadata,
    interrupt: &Interrupt,
) -> Outcome<(TransferReport, Outcome)> {
    let (node, stat, dir, name) = begin((source, from), (target, to))?;
    let mut copy = Copy {
        source,
        target,
        interrupt,
        metadata,
        progress: Late::start(),
        report: TransferReport::default(),
        top: Rc::new(dir),
        links: HashMap::new(),
        due: Vec::new(),
        due_bytes: 0,
    };
    let done = match name {
        None => copy.tree(node, stat),
        Some(name) => copy.single(node, stat, &name),
    };
    // Keep complete files even after a failure.
    let settled = copy.settle();
    copy.report.interrupted = interrupt.check().is_err();
    Ok((copy.report, done.and(settled)))
}

/// The node to copy, the target's directory, and the new name in it. Without a name, the directory
/// itself becomes the copy.
type Beginning<S, T> = (<S as Side>::Node, Stat, <T as Side>::Dir, Option<OsString>);

fn begin<S: Side, T: CopyTarget>(
    (source, from): (&S, &Path),
    (target, to): (&T, &Path),
) -> Outcome<Beginning<S, T>> {
    let found = source.at(from).and_then(|node| {
        let node = node.ok_or(Errno::NOENT)?;
        Ok((source.stat(&node)?, node))
    });
    let (stat, node) = found.map_err(|e| failed(from.display(), &e))?;
    let (dir, name) = destination(target, to, from, stat.kind).map_err(|e| failed(to.display(), &e))?;
    Ok((node, stat, dir, name))
}

fn destination<T: CopyTarget>(
    target: &T,
    to: &Path,
    from: &Path,
    kind: Kind,
) -> io::Result<(T::Dir, Option<OsString>)> {
    let there = target.at(to)?;
    let there = there.map(|node| Ok::<_, io::Error>((target.stat(&node)?.kind, node))).transpose()?;
    match (there, kind) {
        (Some((Kind::Dir, node)), Kind::Dir) => return Ok((target.enter(&node)?, None)),
        (Some((Kind::Dir, node)), _) => {
            return Ok((target.enter(&node)?, from.file_name().map(OsStr::to_owned)));
        }
        (Some(_), Kind::Dir) => return Err(Errno::NOTDIR.into()),
        (Some(_) | None, _) => {}
    }
    let name = to.file_name().ok_or(Errno::INVAL)?;
    let above = target.at(to.parent().unwrap_or(Path::new("")))?.ok_or(Errno::NOENT)?;
    let above = target.enter(&above)?;
    if kind != Kind::Dir {
        return Ok((above, Some(name.to_owned())));
    }
    target.make(&above, name, New::Dir)?;
    let made = target.node(&above, name)?.ok_or(Errno::NOENT)?;
    Ok((target.enter(&made)?, None))
}

impl<S: Side, T: CopyTarget> Copy<'_, S, T> {
    /// Copies a single file, link or special file.
    fn single(&mut self, node: S::Node, stat: Stat, name: &OsStr) -> Outcome {
        let top = self.top.clone();
        let path = WalkPath::default().join(name);
        let job = CopyJob { node, stat, dir: &top, name, path: &path, before: None };
        let copied = self.leaf(job, &mut |_| false);
        copied.or_else(|e| self.note(&path, &e))
    }

    /// Copies the contents of a directory recursively.
    fn tree(&mut self, node: S::Node, stat: Stat) -> Outcome {
        let (top, path) = (self.top.clone(), WalkPath::default());
        let (dirs, level) = match self.level(&path, &node, stat, top) {
            Ok(first) => first,
            Err(e) => return self.note(&path, &e),
        };
        let mut ladder = Ladder::new(dirs, level);
        while let Some((dirs, level)) = ladder.present() {
            self.interrupt.check()?;
            match level.names.next() {
                Some(name) => {
                    let path = level.path.join(&name);
                    if let Some((dirs, level)) = self.child(dirs, level, &name, &path)?
                        && let Err(e) = ladder.enter(dirs, level)
                    {
                        self.note(&path, &e)?;
                    }
                }
                None => {
                    let Some(Left { dir, rest, lost }) = ladder.leave() else { return Ok(()) };
                    self.due.push(Due::Dir(Box::new((dir, rest))));
                    if let Some((lost, error)) = lost {
                        lost.iter().try_for_each(|level| self.note(&level.path, &error))?;
                    }
                }
            }
            if self.due.len() >= DUE_MAX || self.due_bytes >= DUE_BYTES {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Copies the node of this name; a directory is opened instead.
    fn child(
        &mut self,
        dirs: &CopyDirs<S, T>,
        level: &mut CopyLevel,
        name: &OsStr,
        path: &WalkPath,
    ) -> Outcome<Option<(CopyDirs<S, T>, CopyLevel)>> {
        if is_temporary(name) {
            return Ok(None);
        }
        let found = self
            .source
            .node(&dirs.from, name)
            .and_then(|node| node.map(|node| Ok((self.source.stat(&node)?, node))).transpose());
        let (stat, node) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None), // It was removed meanwhile.
            Err(e) => return self.note(path, &e).map(|()| None),
        };
        if self.links.get(&inode(&stat)).is_some_and(|(first, _)| self.waits(first)) {
            self.settle()?;
        }
        if let Err(e) = self.tell_apart(dirs, level, name) {
            return self.note(path, &e).map(|()| None);
        }
        let CopyLevel { before, saved, .. } = level;
        let job = CopyJob { node, stat, dir: &dirs.to, name, path, before: Some(before) };
        let copied = match stat.kind {
            Kind::Dir => self.directory(&job).map(Some),
            _ => {
                let mut taken =
                    |name: &OsStr| !saved.insert(name.to_owned()) || has(self.source, &dirs.from, name);
                self.leaf(job, &mut taken).map(|()| None)
            }
        };
        copied.or_else(|e| self.note(path, &e).map(|()| None))
    }

    fn directory(&mut self, job: &CopyJob<S, T>) -> io::Result<(CopyDirs<S, T>, CopyLevel)> {
        if self.there(job)?.is_none() {
            self.target.make(job.dir, job.name, New::Dir)?;
            self.report.directories += 1;
        }
        let made = self.target.node(job.dir, job.name)?.ok_or(Errno::NOENT)?;
        let to = Rc::new(self.target.enter(&made)?);
        self.level(job.path, &job.node, job.stat, to)
    }

    /// Opens a directory for copying its contents to `to`.
    fn level(
        &mut self,
        path: &WalkPath,
        node: &S::Node,
        stat: Stat,
        to: Rc<T::Dir>,
    ) -> io::Result<(CopyDirs<S, T>, CopyLevel)> {
        let from = self.source.enter(node)?;
        let mut names = self.source.names(&from)?;
        names.sort_unstable();
        let own = self.target.node_of_dir(&to)?;
        let mode = self.target.stat(&own)?.mode;
        if mode & 0o700 != 0o700 {
            // It may already have its final mode. If the change fails, creating entries in it fails too
            // and is reported.
            let _ = self.target.set_mode(&own, mode | 0o700);
        }
        let (left, before): (HashSet<_>, _) =
            self.target.names(&to)?.into_iter().partition(|n| is_temporary(n));
        left.iter().try_for_each(|name| self.target.remove(&to, name))?;
        let level =
            CopyLevel { path: path.clone(), stat, before, names: names.into_iter(), saved: HashSet::new() };
        Ok((CopyDirs { from, to }, level))
    }

    /// Makes the queued content durable, then gives the entries their names and attributes. Returns the
    /// first failure.
    fn settle(&mut self) -> Outcome {
        let due = std::mem::take(&mut self.due);
        self.due_bytes = 0;
        let files = due.iter().filter_map(|due| match due {
            Due::File(whole) => Some(&whole.file),
            Due::Dir(_) => None,
        });
        let stored = self.target.store(&files.collect::<Vec<_>>()).is_ok();
        let mut done = Ok(());
        for due in due {
            done = done.and(match due {
                Due::File(whole) => self.name(&whole, stored),
                Due::Dir(due) => self.leave(&due.0, &due.1),
            });
        }
        done
    }

    /// Gives a file its final name. If the common sync failed, syncs this file by itself.
    fn name(&mut self, whole: &Whole<T>, stored: bool) -> Outcome {
        let Whole { file, dir, temporary, path, bytes, replaces } = whole;
        let stored = if stored { Ok(()) } else { self.target.store(&[file]) };
        match stored.and_then(|()| self.give_name(dir, temporary, path.name(), *replaces)) {
            Ok(()) => {
                self.report.files += 1;
                self.report.bytes += bytes;
                Ok(())
            }
            Err(e) => {
                let _ = self.target.remove(dir, temporary); // Keep the first error.
                // The entry of that name is not the copy, so create no hard links to it.
                self.links.retain(|_, (first, _)| !first.is_clone_of(path));
                self.note(path, &e)
            }
        }
    }

    /// Whether a file is still queued for its name.
    fn waits(&self, file: &WalkPath) -> bool {
        self.due.iter().any(|due| matches!(due, Due::File(whole) if whole.path.is_clone_of(file)))
    }

    /// Finishes a directory: makes its names durable and sets its attributes.
    fn leave(&mut self, CopyDirs { from, to }: &CopyDirs<S, T>, level: &CopyLevel) -> Outcome {
        let dressed = self.target.store_names(to).and_then(|()| {
            let (from, to) = (self.source.node_of_dir(from)?, self.target.node_of_dir(to)?);
            self.dress(&from, &level.stat, &to)
        });
        match dressed {
            Err(e) => self.note(&level.path, &e),
            Ok(unreadable) => {
                for reason in unreadable {
                    let path = level.path.path();
                    self.problem(Problem { path, bytes: None, saved_as: None, reason });
                }
                Ok(())
            }
        }
    }

    /// Reports a node that cannot be copied.
    ///
    /// # Errors
    /// If nothing more can be copied, or after an interruption.
    fn note(&mut self, path: &WalkPath, error: &io::Error) -> Outcome {
        self.interrupt.check()?;
        if is_full(error) || error.kind() == io::ErrorKind::ReadOnlyFilesystem {
            return Err(failed(format_args!("{:?}", path.path()), error));
        }
        let reason = error.to_string();
        self.problem(Problem { path: path.path(), bytes: None, saved_as: None, reason });
        Ok(())
    }

    pub(super) fn problem(&mut self, problem: Problem) {
        self.progress.say(&problem.text());
        self.report.problems.push(problem);
    }
}

/// A unique key of an inode.
pub(super) fn inode(stat: &Stat) -> (u64, u64) {
    (stat.dev, stat.ino)
}

/// Whether a directory contains this name.
pub(super) fn has<S: Side>(source: &S, dir: &S::Dir, name: &OsStr) -> bool {
    source.node(dir, name).is_ok_and(|node| node.is_some())
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The failure of work that ended early.
pub(super) fn failed(what: impl Display, error: &io::Error) -> Failure {
    let what = format!("{what}: {error}");
    if is_full(error) {
        let advice = "Free some space and run the command again: it resumes where it stopped.";
        return Failure::new(Code::DiskFull, what, advice);
    }
    Failure::plain(Code::Failed, what)
}
