//! Walks a vault: one thread reads directories in order, the others check the entries.

use super::{
    job::{Check, CheckJob, finding},
    order::{CheckPlace, CheckProgress, CheckSpot, Earlier},
    repair,
    report::{CheckReport, Finding, FlawKind},
};
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use std::{ffi::OsStr, io, mem, num::NonZero, sync::Arc, thread};
use vault::{Contents, Dir, DirEntry, Flaw, Ladder, WalkPath};

/// Capacity of the job queue. Each queued entry keeps its directory open.
const WAITING: usize = 1024;
/// Divisor: queued entries may use this fraction of the descriptor limit.
const WAITING_SHARE: usize = 4;

/// An open directory.
struct OpenDir<'p> {
    /// Paths in the vault and in the store, relative to the vault's root.
    path: WalkPath,
    stored: WalkPath,
    dir: Arc<Dir>,
    earlier: Earlier<'p>,
    /// Findings made while it was opened.
    found: Vec<Finding>,
}

/// The remaining work in a directory that has been read.
struct DirWork<'p> {
    path: WalkPath,
    stored: WalkPath,
    earlier: Earlier<'p>,
    /// Subdirectories not yet visited, the next one last.
    dirs: Vec<DirEntry>,
}

/// Checks everything below the root that comes after `last`. Returns the complete report and the place
/// it covers.
pub(super) fn run(
    check: &Check,
    (done, last): (CheckReport, Option<CheckPlace>),
) -> (CheckReport, Option<CheckPlace>) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let (jobs, waiting) = bounded((vault::descriptors() / WAITING_SHARE).min(WAITING));
    let progress = Mutex::new(CheckProgress::from(done, last.clone()));
    thread::scope(|scope| {
        for _ in 0..threads {
            let waiting = waiting.clone();
            scope.spawn(|| check.work(waiting, &progress));
        }
        Walk { check, jobs, progress: &progress }.run(Earlier::of(last.as_ref()));
    });
    progress.into_inner().into_done()
}

/// State of the thread that reads directories.
struct Walk<'a> {
    check: &'a Check<'a>,
    jobs: Sender<(u64, CheckJob)>,
    progress: &'a Mutex<CheckProgress>,
}

impl<'p> Walk<'_> {
    /// Reads all directories, parents before children. `earlier` is how far an earlier check got.
    fn run(self, earlier: Earlier<'p>) {
        let (path, stored, found) = Default::default();
        let root = OpenDir { path, stored, dir: self.check.vault.root(), earlier, found };
        let dir = root.dir.clone();
        let Some(rest) = self.visit(root) else { return };
        let mut ladder = Ladder::new(dir, rest);
        while let Some((dir, rest)) = ladder.present() {
            let Some(entry) = rest.dirs.pop() else {
                if let Some((lost, error)) = ladder.leave().and_then(|left| left.lost) {
                    self.lose(lost, &error);
                }
                continue;
            };
            let Some(open) = self.open(dir, rest, entry) else { continue };
            self.check.progress.tick();
            let (dir, path, stored) = (open.dir.clone(), open.path.clone(), open.stored.clone());
            let Some(rest) = self.visit(open) else { return };
            if let Err(e) = ladder.enter(dir, rest) {
                self.report(&path, &stored, &e);
            }
        }
    }

