//! What a check found, for people and as JSON.

use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};
use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

/// What kind of finding it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Something that the vault stored does not verify.
    Damaged,
    /// None of the vault's files.
    Stray,
    /// Left over from an unfinished write, or set aside. It does no harm.
    LeftOver,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Damaged => "damaged",
            Kind::Stray => "stray",
            Kind::LeftOver => "left over",
        }
    }
}

/// A finding.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Where it is in the vault; of a name that cannot be read, its directory.
    pub path: PathBuf,
    /// First byte and the one after the last, where it is a part of a file's content.
    pub bytes: Option<(u64, u64)>,
    /// What kind it is.
    pub kind: Kind,
    /// Where it is in the store.
    pub stored: PathBuf,
    /// What is wrong.
    pub reason: String,
}

/// What was checked, and what was found.
#[derive(Default)]
pub struct Report {
    /// Directories that were read.
    pub directories: u64,
    /// Files and other nodes.
    pub files: u64,
    /// Bytes of content: of all data, or of what was verified.
    pub bytes: u64,
    /// What was found.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Puts the findings in order.
    pub fn sort(&mut self) {
        self.findings.sort();
    }

    /// Findings that are damage.
    pub fn damaged(&self) -> usize {
        self.findings.iter().filter(|finding| finding.kind == Kind::Damaged).count()
    }

    /// For people.
    pub fn text(&self, full: bool) -> String {
        let mut text = String::new();
        for Finding { path, bytes, kind, stored, reason } in &self.findings {
            let range =
                bytes.map_or_else(String::new, |(from, end)| format!(", bytes {from} to {}", end - 1));
            // Writing to a string cannot fail. Debug formatting escapes what a terminal would obey.
            let _ = writeln!(text, "{:<10}{:?}{range}: {reason}", kind.name(), shown(path));
            let _ = writeln!(text, "          stored in {stored:?}");
        }
        let scope = if full { "every byte" } else { "headers, names and trees" };
        let (directories, files) = (HumanCount(self.directories), HumanCount(self.files));
        let found = match self.damaged() {
            0 => "nothing is damaged".to_owned(),
            number => format!("{number} damaged"),
        };
        text + &format!(
            "Checked {scope} of {directories} directories and {files} files ({}): {found}.\n",
            HumanBytes(self.bytes)
        )
    }

    /// As JSON.
    pub fn json(&self, full: bool) -> String {
        let finding = |f: &Finding| {
            json!({
                "kind": f.kind.name(),
                "path": shown(&f.path).to_string_lossy(),
                "stored": f.stored.to_string_lossy(),
                "first_byte": f.bytes.map(|(first, _)| first),
                "last_byte": f.bytes.map(|(_, end)| end - 1),
                "reason": f.reason,
            })
        };
        let value = json!({
            "version": 1,
            "full": full,
            "directories": self.directories,
            "files": self.files,
            "bytes": self.bytes,
            "damaged": self.damaged(),
            "findings": self.findings.iter().map(finding).collect::<Value>(),
        });
        format!("{value:#}\n")
    }
}

/// The root has no name of its own.
fn shown(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new("/") } else { path }
}
