//! The file of `--resume`: how far an interrupted check came, and what it had found.

use super::{order::Place, report::Report};
use crate::cli::{
    exit::{Code, Failure, Outcome},
    named_file,
};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use std::{io, path::Path};

/// Version of the file.
const VERSION: u32 = 1;

/// How far a check came.
#[derive(Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    vault: String,
    full: bool,
    /// Everything up to here is done.
    pub last: Option<Place>,
    /// What that gave.
    pub report: Report,
}

impl Saved {
    /// Of a check of the vault with this id.
    pub fn new(vault: &str, full: bool, last: Option<Place>, report: Report) -> Self {
        Saved { version: VERSION, vault: vault.to_owned(), full, last, report }
    }

    /// What an interrupted check of the same kind left in `path`; `None` if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read, belongs to another user, who could have the check skip files, or is of another check.
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

    /// Writes it, for the owner alone: it names what was found.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Outcome {
        let failed = |e: io::Error| Failure::io(path.display(), &e);
        let text = serde_json::to_vec(self).map_err(|e| failed(e.into()))?;
        named_file::replace(path, &text, Mode::RUSR | Mode::WUSR).map_err(failed)
    }
}
