//! Sources of passwords and keys: a prompt, a file, standard input, a command. Never an argument or the
//! environment, which other processes can read.

use super::{
    args::{NewPasswordArgs, NewSecretArgs, SecretArgs, UnlockArgs},
    exit::{Code, Failure, Outcome},
    quoting::shell_word,
    terminal,
};
use format::key_slot::{KEY_FILE_LEN, KeySlot, SlotKind};
use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
    process::{Command, Stdio},
};
use unicode_normalization::{UnicodeNormalization, is_nfc};
use vault::Unlock;
use zeroize::Zeroizing;

/// Maximum length of a password in bytes.
const PASSWORD_MAX: usize = 4096;

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A password or a key, wiped on drop.
pub type Bytes = Zeroizing<Vec<u8>>;

/// The kind of secret that the arguments select for a vault with these slots. A lone key file counts as
/// part of a combined secret if no slot opens with the key file by itself.
pub fn kind(args: &UnlockArgs, slots: &[KeySlot]) -> SlotKind {
    let SecretArgs { password_file, key_file, password_stdin, password_command } = &args.secret;
    let password = password_file.is_some() || *password_stdin || password_command.is_some();
    let has = |kind| slots.iter().any(|slot| slot.kind() == kind);
    match (args.recovery_key, key_file) {
        (true, _) => SlotKind::Recovery,
        (false, None) => SlotKind::Password,
        (false, Some(_)) if password || !has(SlotKind::KeyFile) && has(SlotKind::PasswordAndKeyFile) => {
            SlotKind::PasswordAndKeyFile
        }
        (false, Some(_)) => SlotKind::KeyFile,
    }
}

/// Obtains the secret of this kind that opens a vault. Prompts for anything that the arguments do not
/// provide.
pub fn unlock(args: &UnlockArgs, kind: SlotKind) -> Outcome<Unlock> {
    let password = || match password_of(&args.secret)? {
        Some(password) => Ok(password),
        None => Ok(normalized(into_bytes(terminal::ask("Password: ")?))),
    };
    Ok(match kind {
        SlotKind::Recovery => Unlock::Recovery(terminal::ask("Recovery key: ")?),
        SlotKind::Password => Unlock::Password(password()?),
        SlotKind::KeyFile => Unlock::KeyFile(key_file_of(&args.secret)?),
        SlotKind::PasswordAndKeyFile => {
            let content = key_file_of(&args.secret)?;
            Unlock::PasswordAndKeyFile(password()?, content)
        }
    })
}

/// Obtains the secret of a new vault. Prompts twice if the arguments name no source, or if `both`
/// requires a password in addition to the key file.
pub fn first(args: &SecretArgs, both: bool) -> Outcome<Unlock> {
    let password = match password_of(args)? {
        Some(password) => Some(checked_new(password)?),
        None if both || args.key_file.is_none() => Some(prompt_twice()?),
        None => None,
    };
    combined(password, args.key_file.as_deref())
}

/// Converts a password to Unicode normalization form C, so that the bytes are the same on every keyboard
/// and system. Bytes that are not UTF-8 stay as they are.
fn normalized(password: Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(&password) else { return password };
    if is_nfc(text) {
        return password;
    }
    // Form C has at most three times the bytes. Reserve them: a buffer that grew would leave a copy
    // behind.
    let mut composed = Zeroizing::new(String::with_capacity(3 * text.len()));
    composed.extend(text.nfc());
    into_bytes(composed)
}

/// Obtains a password that replaces another.
pub fn new_password(args: &NewPasswordArgs) -> Outcome<Bytes> {
    let bytes = if let Some(path) = &args.new_password_file {
        password_file(path)?
    } else if args.new_password_stdin {
        stdin_line()?
    } else if let Some(command) = &args.new_password_command {
        command_line(command)?
    } else {
        prompt_twice()?
    };
    checked_new(bytes)
}

