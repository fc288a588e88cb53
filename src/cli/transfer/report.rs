//! What was copied, and what could not be.

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

/// Something that was not copied, or only in part.
pub struct Problem {
    /// Where it is.
    pub path: PathBuf,
    /// The bytes that are missing; `None` if nothing of it was copied.
    pub bytes: Option<Range<u64>>,
    /// Where the rest of a damaged file is.
    pub saved_as: Option<PathBuf>,
    /// Why.
    pub reason: String,
}

/// Counts, and what went wrong.
#[derive(Default)]
pub struct Report {
    /// Regular files that were copied, also in part.
    pub files: u64,
    /// Directories that were made.
    pub directories: u64,
    /// Links, FIFOs, sockets and devices that were made, and further names of files.
    pub others: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// What was there already.
    pub present: u64,
    /// What could not be copied.
    pub problems: Vec<Problem>,
    /// What the target does not keep: how often, and why.
    pub not_kept: BTreeMap<String, (u64, String)>,
    /// FIFOs, sockets and devices that were not made, because a writer of the store may have put them there.
    pub special_left_out: u64,
    /// Names that do not verify.
    pub names_left_out: usize,
    /// Whether it ended before everything was copied.
    pub interrupted: bool,
}

impl Problem {
    /// A line for people. Debug formatting escapes what a terminal would obey.
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

impl Report {
    /// Notes that the target does not keep a property.
    pub fn lose(&mut self, what: &str, why: String) {
        self.not_kept.entry(what.to_owned()).or_insert((0, why)).0 += 1;
    }

    /// For people.
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

    /// As JSON.
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
    /// If something was not copied whole.
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

/// The root has no name of its own.
fn shown(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new("/") } else { path }
}
