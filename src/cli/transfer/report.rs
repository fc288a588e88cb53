//! The report of a copy: counts and problems.

use crate::cli::{
    exit::{Code, Failure, Outcome},
    json,
    progress::counted,
};
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
};

/// A node that was not copied, or only in part.
pub struct Problem {
    /// Its path.
    pub path: PathBuf,
    /// The missing bytes; `None` if the problem is not about part of the content.
    pub bytes: Option<Range<u64>>,
    /// Path of the rest of a damaged file.
    pub saved_as: Option<PathBuf>,
    /// Description of the problem.
    pub reason: String,
}

/// Counts and problems of a copy.
#[derive(Default)]
pub struct TransferReport {
    /// Regular files copied, damaged ones included.
    pub files: u64,
    /// Directories created.
    pub directories: u64,
    /// Links, FIFOs, sockets and devices created, and further names of files.
    pub others: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Nodes that were already present.
    pub present: u64,
    /// Nodes that could not be copied completely.
    pub problems: Vec<Problem>,
    /// Metadata that the target does not keep: how often, and why.
    pub not_kept: BTreeMap<String, (u64, String)>,
    /// FIFOs, sockets and devices that were left out, because a writer of the store may have planted
    /// them.
    pub special_left_out: u64,
    /// Number of names that do not verify.
    pub names_left_out: usize,
    /// Whether the copy was interrupted.
    pub interrupted: bool,
}

impl Problem {
    /// One line of text. Debug formatting escapes terminal control sequences.
    pub fn text(&self) -> String {
        let range =
            self.bytes.as_ref().map(|b| format!(", bytes {} to {}", b.start, b.end.saturating_sub(1)));
        let saved = self.saved_as.as_ref().map(|path| format!("; the rest is in {path:?}"));
        let (range, saved) = (range.unwrap_or_default(), saved.unwrap_or_default());
        format!("{:?}{range}: {}{saved}", shown(&self.path), self.reason)
    }

    fn json(&self) -> Value {
        let mut value = json::path(shown(&self.path));
        value.insert("first_byte".into(), json!(self.bytes.as_ref().map(|b| b.start)));
        value.insert("last_byte".into(), json!(self.bytes.as_ref().map(|b| b.end.saturating_sub(1))));
        json::put_if_named(&mut value, "saved_as", self.saved_as.as_deref());
        value.insert("reason".into(), json!(self.reason));
        value.into()
    }
}

impl TransferReport {
    /// Counts a property that was not kept.
    pub fn lose(&mut self, what: &str, why: String) {
        self.not_kept.entry(what.to_owned()).or_insert((0, why)).0 += 1;
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (what, (count, why)) in &self.not_kept {
            text += &format!("Not kept: {what:?} of {} ({why}).\n", HumanCount(*count));
        }
        if self.special_left_out > 0 {
            text += &format!(
                "Left out: {} pipes, sockets and devices (the store may have turned files into them; --trust-metadata copies them).\n",
                HumanCount(self.special_left_out)
            );
        }
        text + &format!(
            "Copied {} ({}), {} and {}; there already: {}.\n",
            counted(self.files, "file"),
            HumanBytes(self.bytes),
            counted(self.directories, "directory"),
            counted(self.others, "other"),
            HumanCount(self.present)
        )
    }

    /// The report as JSON.
    pub fn json(&self, command: &str) -> String {
        let not_kept = self
            .not_kept
            .iter()
            .map(|(what, (count, why))| json!({"what": what, "count": count, "reason": why}));
        let value = json!({
            "files": self.files,
            "directories": self.directories,
            "others": self.others,
            "bytes": self.bytes,
            "present": self.present,
            "problems": self.problems.iter().map(Problem::json).collect::<Value>(),
            "not_kept": not_kept.collect::<Value>(),
            "special_left_out": self.special_left_out,
            "names_left_out": self.names_left_out,
            "interrupted": self.interrupted,
        });
        json::document(command, value)
    }

    /// The outcome of the command.
    ///
    /// # Errors
    /// If something was not copied completely.
    pub fn judge(&self) -> Outcome {
        match self.problems.len() + self.names_left_out {
            0 => Ok(()),
            count => Err(Failure::new(
                Code::Unreadable,
                format!("{count} could not be copied whole"),
                "The messages before this one name them. The rest is copied.",
            )),
        }
    }
}

/// The root's path is empty; show it as `/`.
fn shown(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new("/") } else { path }
}
