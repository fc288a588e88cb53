//! The way through a vault: one thread reads directories in order, others check what is in them.

use super::{
    job::{Check, Job, finding},
    order::{Place, Progress},
    repair,
    report::{Finding, Kind, Report},
};
use crate::vault::{self, Contents, Dir, DirEntry, Flaw};
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use std::{
    ffi::OsStr,
    mem,
    num::NonZero,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

/// Entries that may wait for a thread.
const WAITING: usize = 1024;

/// A directory that is open: its path in the vault, and in the store from the vault's root.
struct Open {
    path: PathBuf,
    stored: PathBuf,
    dir: Arc<Dir>,
    /// What was found of it when it was opened.
    found: Vec<Finding>,
}

/// Checks everything below the root that is behind `last`; returns what is done, and up to where.
pub(super) fn run(check: &Check, (done, last): (Report, Option<Place>)) -> (Report, Option<Place>) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let (jobs, waiting) = bounded(WAITING);
    let progress = Mutex::new(Progress::from(done, last.clone()));
    thread::scope(|scope| {
        for _ in 0..threads {
            let waiting = waiting.clone();
            scope.spawn(|| check.work(waiting, &progress));
        }
        Walk { check, jobs, progress: &progress, last }.run();
    });
    progress.into_inner().into_done()
}

/// The way of the thread that reads directories.
struct Walk<'a> {
    check: &'a Check<'a>,
    jobs: Sender<(u64, Job)>,
    progress: &'a Mutex<Progress>,
    /// An earlier check came as far as this.
    last: Option<Place>,
}

impl Walk<'_> {
    /// Reads all directories, each before those in it.
    fn run(self) {
        let (path, stored, found) = Default::default();
        let mut next = Some(Open { path, stored, dir: self.check.vault.root(), found });
        let mut closed: Vec<(PathBuf, Job)> = Vec::new();
        while let Some(open) = next {
            self.check.progress.tick();
            let Some(inner) = self.visit(open) else { return };
            closed.extend(inner.into_iter().rev());
            next = std::iter::from_fn(|| closed.pop()).find_map(|(stored, job)| self.open(stored, job));
        }
    }

    /// Reads a directory and hands out the files in it; returns the directories in it that are still to be seen. `None` after
    /// an interruption.
    fn visit(&self, mut open: Open) -> Option<Vec<(PathBuf, Job)>> {
        let number = self.begin_dir(&open.stored);
        let findings = mem::take(&mut open.found);
        let mut report = Report { directories: 1, findings, ..Report::default() };
        let mut entries = self.check.entries(&open, &mut report);
        entries.sort_by(|a, b| a.stored.0.cmp(&b.stored.0));
        let (dirs, files): (Vec<Job>, Vec<Job>) = entries
            .into_iter()
            .map(|entry| Job { path: open.path.join(&entry.name), dir: open.dir.clone(), entry })
            .partition(|job| job.entry.kind == vault::Kind::Dir);
        // What is begun and interrupted does not count.
        self.check.interrupt.check().ok()?;
        if let Some(number) = number {
            self.progress.lock().end(number, report);
        }
        for job in files {
            if !self.last.as_ref().is_some_and(|last| last.is_behind_file(&open.stored, &job.entry.stored.0))
            {
                let number = self.progress.lock().begin(Place::of_file(&open.stored, &job.entry.stored.0));
                self.jobs.send((number, job)).ok()?;
            }
        }
        let inner = dirs.into_iter().map(|job| (open.stored.join(&job.entry.stored.0), job));
        let seen = |stored: &Path| self.last.as_ref().is_some_and(|last| last.is_behind_all_of(stored));
        Some(inner.filter(|(stored, _)| !seen(stored)).collect())
    }

    /// Begins with a directory; `None` if an earlier check has seen it.
    fn begin_dir(&self, stored: &Path) -> Option<u64> {
        let seen = self.last.as_ref().is_some_and(|last| last.is_behind_dir(stored));
        (!seen).then(|| self.progress.lock().begin(Place::of_dir(stored)))
    }

    /// Opens a directory, and checks its attributes then: they are bound to its id, which may have to be mended first. `None` if
    /// it is damaged.
    fn open(&self, stored: PathBuf, job: Job) -> Option<Open> {
        let (dir, finding) = match self.check.vault.open_dir(&job.dir, &job.entry.stored) {
            Ok(dir) => (Some(dir), None),
            Err(e) => repair::dir(self.check, &job, &e),
        };
        let mut found = Vec::from_iter(finding);
        if let Some(dir) = dir {
            found.extend(self.check.node(&job));
            return Some(Open { path: job.path, stored, dir, found });
        }
        if let Some(number) = self.begin_dir(&stored) {
            self.progress.lock().end(number, Report { findings: found, ..Report::default() });
        }
        None
    }
}

