//! The file of `--resume`: how far an interrupted check got, and its findings.

use super::{order::CheckPlace, report::CheckReport};
use crate::cli::{
    exit::{Code, Failure, Outcome},
    named_file,
};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use std::{io, path::Path};

/// Version of the file's format.
const VERSION: u32 = 1;

/// The state of an interrupted check.
#[derive(Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    vault: String,
    full: bool,
    /// The place up to which everything has been checked.
    pub last: Option<CheckPlace>,
    /// The report up to that place.
    pub report: CheckReport,
}

impl Saved {
    /// The state of a check of the vault with this id.
    pub fn new(vault: &str, full: bool, last: Option<CheckPlace>, report: CheckReport) -> Self {
        Saved { version: VERSION, vault: vault.to_owned(), full, last, report }
    }

    /// Reads the state that an interrupted check of the same kind left in `path`; `None` if there is no
    /// file.
    ///
    /// # Errors
    /// If the file cannot be read or comes from a different check. Also if it belongs to another user,
    /// who could make the check skip files.
    pub fn read(path: &Path, vault: &str, full: bool) -> Outcome<Option<Self>> {
        let text = match named_file::read_own(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|e| Failure::io(path.display(), &e))?,
        };
        match serde_json::from_slice::<Saved>(&text) {
            Ok(saved) if saved.version == VERSION && saved.vault == vault && saved.full == full => {
                Ok(Some(saved))
            }
            _ => Err(Failure::new(
                Code::Usage,
                format!(
                    "{} is not from an interrupted check of this vault with the same options",
                    path.display()
                ),
                "Name another file, or remove it to begin again.",
            )),
        }
    }

    /// Writes the state. Only the owner may read the file, because it contains the findings.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Outcome {
        let failed = |e: io::Error| Failure::io(path.display(), &e);
        let text = serde_json::to_vec(self).map_err(|e| failed(e.into()))?;
        named_file::replace(path, &text, Mode::RUSR | Mode::WUSR).map_err(failed)
    }
}
