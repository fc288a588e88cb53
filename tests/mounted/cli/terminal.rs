//! Runs a program on a new terminal.

use crate::support::{command::ended, mounted::program_path, waiting::NEVER};
use parking_lot::Mutex;
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, tcgetattr},
};
use std::{
    fs::File,
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

/// Types the lines into a terminal that runs the program. Returns the exit code and all output.
pub fn typed(lines: &[&str], args: &[&str]) -> (i32, String) {
    typed_to(lines, &program(args))
}

/// The program with these arguments, quoted for a shell.
pub fn program(args: &[&str]) -> String {
    let quoted: Vec<String> = args.iter().map(|a| format!("'{a}'")).collect();
    format!("{} {}", program_path().display(), quoted.join(" "))
}

/// Runs a shell command line on a terminal and types each of `lines` at its prompt. Returns the exit
/// code and everything displayed.
pub fn typed_to(lines: &[&str], line: &str) -> (i32, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
    let mut master = File::from(master);
    let mut child = start(&master, line);
    let shown = Mutex::new(Vec::new());
    let status = thread::scope(|scope| {
        let (mut screen, shown) = (master.try_clone().expect("descriptor"), &shown);
        scope.spawn(move || {
            let mut piece = [0; 4096];
            // Fails once no process has the terminal open.
            while let Ok(len @ 1..) = screen.read(&mut piece) {
                shown.lock().extend_from_slice(&piece[..len]);
            }
        });
        let mut seen = 0;
        for typed in lines {
            wait_for_prompt(&master, &mut child, || shown.lock()[seen..].trim_ascii_end().ends_with(b":"));
            seen = shown.lock().len();
            write!(master, "{typed}\r").expect("typing");
        }
        let status = ended(&mut child, NEVER);
        if status.is_none() {
            child.kill().expect("kill");
        }
        status
    });
    let shown = String::from_utf8_lossy(&shown.into_inner()).into_owned();
    let code = status.and_then(|status| status.code());
    (code.unwrap_or_else(|| panic!("no end, or by a signal: {shown}")), shown)
}

/// Starts the line. Only the child has the terminal's slave end open, so reads end with it.
fn start(master: &File, line: &str) -> Child {
    let name = ptsname(master, Vec::new()).expect("a name").into_string().expect("a name");
    let options = |file: &mut std::fs::OpenOptions| {
        file.read(true).write(true).custom_flags(libc::O_NOCTTY).open(&name)
    };
    let open = || options(&mut File::options()).expect("a terminal");
    Command::new("setsid")
        .args(["--ctty", "--wait", "sh", "-c", line])
        .stdin(open())
        .stdout(open())
        .stderr(open())
        .spawn()
        .expect("setsid")
}

/// Waits until the program has turned echo off, which discards all earlier input.
fn wait_for_prompt(terminal: &File, child: &mut Child, is_asked: impl Fn() -> bool) {
    let end = Instant::now() + NEVER;
    let echoes = || tcgetattr(terminal).expect("modes").local_modes.contains(LocalModes::ECHO);
    while !is_asked() || echoes() {
        if matches!(child.try_wait(), Ok(Some(_))) || Instant::now() > end {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