impl Check<'_> {
    /// Lists a directory, and reports what is no entry.
    fn entries(&self, open: &Open, report: &mut Report) -> Vec<DirEntry> {
        let Open { path, dir, .. } = open;
        let contents = self.vault.inspect_dir(dir).unwrap_or_else(|e| {
            report.findings.push(finding(
                Kind::Damaged,
                path,
                (dir, OsStr::new("")),
                Flaw::whole(e.to_string()),
            ));
            Contents::default()
        });
        let Contents { mut entries, damaged, unread, strays, left_over } = contents;
        for (name, reason) in damaged {
            let flaw = Flaw::whole(format!("an entry without a name: {reason}"));
            let (entry, finding) = repair::name(self, path, (dir, &name), flaw);
            entries.extend(entry);
            report.findings.push(finding);
        }
        for (name, reason) in unread {
            let flaw = Flaw::unread(format!("an entry whose name cannot be read: {reason}"));
            report.findings.push(finding(Kind::Damaged, path, (dir, &name), flaw));
        }
        for (name, origin) in strays {
            report.findings.push(repair::stray(self, path, (dir, &name), origin));
        }
        for (name, stored, refused) in self.vault.lost_names(dir).unwrap_or_default() {
            let stored = stored.file_name().unwrap_or_default();
            let flaw = Flaw::refused(&refused);
            report.findings.push(finding(Kind::Lost, &path.join(name), (dir, stored), flaw));
        }
        for name in left_over {
            let flaw = Flaw::whole("left by an unfinished write, or set aside".to_owned());
            report.findings.push(finding(Kind::LeftOver, path, (dir, &name), flaw));
        }
        entries
    }

    fn work(&self, waiting: Receiver<(u64, Job)>, progress: &Mutex<Progress>) {
        for (number, job) in waiting {
            if self.interrupt.check().is_err() {
                continue; // The others that wait go, too.
            }
            let _alone = self.nodes.alone(job.entry.ino);
            let mut report = Report { files: 1, ..Report::default() };
            if job.entry.kind == vault::Kind::File {
                let flaws = self.content(&job, &mut report.bytes);
                report.findings = repair::content(self, &job, flaws);
            }
            // Attributes are bound to the header: it is mended before they are judged. They go with a file that was moved away.
            if report.findings.iter().all(|found| found.kind != Kind::SetAside) {
                report.findings.extend(self.node(&job));
            }
            self.progress.add(1, 0);
            if self.interrupt.check().is_ok() {
                progress.lock().end(number, report);
            }
        }
    }

    /// Checks the content of a file, and shows how far it is.
    fn content(&self, job: &Job, bytes: &mut u64) -> Vec<Flaw> {
        let mut progress = |more| {
            *bytes += more;
            self.progress.add(0, more);
            self.interrupt.check().is_ok()
        };
        let flaws = self.vault.check_content(&job.dir, &job.entry, self.scope.full, &mut progress);
        // Holes are counted with the bytes to come.
        let size =
            self.vault.stat(vault::Target::Entry(&job.dir, &job.entry.stored)).map_or(0, |stat| stat.size);
        self.progress.add(0, size.saturating_sub(*bytes));
        flaws
    }

    /// Checks attributes and links.
    fn node(&self, job: &Job) -> Vec<Finding> {
        let flaws = self.vault.check_node(&job.dir, &job.entry);
        flaws.into_iter().map(|flaw| repair::node(self, job, flaw)).collect()
    }
}
