//! What a check found, for people and as JSON.

use crate::cli::{json, progress::counted};
use indicatif::HumanBytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{ffi::OsString, fmt::Write, path::Path};

/// What kind of finding it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// Something that the vault stored does not verify.
    Damaged,
    /// It did not, and it does again.
    Repaired,
    /// It did not, and was moved to the folder for what is set aside.
    SetAside,
    /// The content is older than the anchor says.
    Old,
    /// The anchor has it, and the vault does not.
    Lost,
    /// The vault has it, and the anchor does not.
    Added,
    /// It is something else than the anchor says.
    Exchanged,
    /// None of the vault's files.
    Stray,
    /// Left over from an unfinished write, or set aside before. It does no harm.
    LeftOver,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Damaged => "damaged",
            Kind::Repaired => "repaired",
            Kind::SetAside => "set aside",
            Kind::Old => "old",
            Kind::Lost => "lost",
            Kind::Added => "added",
            Kind::Exchanged => "exchanged",
            Kind::Stray => "stray",
            Kind::LeftOver => "left over",
        }
    }
}

/// What differs from an anchor.
const AGAINST_ANCHOR: [Kind; 4] = [Kind::Old, Kind::Lost, Kind::Added, Kind::Exchanged];

/// A finding.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// Where it is in the vault; of a name that cannot be read, its directory.
    pub path: OsString,
    /// First byte and the one after the last, where it is a part of a file's content.
    pub bytes: Option<(u64, u64)>,
    /// What kind it is.
    pub kind: Kind,
    /// Where it is in the store.
    pub stored: OsString,
    /// What is wrong.
    pub reason: String,
    /// Where the store has what was set aside of it.
    pub aside: Option<OsString>,
}

/// What was checked, and what was found.
#[derive(Default, Serialize, Deserialize)]
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
    /// Adds what another one has.
    pub fn add(&mut self, other: Report) {
        self.directories += other.directories;
        self.files += other.files;
        self.bytes += other.bytes;
        self.findings.extend(other.findings);
    }

    /// Puts the findings in order.
    pub fn sort(&mut self) {
        self.findings.sort();
    }

    /// How many findings are of a kind.
    pub fn number_of(&self, kind: Kind) -> usize {
        self.findings.iter().filter(|finding| finding.kind == kind).count()
    }

    /// How many findings an anchor led to.
    pub fn refused(&self) -> usize {
        AGAINST_ANCHOR.iter().map(|kind| self.number_of(*kind)).sum()
    }

    /// For people.
    pub fn text(&self, full: bool) -> String {
        let mut text = String::new();
        for Finding { path, bytes, kind, stored, reason, aside } in &self.findings {
            let range =
                bytes.map_or_else(String::new, |(from, end)| format!(", bytes {from} to {}", end - 1));
            // Writing to a string cannot fail. Debug formatting escapes what a terminal would obey.
            let _ = writeln!(text, "{:<10}{:?}{range}: {reason}", kind.name(), shown(path));
            let _ = writeln!(text, "          stored in {stored:?}");
            if let Some(aside) = aside {
                let _ = writeln!(text, "          set aside in {aside:?}");
            }
        }
        let scope = if full { "every byte" } else { "headers, names and trees" };
        let (directories, files) = (counted(self.directories, "directory"), counted(self.files, "file"));
        let counted = [&[Kind::Damaged, Kind::Repaired, Kind::SetAside], &AGAINST_ANCHOR[..]]
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

    /// As JSON.
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
            "damaged": self.number_of(Kind::Damaged),
            "repaired": self.number_of(Kind::Repaired),
            "set_aside": self.number_of(Kind::SetAside),
            "refused": self.refused(),
            "findings": self.findings.iter().map(finding).collect::<Value>(),
        });
        json::document("check", value)
    }
}

/// The root has no name of its own.
fn shown(path: &std::ffi::OsStr) -> &Path {
    Path::new(if path.is_empty() { "/".as_ref() } else { path })
}
