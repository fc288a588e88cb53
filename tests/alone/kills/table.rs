//! The results, in numbers.

use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write};

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A file or chunk that cannot be opened or read.
    Unreadable,
    /// Confirmed data or names that are older than confirmed, or missing.
    Lost,
    /// Zeros that no program wrote, outside of confirmed data.
    Zeros,
    /// Bytes that belong to another file, another position, or a state before a truncation, or that
    /// nobody wrote.
    Foreign,
    /// An atomically replaced file that is neither the old nor the new version.
    Mixed,
    /// A call or a mount that failed although nothing was killed or full.
    Refused,
    /// A chunk that was being overwritten when the power cut tore its page: reported, as documented.
    Excepted,
}

impl Kind {
    const ALL: [(Kind, &str); 7] = [
        (Kind::Unreadable, "unreadable"),
        (Kind::Lost, "confirmed, lost"),
        (Kind::Zeros, "zeros never written"),
        (Kind::Foreign, "bytes never written"),
        (Kind::Mixed, "replaced, mixed"),
        (Kind::Refused, "refused"),
        (Kind::Excepted, "torn, reported"),
    ];
}

/// Faults of one kind: the number of files or calls, and of bytes.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Count {
    pub faults: u64,
    pub bytes: u64,
}

/// Results of one program's crashes on one filesystem.
#[derive(Clone, Default, Serialize)]
pub struct Tally {
    pub program: String,
    pub filesystem: String,
    /// "kills" or "cuts".
    pub crashes: String,
    pub count: u64,
    /// Crashes with faults.
    pub bad: u64,
    /// Confirmed writes, bytes and files that were compared.
    pub writes: u64,
    pub bytes: u64,
    pub files: u64,
    pub faults: BTreeMap<Kind, Count>,
    pub seconds: f64,
    /// Power cuts after which the store's own filesystem could not be mounted.
    pub no_store: u64,
    /// Descriptions of the first faults.
    pub details: Vec<String>,
}

impl Tally {
    const DETAILS: usize = 40;

    pub fn new(program: &str, filesystem: &str, crashes: &str) -> Tally {
        let [program, filesystem, crashes] = [program, filesystem, crashes].map(String::from);
        Tally { program, filesystem, crashes, ..Tally::default() }
    }

    pub fn fault(&mut self, kind: Kind, bytes: usize, what: String) {
        let count = self.faults.entry(kind).or_default();
        count.faults += 1;
        count.bytes += bytes as u64;
        if kind != Kind::Excepted && self.details.len() < Tally::DETAILS {
            self.details.push(format!("after {} {}: {kind:?}: {what}", self.count, self.crashes));
        }
    }

    /// Total number of faults, not counting excepted ones.
    pub fn fault_count(&self) -> u64 {
        self.faults.iter().filter(|(kind, _)| **kind != Kind::Excepted).map(|(_, c)| c.faults).sum()
    }
}

/// Formats the results as a Markdown table.
pub fn markdown(rows: &[Tally]) -> String {
    let mut out = String::from("| | crashes | with faults | files | writes confirmed | MiB confirmed |");
    Kind::ALL.iter().for_each(|(_, name)| write!(out, " {name} |").expect("a string"));
    out += " store not mounted | s each |\n";
    out += &format!("|{}\n", "---|".repeat(8 + Kind::ALL.len()));
    for row in rows {
        let mebibytes = row.bytes >> 20;
        write!(out, "| {}, {} | {} {} ", row.program, row.filesystem, row.count, row.crashes)
            .expect("a string");
        write!(out, "| {} | {} | {} | {mebibytes} |", row.bad, row.files, row.writes).expect("a string");
        for (kind, _) in Kind::ALL {
            match row.faults.get(&kind) {
                None => out += " 0 |",
                Some(c) => write!(out, " {} ({} bytes) |", c.faults, c.bytes).expect("a string"),
            }
        }
        writeln!(out, " {} | {:.2} |", row.no_store, row.seconds / row.count.max(1) as f64)
            .expect("a string");
    }
    out
}
