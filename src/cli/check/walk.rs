//! The way through a vault: one thread reads directories, others check what is in them.

use super::report::{Finding, Kind, Report};
use crate::{
    cli::signals::Interrupt,
    vault::{self, Contents, Dir, DirEntry, Flaw, Vault},
};
use crossbeam_channel::{Receiver, Sender, bounded};
use indicatif::ProgressBar;
use parking_lot::Mutex;
use std::{
    ffi::{OsStr, OsString},
    num::NonZero,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

/// Entries that may wait for a thread.
const WAITING: usize = 1024;

/// An entry to be checked.
struct Job {
    path: PathBuf,
    dir: Arc<Dir>,
    entry: DirEntry,
}

struct Check<'a> {
    vault: &'a Arc<Vault>,
    full: bool,
    bar: &'a ProgressBar,
    interrupt: &'a Interrupt,
    report: Mutex<Report>,
}

/// Checks everything below the root.
pub fn check(vault: &Arc<Vault>, full: bool, bar: &ProgressBar, interrupt: &Interrupt) -> Report {
    let check = Check { vault, full, bar, interrupt, report: Mutex::default() };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let (jobs, waiting) = bounded(WAITING);
    thread::scope(|scope| {
        for _ in 0..threads {
            let waiting = waiting.clone();
            scope.spawn(|| check.work(waiting));
        }
        check.walk(jobs);
    });
    check.report.into_inner()
}

impl Check<'_> {
    /// Reads all directories, each before those in it.
    fn walk(&self, jobs: Sender<Job>) {
        let mut next = Some((PathBuf::new(), self.vault.root()));
        let mut closed: Vec<Job> = Vec::new();
        while let Some((path, dir)) = next {
            if self.interrupt.check().is_err() {
                break;
            }
            self.bar.tick();
            self.report.lock().directories += 1;
            let contents = match self.vault.inspect_dir(&dir) {
                Ok(contents) => contents,
                Err(e) => {
                    self.found(Kind::Damaged, &path, (&dir, OsStr::new("")), Flaw::whole(e.to_string()));
                    Contents::default()
                }
            };
            for entry in self.judge_names(&path, &dir, contents) {
                let job = Job { path: path.join(&entry.name), dir: dir.clone(), entry };
                if job.entry.kind == vault::Kind::Dir {
                    self.check_node(&job);
                    closed.push(job);
                } else if jobs.send(job).is_err() {
                    return;
                }
            }
            next = std::iter::from_fn(|| closed.pop()).find_map(|job| self.open(job));
        }
    }

    /// Opens a directory; `None` if it is damaged.
    fn open(&self, job: Job) -> Option<(PathBuf, Arc<Dir>)> {
        match self.vault.open_dir(&job.dir, &job.entry.stored) {
            Ok(dir) => Some((job.path, dir)),
            Err(e) => {
                self.found(Kind::Damaged, &job.path, job.place(), Flaw::whole(e.to_string()));
                None
            }
        }
    }

    /// Reports what is no entry; returns the entries.
    fn judge_names(&self, path: &Path, dir: &Dir, contents: Contents) -> Vec<DirEntry> {
        let report = |kind, name: OsString, reason: String| {
            self.found(kind, path, (dir, &name), Flaw::whole(reason));
        };
        for (name, reason) in contents.damaged {
            report(Kind::Damaged, name, format!("an entry without a name: {reason}"));
        }
        for name in contents.strays {
            report(Kind::Stray, name, "not a file of this vault".to_owned());
        }
        for name in contents.left_over {
            report(Kind::LeftOver, name, "left by an unfinished write, or set aside".to_owned());
        }
        contents.entries
    }

    fn work(&self, waiting: Receiver<Job>) {
        for job in waiting {
            if self.interrupt.check().is_err() {
                continue; // The others that wait go, too.
            }
            self.report.lock().files += 1;
            self.check_node(&job);
            if job.entry.kind == vault::Kind::File {
                let mut progress = |bytes| {
                    self.bar.inc(bytes);
                    self.report.lock().bytes += bytes;
                    self.interrupt.check().is_ok()
                };
                for flaw in self.vault.check_content(&job.dir, &job.entry, self.full, &mut progress) {
                    self.found(Kind::Damaged, &job.path, job.place(), flaw);
                }
            }
        }
    }

    /// Attributes and links.
    fn check_node(&self, job: &Job) {
        for flaw in self.vault.check_node(&job.dir, &job.entry) {
            self.found(Kind::Damaged, &job.path, job.place(), flaw);
        }
    }

    fn found(&self, kind: Kind, path: &Path, (dir, name): (&Dir, &OsStr), flaw: Flaw) {
        let stored = dir.path_in_store(name);
        let Flaw { bytes, reason } = flaw;
        self.report.lock().findings.push(Finding { path: path.to_owned(), bytes, kind, stored, reason });
    }
}

impl Job {
    fn place(&self) -> (&Dir, &OsStr) {
        (&self.dir, &self.entry.stored.0)
    }
}
