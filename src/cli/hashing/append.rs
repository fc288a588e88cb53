//! Appends files to a list of known hashes.

use crate::cli::{
    exit::{Code, Failure, Outcome},
    named_file::{self, Links},
};
use crypto::hash::Function;
use hashing::{Hashed, list};
use rustix::fs::Mode;
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Mode of a new list, before the umask: it is not secret.
const MODE: Mode = Mode::from_raw_mode(0o666);

/// Lines to append to a list once everything is hashed.
pub struct Append {
    list: PathBuf,
    lines: Vec<u8>,
    /// Whether the list has a header that names its functions.
    with_header: bool,
}

impl Append {
    /// Prepares to append to a list with this content. An empty list gets a header.
    ///
    /// # Errors
    /// If the list's functions are not the computed ones in the same order.
    pub fn new(list: &Path, content: &[u8], functions: &[Function]) -> Outcome<Self> {
        let mut lines = Vec::new();
        let columns = list::columns(content);
        let with_header = content.is_empty() || columns.is_some();
        let names: Vec<String> = functions.iter().map(Function::name).collect();
        if columns.is_some_and(|columns| columns != names) {
            return Err(Failure::new(
                Code::Usage,
                format!("{}: the list has other hashes than those computed", list.display()),
                "Leave out -c to compute the list's own.",
            ));
        }
        if content.is_empty() {
            let folder = std::env::current_dir().unwrap_or_default();
            // Writing to a vector cannot fail, here and below.
            let _ = list::write_header(&mut lines, functions, &folder);
        } else if !content.ends_with(b"\n") {
            lines.push(b'\n');
        }
        Ok(Append { list: list.to_owned(), lines, with_header })
    }

    /// Adds the line of a file.
    pub fn add(&mut self, name: &Path, hashed: &Hashed) {
        let _ = match hashed.digests.first() {
            Some(digest) if !self.with_header => list::write_sum(&mut self.lines, digest, name),
            _ => list::write_hashdeep(&mut self.lines, hashed.size, &hashed.digests, name),
        };
    }

    /// Appends all lines or none.
    ///
    /// # Errors
    /// If the list cannot be written.
    pub fn store(self) -> Outcome {
        let write = || -> io::Result<()> {
            let mut file = named_file::append(&self.list, MODE, Links::of_caller())?;
            let before = file.metadata()?.len();
            let written = file.write_all(&self.lines).and_then(|()| file.sync_data());
            if written.is_err() {
                // A partial line would corrupt the first line of the next run. Keep the first error.
                let _ = file.set_len(before);
            }
            written
        };
        write().map_err(|e| Failure::plain(Code::Failed, format!("{}: {e}", self.list.display())))
    }
}
