//! The modes of `hash`: list digests, compare them with known ones, audit, or find duplicates.

use super::{
    append::Append,
    output::{Output, json_file},
};
use crate::cli::{
    args::HashArgs,
    exit::{Code, Failure, Outcome},
    json,
    progress::Totals,
};
use crypto::hash::Digest;
use hashing::{Audit, HashRecord, Hashed, Known, Verdict};
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum HashTask {
    List,
    /// Print the files that are known, or those that are not, optionally with their hashes.
    Select {
        known: bool,
        hashes: bool,
    },
    Audit,
    Duplicates,
}

/// A task and its results so far.
pub struct Mode {
    task: HashTask,
    output: Output,
    known: Known,
    append: Option<Append>,
    audit: Audit,
    groups: Groups,
    verbose: u8,
    which: bool,
    silent: bool,
}

/// Files with the same content. Groups are in the order of their first files.
#[derive(Default)]
struct Groups {
    index: HashMap<(u64, Vec<Digest>), usize>,
    groups: Vec<(Hashed, Vec<PathBuf>)>,
}

impl Mode {
    /// Selects the task according to the options.
    pub fn new(args: &HashArgs, known: Known, output: Output, append: Option<Append>) -> Self {
        let mode = &args.mode;
        let task = match () {
            () if mode.audit => HashTask::Audit,
            () if mode.duplicates => HashTask::Duplicates,
            () if mode.matching || mode.matching_hashes => {
                HashTask::Select { known: true, hashes: mode.matching_hashes }
            }
            () if mode.negative || mode.negative_hashes => {
                HashTask::Select { known: false, hashes: mode.negative_hashes }
            }
            // `--append` without a task prints the files that it adds.
            () if args.append => HashTask::Select { known: false, hashes: true },
            () => HashTask::List,
        };
        Mode {
            task,
            output,
            known,
            append,
            audit: Audit::default(),
            groups: Groups::default(),
            verbose: args.verbose,
            which: args.which,
            silent: args.silent,
        }
    }

    /// Whether lines are printed during hashing.
    pub fn prints_as_it_goes(&self) -> bool {
        match self.task {
            HashTask::Audit => self.verbose >= 2 || self.output.is_json(),
            HashTask::Duplicates => false,
            HashTask::List | HashTask::Select { .. } => true,
        }
    }

    /// Whether no more output is possible.
    pub fn is_closed(&self) -> bool {
        self.output.is_closed()
    }

    /// See [`Output::check`].
    ///
    /// # Errors
    /// Those of [`Output::check`].
    pub fn check_output(&self) -> Outcome {
        self.output.check()
    }

    /// Prints the header.
    pub fn begin(&mut self) {
        let with_digests = matches!(self.task, HashTask::List | HashTask::Select { hashes: true, .. });
        self.output.header(with_digests);
    }

    /// Handles the result of a file.
    pub fn take(&mut self, record: HashRecord, progress: &Totals) {
        match record.result {
            Ok(hashed) => self.file(record.path, hashed),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => {
                self.audit.unreadable += 1;
                let mut object = json::path(self.output.shown(&record.path));
                object.insert("error".into(), json!(e.to_string()));
                self.output.element(object.into());
                if !self.silent {
                    progress.say(&format!("warpcrypt: {}: {e}", record.path.display()));
                }
            }
        }
    }

    fn file(&mut self, path: PathBuf, hashed: Hashed) {
        match self.task {
            HashTask::List => return self.output.file(&path, &hashed),
            HashTask::Duplicates => return self.groups.add(self.output.shown(&path), hashed),
            HashTask::Select { .. } | HashTask::Audit => {}
        }
        let name = self.output.shown(&path);
        let verdict = self.known.judge(name, &hashed);
        self.audit.count(&verdict);
        if let Some(append) = &mut self.append
            && !matches!(verdict, Verdict::Matched(_))
        {
            append.add(name, &hashed);
        }
        match self.task {
            HashTask::Audit => audited(&mut self.output, self.verbose, name, &hashed, verdict),
            HashTask::Select { known, hashes } => {
                let is_known = matches!(verdict, Verdict::Matched(_) | Verdict::Moved(_));
                if is_known != known {
                    return;
                }
                match verdict {
                    _ if self.output.is_json() => {
                        let value = judged(&self.output, name, &hashed, verdict);
                        self.output.element(value);
                    }
                    _ if hashes => self.output.file(&path, &hashed),
                    Verdict::Matched(other) | Verdict::Moved(other) if self.which => {
                        self.output.line(&[name.as_os_str(), OsStr::new(" matches "), other.as_os_str()]);
                    }
                    _ => self.output.line(&[name.as_os_str()]),
                }
            }
            HashTask::List | HashTask::Duplicates => {}
        }
    }

