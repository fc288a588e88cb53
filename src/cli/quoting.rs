//! Quotes paths in hints for a shell.

use std::{os::unix::ffi::OsStrExt, path::Path};

/// The path as one word of a shell command line. Quoted if it contains blanks or other characters
/// special to a shell.
pub fn shell_word(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(b);
    let text = path.to_str().filter(|text| !text.contains(char::is_control));
    match text {
        Some(text) if !bytes.is_empty() && bytes.iter().all(plain) => text.to_owned(),
        Some(text) => format!("'{}'", text.replace('\'', "'\\''")),
        None => format!("$'{}'", bytes.iter().map(|&b| escaped(b)).collect::<String>()),
    }
}

/// A byte inside `$'…'` quotes.
fn escaped(byte: u8) -> String {
    match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_shell_reads_the_path_again() {
        for (path, word) in [
            (&b"/mnt/plain-1.x"[..], "/mnt/plain-1.x"),
            (b"my vault", "'my vault'"),
            (b"it's", "'it'\\''s'"),
            (b"$HOME*", "'$HOME*'"),
            ("/\u{e9}".as_bytes(), "'/\u{e9}'"),
            (b"", "''"),
            (b"a\n'b", "$'a\\012\\'b'"),
            (b"\xff\\", "$'\\377\\\\'"),
        ] {
            assert_eq!(shell_word(Path::new(OsStr::from_bytes(path))), word);
        }
    }
}