/// Obtains a password, a key file, or both, for a new slot.
pub fn new_secret(args: &NewSecretArgs) -> Outcome<Unlock> {
    let NewPasswordArgs { new_password_file, new_password_stdin, new_password_command } = &args.password;
    let named = new_password_file.is_some() || *new_password_stdin || new_password_command.is_some();
    let password = match named || args.both || args.new_key_file.is_none() {
        true => Some(new_password(&args.password)?),
        false => None,
    };
    combined(password, args.new_key_file.as_deref())
}

/// The secret that replaces `present`. A new password alone replaces only the password of a combined
/// secret, and the key file stays.
pub fn in_place_of(present: &Unlock, new: Unlock) -> Unlock {
    match (new, present) {
        (Unlock::Password(new), Unlock::PasswordAndKeyFile(_, content)) => {
            Unlock::PasswordAndKeyFile(new, content.clone())
        }
        (new, _) => new,
    }
}

/// Combines a password and a key file, at least one of which is present.
fn combined(password: Option<Bytes>, file: Option<&Path>) -> Outcome<Unlock> {
    let content = file.map(key_file).transpose()?;
    Ok(match (password, content) {
        (Some(password), Some(content)) => Unlock::PasswordAndKeyFile(password, content),
        (Some(password), None) => Unlock::Password(password),
        (None, content) => Unlock::KeyFile(content.unwrap_or_default()),
    })
}

fn password_of(args: &SecretArgs) -> Outcome<Option<Bytes>> {
    Ok(if let Some(path) = &args.password_file {
        Some(password_file(path)?)
    } else if args.password_stdin {
        Some(stdin_line()?)
    } else if let Some(command) = &args.password_command {
        Some(command_line(command)?)
    } else {
        None
    })
}

fn key_file_of(args: &SecretArgs) -> Outcome<Bytes> {
    match &args.key_file {
        Some(path) => key_file(path),
        None => Err(Failure::new(Code::Usage, "a key file is needed", "Name it with --key-file.")),
    }
}

fn checked_new(password: Bytes) -> Outcome<Bytes> {
    match password.is_empty() {
        true => Err(Failure::new(Code::Usage, "the new password is empty", "Choose another one.")),
        false => Ok(password),
    }
}

fn prompt_twice() -> Outcome<Bytes> {
    for _ in 0..3 {
        let first = terminal::ask("New password: ")?;
        if first.is_empty() {
            eprintln!("The password must not be empty.");
            continue;
        }
        if *terminal::ask("The same again: ")? == *first {
            return Ok(normalized(into_bytes(first)));
        }
        eprintln!("The two passwords differ.");
    }
    Err(Failure::new(Code::Usage, "no new password was given", "Type the same password twice."))
}

fn into_bytes(mut text: Zeroizing<String>) -> Bytes {
    Zeroizing::new(std::mem::take(&mut *text).into_bytes())
}

fn password_file(path: &Path) -> Outcome<Bytes> {
    let shown = format!("password file {}", path.display());
    let bytes = read_file(path, &shown, PASSWORD_MAX + 2)?;
    one_line(bytes, &shown)
}

fn key_file(path: &Path) -> Outcome<Bytes> {
    let shown = format!("key file {}", path.display());
    let bytes = read_file(path, &shown, KEY_FILE_LEN.end() + 1)?;
    if KEY_FILE_LEN.contains(&bytes.len()) {
        return Ok(bytes);
    }
    Err(Failure::new(
        Code::Usage,
        format!("{shown}: {} bytes; a key file has 16 bytes to 1 MiB", bytes.len()),
        format!("Make one with: head -c 32 /dev/urandom > {}", shell_word(path)),
    ))
}

/// Reads at most `limit` bytes of a file. Callers pass more than they accept, so that they can reject
/// longer files.
fn read_file(path: &Path, shown: &str, limit: usize) -> Outcome<Bytes> {
    let mut file = File::open(path).map_err(|e| Failure::plain(Code::Failed, format!("{shown}: {e}")))?;
    read_up_to(&mut file, limit).map_err(|e| Failure::plain(Code::Failed, format!("{shown}: {e}")))
}

