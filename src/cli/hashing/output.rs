//! What goes to standard output: lines, or one JSON document that grows with each file.

use super::names::Naming;
use crate::{
    cli::{args::HashArgs, exit::Outcome, unprinted},
    crypto::hash::{Digest, Function},
    hash::{Hashed, list},
};
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

/// Standard output, as the options want it.
pub struct Output {
    out: BufWriter<Stdout>,
    format: Format,
    functions: Vec<Function>,
    naming: Naming,
    /// A file stands in the JSON document already.
    begun: bool,
    /// Nobody reads any more.
    deaf: bool,
    /// Why, if it was not that whoever read has gone away.
    failed: Option<io::Error>,
}

impl Output {
    /// Nothing printed yet.
    pub fn new(args: &HashArgs, functions: Vec<Function>, naming: Naming) -> Self {
        let format = match (args.json, args.sum) {
            (true, _) => Format::Json,
            (_, true) => Format::Sum,
            _ => Format::Hashdeep,
        };
        let out = BufWriter::with_capacity(64 << 10, io::stdout());
        Output { out, format, functions, naming, begun: false, deaf: false, failed: None }
    }

    /// Whether nothing can be printed any more.
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// Fails if something could not be printed for another reason than that whoever read has gone away
    /// (`| head`).
    ///
    /// # Errors
    /// Standard output's.
    pub fn check(&self) -> Outcome {
        self.failed.as_ref().map_or(Ok(()), |e| Err(unprinted(e)))
    }

    /// Whether it is one JSON document.
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// The functions whose digests are printed.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The name of the file at `path`.
    pub fn shown<'p>(&self, path: &'p Path) -> &'p Path {
        self.naming.shown(path)
    }

    fn put(&mut self, put: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<()>) {
        if self.deaf {
            return;
        }
        if let Err(e) = put(&mut self.out) {
            self.deaf = true;
            self.failed = Some(e).filter(|e| e.kind() != io::ErrorKind::BrokenPipe);
        }
    }

    /// A line of text; nothing in JSON.
    pub fn line(&mut self, parts: &[&OsStr]) {
        if !self.is_json() {
            self.put(|out| {
                parts.iter().try_for_each(|part| out.write_all(part.as_bytes()))?;
                out.write_all(b"\n")
            });
        }
    }

    /// What stands before files with their digests.
    pub fn header(&mut self, with_digests: bool) {
        let functions = self.functions.clone();
        match self.format {
            Format::Hashdeep if with_digests => {
                let folder = std::env::current_dir().unwrap_or_default();
                self.put(|out| list::write_header(out, &functions, &folder));
            }
            Format::Json => {
                let names: Vec<String> = functions.iter().map(Function::name).collect();
                self.put(|out| write!(out, "{{\"functions\": {},\n\"files\": [", json!(names)));
            }
            _ => {}
        }
    }

    /// A file with its digests.
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

    /// An element of the JSON document's files; nothing in lines.
    pub fn element(&mut self, value: Value) {
        if self.is_json() {
            let comma = if std::mem::replace(&mut self.begun, true) { ",\n" } else { "\n" };
            self.put(|out| write!(out, "{comma}{value}"));
        }
    }

    /// Ends the JSON document with these members, and shows everything.
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

/// A file and its digests; a name that is no UTF-8 is there in hexadecimal digits too.
pub fn json_file(functions: &[Function], name: &Path, hashed: &Hashed) -> Value {
    let digest = |(function, digest): (&Function, &Digest)| (function.name(), json!(digest.to_string()));
    let digests: Map<String, Value> = functions.iter().zip(&hashed.digests).map(digest).collect();
    let mut file = json_name(name);
    file.insert("size".into(), json!(hashed.size));
    file.insert("digests".into(), digests.into());
    file.into()
}

/// A name as members of an object.
pub fn json_name(name: &Path) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("path".into(), json!(name.to_string_lossy()));
    if name.to_str().is_none() {
        let bytes = data_encoding::HEXLOWER.encode(name.as_os_str().as_bytes());
        object.insert("path_bytes".into(), json!(bytes));
    }
    object
}
