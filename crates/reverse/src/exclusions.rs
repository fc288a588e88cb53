//! Nodes of the plain directory that a view leaves out: those that patterns name, and those on other
//! filesystems. Nothing here is part of the stored form, so other patterns change no byte of the rest.

use ignore::{
    Error, Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use std::{path::Path, str::from_utf8};
use thiserror::Error as ThisError;

/// Why a pattern is refused.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum PatternError {
    /// The pattern is empty.
    #[error("it is empty")]
    Empty,
    /// The pattern is not UTF-8.
    #[error("it is not UTF-8 (`?` stands for any one byte)")]
    NotUtf8,
    /// The pattern contains a zero byte, which no name does.
    #[error("it contains a zero byte")]
    ZeroByte,
    /// Git has no such syntax, or would never match it.
    #[error("{0}")]
    Syntax(String),
}

/// Patterns as in a gitignore file. Of several that match a node, the last one decides.
#[derive(Debug, Clone, Default)]
pub struct Patterns(Vec<String>);

impl Patterns {
    /// Adds a pattern. `#` and blanks have no special meaning in it.
    ///
    /// # Errors
    /// If the pattern is malformed.
    pub fn add(&mut self, pattern: &[u8]) -> Result<(), PatternError> {
        let pattern = from_utf8(pattern).map_err(|_| PatternError::NotUtf8)?;
        match pattern {
            "" => return Err(PatternError::Empty),
            _ if pattern.contains('\0') => return Err(PatternError::ZeroByte),
            _ => compile(&[pattern])?,
        };
        self.0.push(pattern.into());
        Ok(())
    }

    /// Adds a line of a gitignore file, without its line feed. It may be empty or a comment.
    ///
    /// # Errors
    /// If the line contains a malformed pattern.
    pub fn add_line(&mut self, line: &[u8]) -> Result<(), PatternError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match without_blanks(line) {
            [] | [b'#', ..] => Ok(()),
            pattern => self.add(pattern),
        }
    }

    /// The patterns in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// A line without the blanks at its end, except for those after a backslash.
fn without_blanks(line: &[u8]) -> &[u8] {
    let (mut end, mut at) = (0, 0);
    while at < line.len() {
        match line[at] {
            b' ' => at += 1,
            b'\\' => (at, end) = (at + 2, at + 2),
            _ => (at, end) = (at + 1, at + 1),
        }
    }
    &line[..end.min(line.len())]
}

/// Nodes that a view leaves out.
#[derive(Debug, Clone)]
pub struct Exclusions {
    patterns: Gitignore,
    one_filesystem: bool,
}

impl Exclusions {
    /// Leaves out the nodes that these patterns name, and, with `one_filesystem`, everything below
    /// directories on other filesystems.
    ///
    /// # Errors
    /// If the patterns are too large together.
    pub fn new(patterns: &Patterns, one_filesystem: bool) -> Result<Exclusions, PatternError> {
        let all: Vec<&str> = patterns.iter().collect();
        Ok(Exclusions { patterns: compile(&all)?, one_filesystem })
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty() && !self.one_filesystem
    }

    /// Whether directories on other filesystems appear empty.
    pub fn one_filesystem(&self) -> bool {
        self.one_filesystem
    }

    /// Whether patterns exclude this node, given that they do not exclude the directories above it. The
    /// path is below the plain directory.
    pub fn names(&self, path: &Path, is_dir: bool) -> bool {
        matches!(self.patterns.matched(path, is_dir), Match::Ignore(_))
    }

    /// Whether patterns exclude this node or a directory above it. The plain directory itself cannot be
    /// excluded.
    pub fn excludes(&self, path: &Path, is_dir: bool) -> bool {
        let below_root = path.ancestors().take_while(|path| !path.as_os_str().is_empty());
        // A pattern cannot include a node again if a directory above it is excluded.
        below_root.enumerate().any(|(above, path)| self.names(path, is_dir || above > 0))
    }
}

fn compile(patterns: &[&str]) -> Result<Gitignore, PatternError> {
    let refused = |e: Error| match e {
        Error::Glob { err, .. } => PatternError::Syntax(err),
        other => PatternError::Syntax(other.to_string()),
    };
    let mut builder = GitignoreBuilder::new("");
    builder.allow_unclosed_class(false);
    for pattern in patterns {
        builder.add_line(None, &translated(pattern)?).map_err(refused)?;
    }
    builder.build().map_err(refused)
}

/// The pattern in the syntax of [`GitignoreBuilder`], which reads a whole line of a file and, unlike Git,
/// takes braces for alternatives and a backslash in brackets for itself.
fn translated(pattern: &str) -> Result<String, PatternError> {
    let mut out = String::with_capacity(pattern.len() + 8);
    if pattern.starts_with('#') {
        out.push('\\');
    }
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                out.push(c);
                out.extend(rest.next());
            }
            '[' => {
                // Without an end, it is refused when it is parsed.
                let class = rest.as_str();
                let (class, after) = class.split_at(class_length(class));
                if class.contains('\\') {
                    return Err(PatternError::Syntax("a backslash in brackets is not supported".into()));
                }
                out.push(c);
                out.push_str(class);
                rest = after.chars();
            }
            '{' | '}' | ' ' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    Ok(out)
}

