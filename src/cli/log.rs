//! Writes a mount's log to a file, the system log, or standard error.

use super::{
    named_file::{self, Links},
    note,
};
use format::printable::printable;
use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::fs::Mode;
use std::{
    env,
    fs::{self, File},
    io::Write,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

/// The socket of the system log: syslog, or the journal in its place.
const SYSLOG: &str = "/dev/log";
/// The facility "daemon" of RFC 5424, shifted into place.
const FACILITY: u8 = 3 << 3;

enum LogSink {
    StandardError,
    File(File),
    Syslog(UnixDatagram),
}

struct Logger(LogSink);

/// Logs warnings to standard error from now on.
pub fn to_standard_error() {
    install(LogSink::StandardError, LevelFilter::Warn);
}

/// Logs to `file` if given and usable, else to standard error. Returns whether the log is a file.
pub fn in_foreground(file: Option<&Path>, links: Links) -> bool {
    let file = named(file, links, "standard error");
    let is_file = file.is_some();
    install(file.unwrap_or(LogSink::StandardError), LevelFilter::Info);
    is_file
}

/// Logs to `file` if given, else to the system log, else to a file in the user's state directory. Each
/// one that cannot be opened is reported on standard error. The mount continues even without a log.
pub fn in_background(file: Option<&Path>, links: Links) {
    let sink = named(file, links, "the system's log")
        .or_else(|| usual().inspect_err(|e| note(format_args!("the mount has no log: {e}"))).ok());
    if let Some(sink) = sink {
        install(sink, LevelFilter::Info);
    }
}

/// The default log of a mount in the background.
fn usual() -> Result<LogSink, String> {
    match syslog() {
        Some(socket) => Ok(LogSink::Syslog(socket)),
        None => state_file().and_then(|path| open(&path, Links::of_caller())).map(LogSink::File),
    }
}

/// Checks whether a mount in the background has a default log. May create an empty log file.
///
/// # Errors
/// The reason why it has none.
pub fn try_usual() -> Result<(), String> {
    usual().map(|_| ())
}

/// Opens the file that the user named. If that fails, reports it and names the log used `instead`.
fn named(file: Option<&Path>, links: Links, instead: &str) -> Option<LogSink> {
    let opened = open(file?, links);
    opened.inspect_err(|e| note(format_args!("{e}: {instead} is used instead"))).ok().map(LogSink::File)
}

/// Installs the logger. Only the first call has an effect.
fn install(sink: LogSink, level: LevelFilter) {
    static LOGGER: OnceLock<Logger> = OnceLock::new();
    if log::set_logger(LOGGER.get_or_init(|| Logger(sink))).is_ok() {
        log::set_max_level(level);
    }
}

fn syslog() -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(SYSLOG).ok()?;
    Some(socket)
}

fn open(path: &Path, links: Links) -> Result<File, String> {
    let opened = named_file::append(path, Mode::RUSR | Mode::WUSR, links);
    opened.map_err(|e| format!("log file {}: {e}", path.display()))
}

/// `$XDG_STATE_HOME/warpcrypt/warpcrypt.log`, by default below `~/.local/state`. For root,
/// `/var/log/warpcrypt.log`.
fn state_file() -> Result<PathBuf, String> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    if rustix::process::geteuid().is_root() {
        return Ok("/var/log/warpcrypt.log".into());
    }
    let dir = state.ok_or("there is no home directory for it")?.join("warpcrypt");
    fs::create_dir_all(&dir).map_err(|e| format!("log directory {}: {e}", dir.display()))?;
    Ok(dir.join("warpcrypt.log"))
}

impl Log for Logger {
    /// Enables all messages of this program, and warnings of libraries. Excludes fuser's warnings about
    /// replies: it logs one for every interrupt whose request had already been answered.
    fn enabled(&self, metadata: &Metadata) -> bool {
        let target = metadata.target();
        target.starts_with("warpcrypt") || metadata.level() <= Level::Warn && target != "fuser::reply"
    }

    /// Ignores errors: a failing log must not fail the mount.
    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // A file name with a line break must not forge a log line.
        let (pid, text) = (std::process::id(), printable(&record.args().to_string()));
        let _ = match &self.0 {
            LogSink::StandardError => writeln!(std::io::stderr(), "warpcrypt: {text}"),
            LogSink::File(file) => {
                let line =
                    format!("{} warpcrypt[{pid}] {}: {text}\n", utc(SystemTime::now()), record.level());
                (&mut &*file).write_all(line.as_bytes())
            }
            LogSink::Syslog(socket) => {
                let priority = FACILITY | severity(record.level());
                socket.send(format!("<{priority}>warpcrypt[{pid}]: {text}").as_bytes()).map(|_| ())
            }
        };
    }

    fn flush(&self) {}
}

/// Maps to a severity of RFC 5424.
fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// A time in the format of RFC 3339, in UTC, to the second.
pub fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The Gregorian date of a day counted from 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let (mut year, mut rest) = (1970, days);
    while rest >= 365 + u64::from(leap(year)) {
        rest -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    (year, month, rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_utc() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(printable("a\nb\u{1b}[31m"), "a\u{fffd}b\u{fffd}[31m");
    }
}
