//! `confined`: gives up rights as a mount's process does, or runs a command that gives up its own, then tries what that may not do,
//! and prints what was refused. Shows what is in force on this machine.

use super::{exit::Outcome, print, run_parsed};
use crate::fuse::{self, Reach};
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

/// The hidden command that it is started with.
pub const COMMAND: &str = "confined";
/// Files that no mount needs. Any user may read the second one.
const FOREIGN: [&str; 2] = ["/etc/shadow", "/etc/passwd"];
/// Any port of this machine.
const HERE: &str = "127.0.0.1:0";
/// No socket has this name.
const NO_SOCKET: &str = "/no-socket";

/// Runs `confined`, with a command and its arguments.
///
/// # Errors
/// The command's. The report is printed all the same, as the last line.
pub fn run(command: Vec<OsString>) -> Outcome {
    let done = if command.is_empty() {
        // The caller reads what is left in the report.
        let _ = fuse::confine(&Reach::default());
        Ok(())
    } else {
        run_parsed(iter::once(OsString::from("warpcrypt")).chain(command))
    };
    let opens = FOREIGN.iter().any(|file| File::open(file).is_ok());
    let program = Command::new("/bin/sh").args(["-c", ":"]).stdin(Stdio::null()).status();
    let network = TcpListener::bind(HERE).is_ok() || UdpSocket::bind(HERE).is_ok();
    let connection = UnixStream::connect(NO_SOCKET).map_err(|e| e.kind());
    // Without a name.
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
