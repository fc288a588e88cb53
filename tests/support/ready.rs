//! Checks whether this machine has what a test needs; if not, the test is skipped with a message.

use std::{ffi::OsStr, fmt::Display, fs::OpenOptions, io::Write, path::PathBuf};

/// Prints a line that the test runner does not capture.
pub fn say(line: impl Display) {
    // Ignore a closed standard error.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether this machine can mount and has all `programs`. If not, the test is skipped with a message, or
/// fails if `REQUIRE_FUSE` is set: to `1`, or to `user` if an ordinary user runs the tests.
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

/// As `ready`, for a test that needs root. `REQUIRE_FUSE=user` allows skipping it.
pub fn ready_as_root(programs: &[&str]) -> bool {
    if rustix::process::geteuid().is_root() {
        return ready(programs);
    }
    if required("user") {
        say(format_args!("SKIPPED: {}: needs root", test_name()));
        return false;
    }
    skip("needs root".into())
}

/// Reports that the running test is skipped and returns false. Fails if `REQUIRE_FUSE` is set.
pub fn skip(reason: String) -> bool {
    let name = test_name();
    assert!(!required("1") && !required("user"), "{name} cannot run: {reason}");
    say(format_args!("SKIPPED: {name}: {reason}"));
    false
}

fn required(by: &str) -> bool {
    std::env::var_os("REQUIRE_FUSE").is_some_and(|value| value == by)
}

/// Name of the running test; only valid on its main thread.
pub fn test_name() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

/// Path of a program, if it is installed.
pub fn which(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let extra = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&paths).chain(extra).map(|dir| dir.join(program.as_ref())).find(|p| p.is_file())
}
