//! The report of a check, as text and as JSON.

use crate::cli::{json, progress::counted};
use indicatif::HumanBytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{ffi::OsString, fmt::Write, path::Path};

/// The kind of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FlawKind {
    /// Stored data that fails verification.
    Damaged,
    /// It failed verification and has been repaired.
    Repaired,
    /// It was moved to the quarantine directory: it failed verification, or is not the vault's.
    SetAside,
    /// The content is older than the anchor's record.
    Old,
    /// Present in the anchor, missing from the vault.
    Lost,
    /// Present in the vault, missing from the anchor.
    Added,
    /// It is not the node that the anchor recorded.
    Exchanged,
    /// A file that does not belong to the vault.
    Stray,
    /// Left over from an unfinished write, or set aside earlier. It does no harm.
    LeftOver,
}

impl FlawKind {
    fn name(self) -> &'static str {
        match self {
            FlawKind::Damaged => "damaged",
            FlawKind::Repaired => "repaired",
            FlawKind::SetAside => "set aside",
            FlawKind::Old => "old",
            FlawKind::Lost => "lost",
            FlawKind::Added => "added",
            FlawKind::Exchanged => "exchanged",
            FlawKind::Stray => "stray",
            FlawKind::LeftOver => "left over",
        }
    }
}

/// The kinds that are differences from an anchor.
const AGAINST_ANCHOR: [FlawKind; 4] = [FlawKind::Old, FlawKind::Lost, FlawKind::Added, FlawKind::Exchanged];

/// A finding.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// Path in the vault; the parent directory if the name cannot be read.
    pub path: OsString,
    /// First byte and one past the last, if the finding concerns part of a file's content.
    pub bytes: Option<(u64, u64)>,
    /// The kind of the finding.
    pub kind: FlawKind,
    /// Path in the store.
    pub stored: OsString,
    /// Description of the problem.
    pub reason: String,
    /// Path in the store of the part that was set aside.
    pub aside: Option<OsString>,
}

/// The scope and the findings of a check.
#[derive(Default, Serialize, Deserialize)]
pub struct CheckReport {
    /// Number of directories read.
    pub directories: u64,
    /// Number of files and other nodes.
    pub files: u64,
    /// Bytes of content, holes not included.
    pub bytes: u64,
    /// All findings.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Adds the counts and findings of another report.
    pub fn add(&mut self, other: CheckReport) {
        self.directories += other.directories;
        self.files += other.files;
        self.bytes += other.bytes;
        self.findings.extend(other.findings);
    }

    /// Sorts the findings.
    pub fn sort(&mut self) {
        self.findings.sort();
    }

    /// Number of findings of this kind.
    pub fn number_of(&self, kind: FlawKind) -> usize {
        self.findings.iter().filter(|finding| finding.kind == kind).count()
    }

    /// Number of findings that are differences from an anchor.
    pub fn refused(&self) -> usize {
        AGAINST_ANCHOR.iter().map(|kind| self.number_of(*kind)).sum()
    }

    /// The report as text. `full` tells whether every byte was verified.
    pub fn text(&self, full: bool) -> String {
        let mut text = String::new();
        for Finding { path, bytes, kind, stored, reason, aside } in &self.findings {
            let range =
                bytes.map_or_else(String::new, |(from, end)| format!(", bytes {from} to {}", end - 1));
            // Writing to a string cannot fail. Debug formatting escapes terminal control sequences.
            let _ = writeln!(text, "{:<10}{:?}{range}: {reason}", kind.name(), shown(path));
            let _ = writeln!(text, "          stored in {stored:?}");
            if let Some(aside) = aside {
                let _ = writeln!(text, "          set aside in {aside:?}");
            }
        }
        let scope = if full { "every byte" } else { "headers, names and trees" };
        let (directories, files) = (counted(self.directories, "directory"), counted(self.files, "file"));
        let counted = [&[FlawKind::Damaged, FlawKind::Repaired, FlawKind::SetAside], &AGAINST_ANCHOR[..]]
            .concat()
            .into_iter()
            .map(|kind| (self.number_of(kind), kind.name()))
            .filter(|(number, _)| *number > 0)
            .map(|(number, name)| format!("{number} {name}"));
        let found = match Vec::from_iter(counted) {
            none if none.is_empty() => "nothing is damaged".to_owned(),
            some => some.join(", "),
        };
        text + &format!(
            "Checked {scope} of {directories} and {files} ({}): {found}.\n",
            HumanBytes(self.bytes)
        )
    }

    /// The report as JSON.
    pub fn json(&self, full: bool) -> String {
        let finding = |f: &Finding| {
            let mut value = json::path(shown(&f.path));
            json::put_name(&mut value, "stored", Path::new(&f.stored));
            json::put_if_named(&mut value, "aside", f.aside.as_ref().map(Path::new));
            value.insert("kind".into(), json!(f.kind.name()));
            value.insert("first_byte".into(), json!(f.bytes.map(|(first, _)| first)));
            value.insert("last_byte".into(), json!(f.bytes.map(|(_, end)| end - 1)));
            value.insert("reason".into(), json!(f.reason));
            Value::from(value)
        };
        let value = json!({
            "full": full,
            "directories": self.directories,
            "files": self.files,
            "bytes": self.bytes,
            "damaged": self.number_of(FlawKind::Damaged),
            "repaired": self.number_of(FlawKind::Repaired),
            "set_aside": self.number_of(FlawKind::SetAside),
            "refused": self.refused(),
            "findings": self.findings.iter().map(finding).collect::<Value>(),
        });
        json::document("check", value)
    }
}

/// The root's path is empty; show it as `/`.
fn shown(path: &std::ffi::OsStr) -> &Path {
    Path::new(if path.is_empty() { "/".as_ref() } else { path })
}