    /// Reads a directory and queues its files. Returns the subdirectories still to visit, or `None`
    /// after an interruption.
    fn visit(&self, mut open: OpenDir<'p>) -> Option<DirWork<'p>> {
        let number = self.begin_dir(&open.stored, open.earlier);
        let findings = mem::take(&mut open.found);
        let mut report = CheckReport { directories: 1, findings, ..CheckReport::default() };
        let mut entries = self.check.entries(&open, &mut report);
        entries.sort_by(|a, b| b.stored.0.cmp(&a.stored.0));
        let (mut dirs, files): (Vec<DirEntry>, Vec<DirEntry>) =
            entries.into_iter().partition(|entry| entry.kind == vault::Kind::Dir);
        // A directory whose reading was interrupted does not count as checked.
        self.check.interrupt.check().ok()?;
        if let Some(number) = number {
            self.progress.lock().end(number, report);
        }
        let OpenDir { path, stored, dir, earlier, .. } = open;
        for entry in files.into_iter().rev().filter(|entry| !earlier.has_file(&entry.stored.0)) {
            let spot = CheckSpot { dir: stored.clone(), file: Some(entry.stored.0.clone()) };
            let number = self.progress.lock().begin(spot);
            let job = CheckJob { path: path.join(&entry.name), dir: dir.clone(), entry };
            self.jobs.send((number, job)).ok()?;
        }
        dirs.retain(|entry| earlier.inside(&entry.stored.0).is_some());
        Some(DirWork { path, stored, earlier, dirs })
    }

    /// Registers a directory as in progress; `None` if an earlier check has covered it.
    fn begin_dir(&self, stored: &WalkPath, earlier: Earlier) -> Option<u64> {
        let spot = || CheckSpot { dir: stored.clone(), file: None };
        (!earlier.has_dir()).then(|| self.progress.lock().begin(spot()))
    }

    /// Opens a directory, then checks its attributes. In that order, because they are bound to its id,
    /// which may need repair first. `None` if the directory is damaged.
    fn open(&self, parent: &Arc<Dir>, rest: &DirWork<'p>, entry: DirEntry) -> Option<OpenDir<'p>> {
        let earlier = rest.earlier.inside(&entry.stored.0)?;
        let (path, stored) = (rest.path.join(&entry.name), rest.stored.join(&entry.stored.0));
        let job = CheckJob { path, dir: parent.clone(), entry };
        let (dir, finding) = match self.check.vault.open_dir(&job.dir, &job.entry.stored) {
            Ok(dir) => (Some(dir), None),
            Err(e) => repair::dir(self.check, &job, &e),
        };
        let mut found = Vec::from_iter(finding);
        if let Some(dir) = dir {
            found.extend(self.check.node(&job));
            return Some(OpenDir { path: job.path, stored, dir, earlier, found });
        }
        if let Some(number) = self.begin_dir(&stored, earlier) {
            self.progress.lock().end(number, CheckReport { findings: found, ..CheckReport::default() });
        }
        None
    }

    /// Reports directories that the walk could not return to while they had subdirectories left to
    /// visit.
    fn lose(&self, lost: Vec<DirWork>, error: &io::Error) {
        for DirWork { path, stored, .. } in lost.into_iter().filter(|rest| !rest.dirs.is_empty()) {
            self.report(&path, &stored, error);
        }
    }

    /// Reports a directory whose contents were not checked completely.
    fn report(&self, path: &WalkPath, stored: &WalkPath, error: &io::Error) {
        let flaw = Flaw::unread(format!("not everything in it was checked: {error}"));
        let (root, stored) = (self.check.vault.root(), stored.path());
        self.progress.lock().add(finding(FlawKind::Damaged, path, (&root, stored.as_os_str()), flaw));
    }
}

impl Check<'_> {
    /// Lists a directory and reports everything in it that is not a valid entry.
    fn entries(&self, open: &OpenDir, report: &mut CheckReport) -> Vec<DirEntry> {
        let OpenDir { path, dir, .. } = open;
        let contents = self.vault.inspect_dir(dir).unwrap_or_else(|e| {
            report.findings.push(finding(
                FlawKind::Damaged,
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
            report.findings.push(finding(FlawKind::Damaged, path, (dir, &name), flaw));
        }
        for (name, origin) in strays {
            report.findings.push(repair::stray(self, path, (dir, &name), origin));
        }
        for (name, stored, refused) in self.vault.lost_names(dir).unwrap_or_default() {
            let stored = stored.file_name().unwrap_or_default();
            let flaw = Flaw::refused(&refused);
            report.findings.push(finding(FlawKind::Lost, &path.join(&name), (dir, stored), flaw));
        }
        for name in left_over {
            let flaw = Flaw::whole("left by an unfinished write, or set aside".to_owned());
            report.findings.push(finding(FlawKind::LeftOver, path, (dir, &name), flaw));
        }
        entries
    }

    fn work(&self, waiting: Receiver<(u64, CheckJob)>, progress: &Mutex<CheckProgress>) {
        for (number, job) in waiting {
            if self.interrupt.check().is_err() {
                continue; // Drain the queue without checking.
            }
            let _alone = self.nodes.alone(job.entry.ino);
            let mut report = CheckReport { files: 1, ..CheckReport::default() };
            if job.entry.kind == vault::Kind::File {
                let flaws = self.content(&job, &mut report.bytes);
                report.findings = repair::content(self, &job, flaws);
            }
            // Attributes are bound to the header, so check them after its repair. A file that was moved
            // away took them along.
            if report.findings.iter().all(|found| found.kind != FlawKind::SetAside) {
                report.findings.extend(self.node(&job));
            }
            self.progress.add(1, 0);
            if self.interrupt.check().is_ok() {
                progress.lock().end(number, report);
            }
        }
    }

    /// Checks the content of a file and advances the progress display.
    fn content(&self, job: &CheckJob, bytes: &mut u64) -> Vec<Flaw> {
        let mut progress = |more| {
            *bytes += more;
            self.progress.add(0, more);
            self.interrupt.check().is_ok()
        };
        let flaws = self.vault.check_content(&job.dir, &job.entry, self.scope.full, &mut progress);
        // Totals include holes, but the check skips them. Add the difference.
        let size =
            self.vault.stat(vault::Target::Entry(&job.dir, &job.entry.stored)).map_or(0, |stat| stat.size);
        self.progress.add(0, size.saturating_sub(*bytes));
        flaws
    }

    /// Checks attributes and link targets.
    fn node(&self, job: &CheckJob) -> Vec<Finding> {
        let flaws = self.vault.check_node(&job.dir, &job.entry);
        flaws.into_iter().map(|flaw| repair::node(self, job, flaw)).collect()
    }
}
