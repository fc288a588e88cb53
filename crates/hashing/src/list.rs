//! Lists of hashes, in the format of hashdeep, or of sha3sum and the other `*sum` programs.
//!
//! The hashdeep format has a header that names the functions; each line is `size,digest,…,name`. The other
//! format has lines `digest  name`. A name that would break its line is escaped as the `*sum` programs
//! do: the line begins with a backslash, and the name contains `\n`, `\r` and `\\`.

use crypto::hash::{Digest, Function};
use std::{
    ffi::OsString,
    io::{self, Write},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The first line of a hashdeep list.
const MAGIC: &[u8] = b"%%%% HASHDEEP-1.0";
/// Start of the second line.
const COLUMNS: &[u8] = b"%%%% size,";

/// A line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    /// The name as written in the list.
    pub path: PathBuf,
    /// In bytes, if the list contains sizes.
    pub size: Option<u64>,
    /// The digest for each requested function, if the list contains it.
    pub digests: Vec<Option<Digest>>,
}

/// Why a list cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// No column belongs to a requested function.
    #[error("the list has none of the hashes that are computed; it has: {0}")]
    OtherFunctions(String),
    /// A list without a header does not say which of several functions its digests belong to.
    #[error("the list does not name its hash function: select exactly one function")]
    Ambiguous,
    /// A line does not fit the format.
    #[error("line {0} is not a valid line of a hash list")]
    Line(usize),
}

/// The functions named in the header of a hashdeep list, without unknown ones. `None` for other lists, or
/// if no function is known.
pub fn functions_of(list: &[u8]) -> Option<Vec<Function>> {
    let header = columns(list)?;
    let names = header.iter().filter_map(|name| Function::from_name(name));
    Some(names.collect()).filter(|functions: &Vec<Function>| !functions.is_empty())
}

/// The names of the columns between size and name in a hashdeep list; `None` for other lists.
pub fn columns(list: &[u8]) -> Option<Vec<String>> {
    let mut lines = list.split(|b| *b == b'\n');
    let first = lines.next()?;
    if !first.starts_with(MAGIC) {
        return None;
    }
    let second = lines.next()?.strip_prefix(COLUMNS)?;
    let names: Vec<String> =
        second.split(|b| *b == b',').map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
    let (_, functions) = names.split_last()?;
    Some(functions.to_vec())
}

/// Parses the digests of these functions from a list.
///
/// # Errors
/// If the list contains none of their digests, or a line is malformed.
pub fn parse(list: &[u8], functions: &[Function]) -> Result<Vec<KnownFile>, ListError> {
    let header = columns(list);
    let wanted: Vec<Option<usize>> = match &header {
        Some(names) => {
            let place = |function: &Function| names.iter().position(|name| *name == function.name());
            let wanted: Vec<_> = functions.iter().map(place).collect();
            if wanted.iter().all(Option::is_none) {
                return Err(ListError::OtherFunctions(names.join(", ")));
            }
            wanted
        }
        None if functions.len() == 1 => vec![Some(0)],
        None => return Err(ListError::Ambiguous),
    };
    let skipped = |line: &[u8]| line.is_empty() || line.starts_with(b"#") || line.starts_with(b"%%%%");
    let lines = list.split(|b| *b == b'\n').enumerate().filter(|(_, line)| !skipped(line));
    lines
        .map(|(number, line)| {
            let file = match &header {
                Some(names) => hashdeep_line(line, names.len(), functions, &wanted),
                None => sum_line(line, &functions[0]),
            };
            file.ok_or(ListError::Line(number + 1))
        })
        .collect()
}

fn hashdeep_line(
    line: &[u8],
    columns: usize,
    functions: &[Function],
    wanted: &[Option<usize>],
) -> Option<KnownFile> {
    let (line, escaped) = unmarked(line);
    let mut fields = line.splitn(columns + 2, |b| *b == b',');
    let size = text(fields.next()?)?.parse().ok()?;
    let found: Vec<&str> = fields.by_ref().take(columns).map(text).collect::<Option<_>>()?;
    let path = name(fields.next()?, escaped)?;
    let digest = |(function, column): (&Function, &Option<usize>)| match column {
        Some(column) => Digest::from_hex(function.bits(), found.get(*column)?).map(Some),
        None => Some(None),
    };
    let digests = functions.iter().zip(wanted).map(digest).collect::<Option<_>>()?;
    Some(KnownFile { path, size: Some(size), digests })
}

fn sum_line(line: &[u8], function: &Function) -> Option<KnownFile> {
    let (line, escaped) = unmarked(line);
    let (digits, rest) = line.split_at_checked(usize::from(function.bits()).div_ceil(4))?;
    let digest = Digest::from_hex(function.bits(), text(digits)?)?;
    let path = name(rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?, escaped)?;
    Some(KnownFile { path, size: None, digests: vec![Some(digest)] })
}

fn unmarked(line: &[u8]) -> (&[u8], bool) {
    match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    }
}

fn text(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(field).ok()
}

fn name(field: &[u8], escaped: bool) -> Option<PathBuf> {
    if field.is_empty() {
        return None;
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' if escaped => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            _ => byte,
        });
    }
    Some(OsString::from_vec(plain).into())
}

/// Writes the header of a hashdeep list created in `folder`.
///
/// # Errors
/// The writer's.
pub fn write_header(out: &mut dyn Write, functions: &[Function], folder: &Path) -> io::Result<()> {
    let names = functions.iter().map(Function::name).collect::<Vec<_>>().join(",");
    // A line break would end the comment.
    let folder = folder.to_string_lossy().replace(['\n', '\r'], " ");
    out.write_all(MAGIC)?;
    writeln!(out, "\n%%%% size,{names},filename")?;
    writeln!(out, "## Invoked from: {folder}\n## $ warpcrypt hash -c {names}\n## ")
}

/// Writes a line of a hashdeep list.
///
/// # Errors
/// The writer's.
pub fn write_hashdeep(out: &mut dyn Write, size: u64, digests: &[Digest], path: &Path) -> io::Result<()> {
    let name = path.as_os_str().as_bytes();
    let escape = name.iter().any(|b| matches!(b, b'\n' | b'\r'));
    write!(out, "{}{size},", if escape { "\\" } else { "" })?;
    for digest in digests {
        write!(out, "{digest},")?;
    }
    write_name(out, name, escape)
}

/// Writes a line in the format of sha3sum.
///
/// # Errors
/// The writer's.
pub fn write_sum(out: &mut dyn Write, digest: &Digest, path: &Path) -> io::Result<()> {
    let name = path.as_os_str().as_bytes();
    let escape = name.iter().any(|b| matches!(b, b'\n' | b'\r' | b'\\'));
    write!(out, "{}{digest}  ", if escape { "\\" } else { "" })?;
    write_name(out, name, escape)
}

fn write_name(out: &mut dyn Write, name: &[u8], escape: bool) -> io::Result<()> {
    if !escape {
        out.write_all(name)?;
        return out.write_all(b"\n");
    }
    for byte in name {
        match byte {
            b'\n' => out.write_all(b"\\n")?,
            b'\r' => out.write_all(b"\\r")?,
            b'\\' => out.write_all(b"\\\\")?,
            byte => out.write_all(&[*byte])?,
        }
    }
    out.write_all(b"\n")
}