    /// Finishes the output, stores appended lines, and returns the outcome. `left_out` is the number of
    /// entries that were skipped because they are damaged.
    ///
    /// # Errors
    /// If the audit failed, files could not be read, or the list could not be extended.
    pub fn finish(mut self, left_out: usize) -> Outcome {
        self.audit.unreadable += left_out as u64;
        let mut members = Map::new();
        match self.task {
            HashTask::Audit => self.finish_audit(&mut members),
            HashTask::Duplicates => self.finish_duplicates(&mut members),
            HashTask::List | HashTask::Select { .. } => {}
        }
        self.output.end(members);
        self.output.check()?;
        if let Some(append) = self.append {
            append.store()?;
        }
        let audit = &self.audit;
        if self.task == HashTask::Audit && !audit.passed() {
            let Audit { partial, moved, new, missing, unreadable, .. } = audit;
            return Err(Failure::plain(
                Code::AuditFailed,
                format!(
                    "the audit failed: {moved} moved, {new} new, {missing} missing, {partial} partially matched, \
                     {unreadable} unreadable"
                ),
            ));
        }
        match audit.unreadable {
            0 => Ok(()),
            n => Err(Failure::plain(Code::Unreadable, format!("{n} could not be read; the rest is done"))),
        }
    }

    fn finish_audit(&mut self, members: &mut Map<String, Value>) {
        let missing: Vec<&Path> = self.known.missing().collect();
        self.audit.missing = missing.len() as u64;
        if self.verbose >= 2 {
            for name in &missing {
                self.output.line(&[name.as_os_str(), OsStr::new(": Known file not used")]);
            }
        }
        let audit = self.audit;
        let verdict = if audit.passed() { "passed" } else { "failed" };
        self.output.line(&[OsStr::new(&format!("warpcrypt: Audit {verdict}"))]);
        let mut numbers = vec![];
        if self.verbose >= 2 {
            let examined = audit.matched + audit.partial + audit.moved + audit.new;
            numbers.push(("   Input files examined", examined));
            numbers.push(("  Known files expecting", self.known.len() as u64));
        }
        if self.verbose >= 1 {
            numbers.push(("          Files matched", audit.matched));
            numbers.push(("Files partially matched", audit.partial));
            numbers.push(("            Files moved", audit.moved));
            numbers.push(("        New files found", audit.new));
            numbers.push(("  Known files not found", audit.missing));
        }
        for (label, number) in numbers {
            self.output.line(&[OsStr::new(&format!("{label}: {number}"))]);
        }
        members.insert("missing".into(), missing.iter().map(|n| json::path(n)).collect());
        members.insert(
            "audit".into(),
            json!({
                "passed": audit.passed(), "matched": audit.matched, "partial": audit.partial, "moved": audit.moved,
                "new": audit.new, "missing": audit.missing, "unreadable": audit.unreadable,
            }),
        );
    }

    fn finish_duplicates(&mut self, members: &mut Map<String, Value>) {
        let groups = std::mem::take(&mut self.groups).groups;
        let mut several = groups.iter().filter(|(_, names)| names.len() > 1).peekable();
        let mut listed = Vec::new();
        while let Some((hashed, names)) = several.next() {
            names.iter().for_each(|name| self.output.line(&[name.as_os_str()]));
            if several.peek().is_some() {
                self.output.line(&[]);
            }
            let mut group = json_file(self.output.functions(), Path::new(""), hashed);
            if let Some(group) = group.as_object_mut() {
                group.remove("path");
                group.insert("files".into(), names.iter().map(|n| json::path(n)).collect());
            }
            listed.push(group);
        }
        members.insert("duplicates".into(), listed.into());
    }
}

impl Groups {
    fn add(&mut self, name: &Path, hashed: Hashed) {
        let key = (hashed.size, hashed.digests.clone());
        let at = *self.index.entry(key).or_insert(self.groups.len());
        if at == self.groups.len() {
            self.groups.push((hashed, Vec::new()));
        }
        self.groups[at].1.push(name.to_owned());
    }
}

/// Prints a file's verdict in an audit, depending on `verbose`.
fn audited(output: &mut Output, verbose: u8, name: &Path, hashed: &Hashed, verdict: Verdict) {
    if output.is_json() {
        let value = judged(output, name, hashed, verdict);
        return output.element(value);
    }
    let name = name.as_os_str();
    match verdict {
        Verdict::Matched(_) if verbose >= 3 => output.line(&[name, OsStr::new(": Ok")]),
        Verdict::Moved(other) if verbose >= 2 => {
            output.line(&[name, OsStr::new(": Moved from "), other.as_os_str()]);
        }
        Verdict::Partial(other) if verbose >= 2 => {
            output.line(&[name, OsStr::new(": Partially matches "), other.as_os_str()]);
        }
        Verdict::New if verbose >= 2 => output.line(&[name, OsStr::new(": No match")]),
        _ => {}
    }
}

/// A file with its verdict, as JSON.
fn judged(output: &Output, name: &Path, hashed: &Hashed, verdict: Verdict) -> Value {
    let (word, other) = match verdict {
        Verdict::Matched(_) => ("matched", None),
        Verdict::Moved(other) => ("moved", Some(other)),
        Verdict::Partial(other) => ("partial", Some(other)),
        Verdict::New => ("new", None),
    };
    let mut value = json_file(output.functions(), name, hashed);
    value["verdict"] = word.into();
    if let Some(other) = other {
        value["known"] = json::path(other).into();
    }
    value
}
