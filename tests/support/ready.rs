//! Whether this machine has what a test needs; if not, it is skipped aloud.

use std::{ffi::OsStr, fmt::Display, fs::OpenOptions, io::Write, path::PathBuf};

/// Prints a line that the test runner does not swallow.
pub fn say(line: impl Display) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether a mount can be had here and all `programs` are installed. Without them the test is skipped
/// aloud, or fails if `REQUIRE_FUSE=1`.
pub fn ready(programs: &[&str]) -> bool {
    let mut missing: Vec<String> =
        programs.iter().filter(|p| which(p).is_none()).map(|p| p.to_string()).collect();
    let root = rustix::process::geteuid().is_root();
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if device.is_err() || !root && which("fusermount3").is_none() {
        missing.push("/dev/fuse".into());
    }
    missing.is_empty() || skip(format!("needs {}", missing.join(", ")))
}

/// As `ready`, for a test that needs root.
pub fn ready_as_root(programs: &[&str]) -> bool {
    if rustix::process::geteuid().is_root() { ready(programs) } else { skip("needs root".into()) }
}

/// Says that the running test is skipped and returns false; with `REQUIRE_FUSE=1` fails.
pub fn skip(reason: String) -> bool {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    assert!(std::env::var_os("REQUIRE_FUSE").is_none_or(|v| v != "1"), "{name} cannot run: {reason}");
    say(format_args!("SKIPPED: {name}: {reason}"));
    false
}

/// Where a program lies, if it is installed.
pub fn which(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let extra = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&paths).chain(extra).map(|dir| dir.join(program.as_ref())).find(|p| p.is_file())
}
