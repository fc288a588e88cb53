//! Prompts on a terminal for a line that is not echoed.

use super::exit::{Code, Failure, Outcome};
use rpassword::ConfigBuilder;
use rustix::{
    fd::AsFd,
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr},
};
use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Read, Write},
};
use zeroize::Zeroizing;

/// The byte that Ctrl-C sends while the terminal does not turn it into a signal.
const CTRL_C: u8 = 3;
/// The error by which [`TypedBytes`] reports Ctrl-C to [`ask`]. No terminal fails with this error.
const CANCELLED: io::ErrorKind = io::ErrorKind::ConnectionAborted;

/// Shows `text` and reads a line. After Ctrl-C, the terminal is restored before the program ends.
///
/// # Errors
/// If there is no terminal, or the prompt was left with Ctrl-C or Ctrl-D.
pub fn ask(text: &str) -> Outcome<Zeroizing<String>> {
    let terminal = terminal().map_err(|_| {
        Failure::new(
            Code::Usage,
            "there is no terminal to ask for the password",
            "Name a source: --password-file, --key-file, --password-stdin or --password-command.",
        )
    })?;
    let failed = |e: io::Error| Failure::plain(Code::Failed, format!("the terminal: {e}"));
    let keys = TypedBytes(terminal.try_clone().map_err(failed)?);
    let quiet = Quiet::begin(&terminal).map_err(failed)?;
    say(&terminal, text);
    let config = ConfigBuilder::new().input_reader(keys).output_discard().build();
    let line = rpassword::read_password_with_config(config).map(Zeroizing::new);
    say(&terminal, "\n");
    drop(quiet);
    line.map_err(|e| match e.kind() {
        CANCELLED => Failure::interrupted(),
        io::ErrorKind::UnexpectedEof => Failure::plain(Code::Usage, "nothing was typed"),
        _ => failed(e),
    })
}

/// The terminal of the process, or standard input if that is a terminal: after `su` and in some
/// containers nothing else is available.
fn terminal() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty").or_else(|e| {
        let input = io::stdin();
        if input.is_terminal() { Ok(input.as_fd().try_clone_to_owned()?.into()) } else { Err(e) }
    })
}

/// Falls back to standard error: standard input may be open for reading only.
fn say(mut terminal: &File, text: &str) {
    if terminal.write_all(text.as_bytes()).is_err() {
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// The typed bytes. Fails at Ctrl-C, because rpassword would raise a signal and leave the terminal
/// without echo.
struct TypedBytes(File);

impl Read for TypedBytes {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.0.read(buf)?;
        if buf[..len].contains(&CTRL_C) { Err(CANCELLED.into()) } else { Ok(len) }
    }
}

/// While it exists, the terminal echoes nothing and passes on every key.
struct Quiet<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Quiet<'a> {
    fn begin(terminal: &'a File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG;
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(terminal, OptionalActions::Now, &quiet)?;
        Ok(Quiet { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        // Best effort: the terminal may be gone.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}