/// Reads into a buffer that never grows, so that no copy of a secret is left in freed memory.
fn read_up_to(source: &mut impl Read, limit: usize) -> io::Result<Bytes> {
    let mut bytes = Zeroizing::new(vec![0; limit]);
    let mut filled = 0;
    while filled < limit {
        match source.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Reads a line of standard input byte by byte, so that the rest is left for the next reader.
fn stdin_line() -> Outcome<Bytes> {
    let mut line = Zeroizing::new(Vec::with_capacity(PASSWORD_MAX + 2));
    let mut byte = Zeroizing::new([0]);
    while line.len() < PASSWORD_MAX + 2 {
        match rustix::io::read(rustix::stdio::stdin(), &mut byte[..]) {
            Ok(0) => break,
            Ok(_) => {
                line.push(byte[0]);
                if byte[0] == b'\n' {
                    break;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Failure::plain(Code::Failed, format!("standard input: {e}"))),
        }
    }
    one_line(line, "standard input")
}

fn command_line(command: &str) -> Outcome<Bytes> {
    let failed = |e: io::Error| Failure::plain(Code::Failed, format!("password command: {e}"));
    let mut child =
        Command::new("/bin/sh").args(["-c", command]).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let read = match child.stdout.take() {
        Some(mut out) => first_line(&mut out),
        None => Ok(Bytes::default()),
    };
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        return Err(Failure::new(
            Code::Failed,
            format!("the password command failed ({status})"),
            "Run it by hand to see why.",
        ));
    }
    one_line(read.map_err(failed)?, "the password command's output")
}

/// The first line of a command's output. Reads the rest too, so that the command does not fail on a
/// closed pipe.
fn first_line(out: &mut impl Read) -> io::Result<Bytes> {
    let mut line = read_up_to(out, PASSWORD_MAX + 2)?;
    if let Some(end) = line.iter().position(|&b| b == b'\n') {
        line.truncate(end + 1);
    }
    while !read_up_to(out, PASSWORD_MAX)?.is_empty() {}
    Ok(line)
}

/// Strips the line break. Rejects further lines: of a binary key, only the first line would be used.
fn one_line(mut bytes: Bytes, shown: &str) -> Outcome<Bytes> {
    // Some editors put a byte order mark at the beginning.
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    let problem = if bytes.is_empty() {
        "is empty"
    } else if bytes.len() > PASSWORD_MAX {
        "is longer than 4096 bytes"
    } else if bytes.contains(&b'\n') {
        "has more than one line"
    } else {
        return Ok(normalized(bytes));
    };
    Err(Failure::new(
        Code::Usage,
        format!("{shown} {problem}"),
        "A password is one line of 1 to 4096 bytes; for arbitrary bytes use --key-file.",
    ))
}

/// Sends a secret to another process: a byte for its kind, the length of its first part as 4 bytes in
/// big-endian order, that part, and the second part up to the end of the stream.
pub fn send(unlock: &Unlock, to: &mut impl Write) -> io::Result<()> {
    let (kind, first, second): (_, _, &[u8]) = match unlock {
        Unlock::Password(bytes) => (b'p', bytes.as_slice(), &[]),
        Unlock::KeyFile(bytes) => (b'k', bytes.as_slice(), &[]),
        Unlock::Recovery(text) => (b'r', text.as_bytes(), &[]),
        Unlock::PasswordAndKeyFile(password, content) => (b'b', password.as_slice(), content.as_slice()),
    };
    to.write_all(&[kind])?;
    to.write_all(&(first.len() as u32).to_be_bytes())?; // at most 1 MiB
    to.write_all(first)?;
    to.write_all(second)
}

/// Receives a secret sent by [`send`].
pub fn receive(from: &mut impl Read) -> io::Result<Unlock> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let all = read_up_to(from, 5 + PASSWORD_MAX + KEY_FILE_LEN.end() + 1)?;
    let ([kind, len @ ..], secret) = all.split_first_chunk::<5>().ok_or_else(malformed)?;
    let (first, second) = secret.split_at_checked(u32::from_be_bytes(*len) as usize).ok_or_else(malformed)?;
    let bytes = |part: &[u8]| Zeroizing::new(part.to_vec());
    match (kind, second) {
        (b'p', []) => Ok(Unlock::Password(bytes(first))),
        (b'k', []) => Ok(Unlock::KeyFile(bytes(first))),
        (b'r', []) => {
            let text = std::str::from_utf8(first).map_err(|_| malformed())?;
            Ok(Unlock::Recovery(Zeroizing::new(text.to_owned())))
        }
        (b'b', content) => Ok(Unlock::PasswordAndKeyFile(bytes(first), bytes(content))),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: &[u8]) -> Option<Vec<u8>> {
        one_line(Zeroizing::new(bytes.to_vec()), "x").ok().map(|b| b.to_vec())
    }

    #[test]
    fn a_password_is_one_line() {
        assert_eq!(line(b"secret\n").as_deref(), Some(&b"secret"[..]));
        assert_eq!(line(b"secret\r\n").as_deref(), Some(&b"secret"[..]));
        assert_eq!(line(b" a b ").as_deref(), Some(&b" a b "[..]));
        assert_eq!(line(b""), None);
        assert_eq!(line(b"\n"), None);
        assert_eq!(line(b"two\nlines\n"), None);
        assert_eq!(line(&[b'x'; PASSWORD_MAX]).map(|l| l.len()), Some(PASSWORD_MAX));
        assert_eq!(line(&[b'x'; PASSWORD_MAX + 1]), None);
    }

    #[test]
    fn a_password_is_the_same_however_its_characters_are_composed() {
        let decomposed = "Mu\u{308}ller \u{212b}\n";
        assert_eq!(line(decomposed.as_bytes()).as_deref(), Some("M\u{fc}ller \u{c5}".as_bytes()));
        assert_eq!(line("\u{feff}M\u{fc}ller".as_bytes()).as_deref(), Some("M\u{fc}ller".as_bytes()));
        assert_eq!(line("\u{feff}".as_bytes()), None);
        assert_eq!(line(b"\xff\xcc\x88").as_deref(), Some(&b"\xff\xcc\x88"[..]));
        // U+FB2C is the text that grows most.
        let most = "\u{fb2c}".repeat(1000);
        assert!(normalized(Zeroizing::new(most.clone().into_bytes())).len() <= 3 * most.len());
    }

    #[test]
    fn of_a_commands_output_the_first_line_counts() {
        let long = [b"first\n".as_slice(), &[b'x'; 3 * PASSWORD_MAX]].concat();
        let mut rest = &long[..];
        assert_eq!(*first_line(&mut rest).unwrap(), b"first\n");
        assert!(rest.is_empty());
        assert_eq!(*first_line(&mut &b"one"[..]).unwrap(), b"one");
        assert_eq!(*first_line(&mut &b"\nsecond"[..]).unwrap(), b"\n");
    }

    #[test]
    fn a_secret_passes_through_a_pipe() {
        let mut wire = Vec::new();
        send(&Unlock::KeyFile(Zeroizing::new(vec![0, 10, 255])), &mut wire).unwrap();
        assert!(matches!(receive(&mut &wire[..]).unwrap(), Unlock::KeyFile(b) if *b == [0, 10, 255]));
        let mut wire = Vec::new();
        let both = Unlock::PasswordAndKeyFile(b"word".to_vec().into(), vec![7; 20].into());
        send(&both, &mut wire).unwrap();
        let Unlock::PasswordAndKeyFile(password, content) = receive(&mut &wire[..]).unwrap() else {
            panic!()
        };
        assert_eq!((&password[..], &content[..]), (&b"word"[..], &[7; 20][..]));
        for bad in [&b"x\0\0\0\0"[..], b"", b"p\0\0\0\x05abc", b"p\0\0\0\x01ab", b"r\0\0\0\x01\xff"] {
            assert!(receive(&mut &*bad).is_err());
        }
    }
}
