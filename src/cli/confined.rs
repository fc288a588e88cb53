//! `confined`: gives up rights as a mount's process does, or runs a command that gives up its own. Then
//! it tries forbidden operations and prints which were refused, to show whether the confinement works on
//! this machine.

use super::{exit::Outcome, print, run_parsed};
use fuse::Reach;
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde_json::json;
use std::{
    ffi::OsString,
    fs::File,
    io, iter,
    net::{TcpListener, UdpSocket},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
};

/// The name of this hidden subcommand.
pub const COMMAND: &str = "confined";
/// Files that no mount needs. Every user may read the second one.
const FOREIGN: [&str; 2] = ["/etc/shadow", "/etc/passwd"];
/// Any local port.
const HERE: &str = "127.0.0.1:0";
/// A socket name that does not exist.
const NO_SOCKET: &str = "/no-socket";

/// Runs `confined`, with an optional command and its arguments.
///
/// # Errors
/// Those of the command. The report is printed in any case, as the last line.
pub fn run(command: Vec<OsString>) -> Outcome {
    let done = if command.is_empty() {
        // The report tells the caller what remains possible.
        let _ = fuse::confine(&Reach::default());
        Ok(())
    } else {
        run_parsed(iter::once(OsString::from("warpcrypt")).chain(command))
    };
    let opens = FOREIGN.iter().any(|file| File::open(file).is_ok());
    let program = Command::new("/bin/sh").args(["-c", ":"]).stdin(Stdio::null()).status();
    let network = TcpListener::bind(HERE).is_ok() || UdpSocket::bind(HERE).is_ok();
    let connection = UnixStream::connect(NO_SOCKET).map_err(|e| e.kind());
    // Creates an unnamed file.
    let writes = openat(CWD, ".", OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR).is_ok();
    let report = json!({
        "in_force": fuse::in_force().map(|all| all.json()),
        "refused": {
            "files": !opens,
            "programs": program.is_err(),
            "network": !network,
            "connections": connection.err() == Some(io::ErrorKind::PermissionDenied),
            "writing": !writes,
        },
    });
    print(&format!("{report}\n"))?;
    done
}
