//! The standard output of `hash`: lines, or one JSON document that is written incrementally.

use super::names::Naming;
use crate::cli::{args::HashArgs, exit::Outcome, json, unprinted};
use crypto::hash::{Digest, Function};
use hashing::{Hashed, list};
use serde_json::{Map, Value, json};
use std::{
    ffi::OsStr,
    io::{self, BufWriter, Stdout, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Hashdeep,
    Sum,
    Json,
}

/// Standard output in the requested format.
pub struct Output {
    out: BufWriter<Stdout>,
    format: Format,
    functions: Vec<Function>,
    naming: Naming,
    /// Whether the JSON document already has an element.
    begun: bool,
    /// Whether no more output is possible.
    closed: bool,
    /// The error that closed the output; `None` if the reader went away.
    failed: Option<io::Error>,
}

impl Output {
    /// Prints nothing yet.
    pub fn new(args: &HashArgs, functions: Vec<Function>, naming: Naming) -> Self {
        let format = match (args.json, args.sum) {
            (true, _) => Format::Json,
            (_, true) => Format::Sum,
            _ => Format::Hashdeep,
        };
        let out = BufWriter::with_capacity(64 << 10, io::stdout());
        Output { out, format, functions, naming, begun: false, closed: false, failed: None }
    }

    /// Whether no more output is possible.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Checks that everything was printed. A reader that has gone away (`| head`) does not count as an
    /// error.
    ///
    /// # Errors
    /// If writing to standard output failed.
    pub fn check(&self) -> Outcome {
        self.failed.as_ref().map_or(Ok(()), |e| Err(unprinted(e)))
    }

    /// Whether the output is a JSON document.
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// The functions whose digests are printed.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The name shown for the file at `path`.
    pub fn shown<'p>(&self, path: &'p Path) -> &'p Path {
        self.naming.shown(path)
    }

    fn put(&mut self, put: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<()>) {
        if self.closed {
            return;
        }
        if let Err(e) = put(&mut self.out) {
            self.closed = true;
            self.failed = Some(e).filter(|e| e.kind() != io::ErrorKind::BrokenPipe);
        }
    }

    /// Prints a line of text, unless the output is a JSON document.
    pub fn line(&mut self, parts: &[&OsStr]) {
        if !self.is_json() {
            self.put(|out| {
                parts.iter().try_for_each(|part| out.write_all(part.as_bytes()))?;
                out.write_all(b"\n")
            });
        }
    }

    /// Prints the header. `with_digests` tells whether digests will be printed.
    pub fn header(&mut self, with_digests: bool) {
        let functions = self.functions.clone();
        match self.format {
            Format::Hashdeep if with_digests => {
                let folder = std::env::current_dir().unwrap_or_default();
                self.put(|out| list::write_header(out, &functions, &folder));
            }
            Format::Json => {
                let names: Vec<String> = functions.iter().map(Function::name).collect();
                self.put(|out| {
                    out.write_all(b"{")?;
                    let mut members = json::head("hash");
                    members.insert("functions".to_owned(), json!(names));
                    members.iter().try_for_each(|(key, value)| writeln!(out, "{}: {value},", json!(key)))?;
                    out.write_all(b"\"files\": [")
                });
            }
            _ => {}
        }
    }

    /// Prints a file and its digests.
    pub fn file(&mut self, path: &Path, hashed: &Hashed) {
        let name = self.naming.shown(path);
        match self.format {
            Format::Hashdeep => {
                self.put(|out| list::write_hashdeep(out, hashed.size, &hashed.digests, name));
            }
            Format::Sum => {
                let Some(digest) = hashed.digests.first() else { return };
                self.put(|out| list::write_sum(out, digest, name));
            }
            Format::Json => self.element(json_file(&self.functions, name, hashed)),
        }
    }

    /// Appends an element to the `files` array of a JSON document.
    pub fn element(&mut self, value: Value) {
        if self.is_json() {
            let comma = if std::mem::replace(&mut self.begun, true) { ",\n" } else { "\n" };
            self.put(|out| write!(out, "{comma}{value}"));
        }
    }

    /// Closes a JSON document with these additional members, and flushes the output.
    pub fn end(&mut self, members: Map<String, Value>) {
        if self.is_json() {
            self.put(|out| {
                out.write_all(b"\n]")?;
                members.iter().try_for_each(|(key, value)| write!(out, ",\n{}: {value}", json!(key)))?;
                out.write_all(b"}\n")
            });
        }
        self.put(BufWriter::flush);
    }
}

/// A file and its digests, as JSON.
pub fn json_file(functions: &[Function], name: &Path, hashed: &Hashed) -> Value {
    let digest = |(function, digest): (&Function, &Digest)| (function.name(), json!(digest.to_string()));
    let digests: Map<String, Value> = functions.iter().zip(&hashed.digests).map(digest).collect();
    let mut file = json::path(name);
    file.insert("size".into(), json!(hashed.size));
    file.insert("digests".into(), digests.into());
    file.into()
}
