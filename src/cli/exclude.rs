//! The patterns of `--exclude` and `--exclude-from`.

use super::{
    args::MountArgs,
    exit::{Code, Failure, Outcome},
};
use reverse::{Exclusions, PatternError, Patterns};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// Maximum size of a file of patterns in bytes.
const FILE_MAX: usize = 1 << 20;
/// U+FEFF in UTF-8, which some editors put at the beginning of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Collects the patterns that the arguments name: those of files first, so that a pattern of the command
/// line decides over them.
///
/// # Errors
/// If a file cannot be read, or a pattern is malformed.
pub fn collect(args: &MountArgs) -> Outcome<Patterns> {
    let mut patterns = Patterns::default();
    for file in &args.exclude_from {
        add_file(&mut patterns, file)?;
    }
    for pattern in &args.exclude {
        let pattern = pattern.as_bytes();
        patterns.add(pattern).map_err(|e| malformed("--exclude", pattern, &e))?;
    }
    Ok(patterns)
}

/// The nodes that the arguments exclude, once their patterns have been collected.
///
/// # Errors
/// If the patterns are too large together.
pub fn exclusions(args: &MountArgs) -> Outcome<Exclusions> {
    Exclusions::new(&args.patterns, args.one_file_system)
        .map_err(|e| Failure::plain(Code::Usage, format!("all patterns together cannot be used: {e}")))
}

fn add_file(patterns: &mut Patterns, path: &Path) -> Outcome {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_MAX as u64 + 1).read_to_end(&mut text));
    read.map_err(|e| Failure::io(path.display(), &e))?;
    if text.len() > FILE_MAX {
        let what = format!("{}: more than 1 MiB of patterns", path.display());
        return Err(Failure::plain(Code::Usage, what));
    }
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let place = || format!("{}, line {number}", path.display());
        patterns.add_line(line).map_err(|e| malformed(&place(), line, &e))?;
    }
    Ok(())
}

fn malformed(place: &str, pattern: &[u8], error: &PatternError) -> Failure {
    // Nothing in it may control the terminal.
    let shown = String::from_utf8_lossy(pattern).replace(char::is_control, "\u{fffd}");
    Failure::new(
        Code::Usage,
        format!("{place}: the pattern `{shown}` cannot be used: {error}"),
        "Patterns have the syntax of gitignore files: see gitignore(5).",
    )
}

/// Sends patterns to another process: their length as 8 bytes in big-endian order, then the patterns,
/// each followed by a zero byte.
pub fn send(patterns: &Patterns, to: &mut impl Write) -> io::Result<()> {
    let all: Vec<u8> = patterns.iter().flat_map(|pattern| pattern.bytes().chain([0])).collect();
    to.write_all(&(all.len() as u64).to_be_bytes())?;
    to.write_all(&all)
}

/// Receives patterns sent by [`send`].
pub fn receive(from: &mut impl Read) -> io::Result<Patterns> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_be_bytes(length);
    let mut all = Vec::new();
    if from.take(length).read_to_end(&mut all)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut patterns = Patterns::default();
    for pattern in all.split(|&byte| byte == 0).filter(|pattern| !pattern.is_empty()) {
        patterns.add(pattern).map_err(io::Error::other)?;
    }
    Ok(patterns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_pass_through_a_pipe() {
        let mut patterns = Patterns::default();
        for pattern in ["a", "#b ", "!c\nd"] {
            patterns.add(pattern.as_bytes()).unwrap();
        }
        let mut wire = Vec::new();
        send(&patterns, &mut wire).unwrap();
        wire.extend_from_slice(b"rest");
        let mut from = &wire[..];
        assert!(receive(&mut from).unwrap().iter().eq(patterns.iter()));
        assert_eq!(from, b"rest");
        assert!(receive(&mut &wire[..10]).is_err());
    }
}