/// Length of a character class from behind its `[` up to and including its `]`; 0 if it has no end.
fn class_length(class: &str) -> usize {
    let start = usize::from(class.starts_with(['!', '^']));
    // A bracket in the first place means itself.
    let mut at = start + usize::from(class[start..].starts_with(']'));
    loop {
        let rest = &class[at..];
        let Some(next) = rest.find([']', '[']) else { return 0 };
        at += next + 1;
        if rest[next..].starts_with(']') {
            return at;
        }
        if let Some(name) = class[at..].strip_prefix(':') {
            at += name.find(":]").map_or(0, |end| 1 + end + 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    fn of_lines(text: &str) -> Exclusions {
        let mut patterns = Patterns::default();
        text.split('\n').for_each(|line| patterns.add_line(line.as_bytes()).expect(line));
        Exclusions::new(&patterns, false).expect("patterns")
    }

    fn excludes(text: &str, path: &[u8]) -> bool {
        let (path, is_dir) = path.strip_suffix(b"/").map_or((path, false), |path| (path, true));
        of_lines(text).excludes(Path::new(OsStr::from_bytes(path)), is_dir)
    }

    #[test]
    fn patterns_mean_what_they_mean_in_a_gitignore_file() {
        /// The pattern, then paths that it excludes and paths that it does not.
        type Case<'a> = (&'a str, &'a [&'a [u8]], &'a [&'a [u8]]);
        let cases: [Case; 17] = [
            ("a", &[b"a", b"a/", b"x/a", b"a/x", b"x/a/y/z"], &[b"ab", b"x/ba", b""]),
            ("/a", &[b"a", b"a/x"], &[b"x/a"]),
            ("a/", &[b"a/", b"x/a/", b"x/a/y"], &[b"a", b"x/a"]),
            ("a/b", &[b"a/b"], &[b"x/a/b", b"a/x/b"]),
            ("**/a/b", &[b"a/b", b"x/a/b"], &[b"a/x/b"]),
            ("a/**/b", &[b"a/b", b"a/x/y/b"], &[b"x/a/b"]),
            ("a/**", &[b"a/x", b"a/x/y"], &[b"a/", b"b"]),
            ("*.o\n!keep.o", &[b"x.o", b"d/x.o"], &[b"keep.o", b"d/keep.o"]),
            ("!a\na", &[b"a"], &[b"b"]),
            ("d\n!d/keep", &[b"d/keep"], &[]),
            ("*\n!/d\n!/d/keep", &[b"x", b"d/x", b"x/d/"], &[b"d/", b"d/keep"]),
            ("{a,b}", &[b"{a,b}"], &[b"a", b"b"]),
            ("x[[:digit:]{ ]", &[b"x1", b"x{", b"x "], &[b"x\\", b"x}"]),
            ("[]a]x[!]]", &[b"]xy", b"axy"], &[b"ax]"]),
            ("a?", &[b"a\xff", b"ab", b"\xff/ab"], &[b"a", "aé".as_bytes()]),
            ("*é*", &["xéy".as_bytes()], &[b"x\xe9y", b"x\xc3y"]),
            ("#a\n\\#b\n\\!c\n\nd  \ne\\ \nf\r", &[b"#b", b"!c", b"d", b"e ", b"f"], &[b"#a", b"d  ", b"e"]),
        ];
        for (text, excluded, included) in cases {
            for path in excluded {
                assert!(excludes(text, path), "{text:?} includes {:?}", String::from_utf8_lossy(path));
            }
            for path in included {
                assert!(!excludes(text, path), "{text:?} excludes {:?}", String::from_utf8_lossy(path));
            }
        }
    }

    #[test]
    fn nothing_is_special_at_the_ends_of_a_pattern_on_its_own() {
        let mut patterns = Patterns::default();
        for pattern in ["#recycle", "blank ", "two\nlines"] {
            patterns.add(pattern.as_bytes()).expect(pattern);
        }
        let exclusions = Exclusions::new(&patterns, false).expect("patterns");
        for name in ["#recycle", "blank ", "two\nlines"] {
            assert!(exclusions.excludes(Path::new(name), false), "{name:?}");
        }
        assert!(!exclusions.excludes(Path::new("blank"), false));
    }

    #[test]
    fn malformed_patterns_are_refused() {
        let refused = |pattern: &[u8]| Patterns::default().add(pattern).expect_err("a malformed pattern");
        for pattern in ["[a", "a[", "[]", "[!]", "[[:alpha:]", "[b-a]", "a\\", "[\\]]"] {
            assert!(matches!(refused(pattern.as_bytes()), PatternError::Syntax(_)), "{pattern}");
        }
        assert_eq!(refused(b""), PatternError::Empty);
        assert_eq!(refused(b"a\xff"), PatternError::NotUtf8);
        assert_eq!(refused(b"a\0b"), PatternError::ZeroByte);
    }
}
