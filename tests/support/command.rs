//! Commands with a time limit: a hang fails the test instead of blocking it.

use super::turns::Turn;
use std::{
    fs::File,
    io::{Read, Seek},
    os::unix::{fs::FileExt, process::CommandExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// The result of a command.
#[derive(Debug)]
pub struct Done {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Done {
    /// The exit code; -1 after a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// Copies a program to the place where a test will run it. A separate process does this. Otherwise, if
/// another thread started a command meanwhile, that command would inherit the copy open for writing, and
/// the kernel refuses to execute such a file (`ETXTBSY`).
pub fn copy_program(from: &Path, to: &Path) {
    ok(Command::new("cp").arg(from).arg(to), 60);
}

/// A running command in a separate process group. The whole group is killed on drop.
pub struct Running {
    child: Child,
    line: String,
    files: [File; 2],
    _turn: Option<Turn>,
}

impl Running {
    /// Starts a command. Its output goes to files, so a daemon that it leaves behind blocks nothing.
    pub fn start(command: &mut Command) -> Running {
        let turn = Turn::of(command);
        let mut running = Running::out_of_turn(command);
        running._turn = turn;
        running
    }

    /// Starts a command that creates a mount namespace without waiting for its turn, for a test that runs
    /// alone and unmounts meanwhile.
    pub fn out_of_turn(command: &mut Command) -> Running {
        let files = [(); 2].map(|()| tempfile::tempfile().expect("temporary file"));
        let [out, err] = [0, 1].map(|i: usize| Stdio::from(files[i].try_clone().expect("descriptor")));
        let line = shown(command);
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0).spawn();
        Running { child: child.unwrap_or_else(|e| panic!("{line}: {e}")), line, files, _turn: None }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the command to end, at most `limit`.
    pub fn finish(mut self, limit: Duration) -> Done {
        let Some(status) = ended(&mut self.child, limit) else {
            self.kill();
            let said = self.output(1);
            panic!("not done after {limit:?}: {}\n{said}", self.line);
        };
        Done { status, stdout: self.output(0).into_bytes(), stderr: self.output(1) }
    }

    /// Standard error so far.
    pub fn said(&self) -> String {
        let mut bytes = vec![0; 1 << 16];
        let len = self.files[1].read_at(&mut bytes, 0).expect("output");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    /// Whether the command ends on its own within `limit`.
    pub fn ends(&mut self, limit: Duration) -> bool {
        ended(&mut self.child, limit).is_some()
    }

    /// Kills the command and its children.
    pub fn kill(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }

    fn output(&mut self, which: usize) -> String {
        let mut bytes = Vec::new();
        self.files[which].rewind().expect("rewind");
        self.files[which].read_to_end(&mut bytes).expect("output");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill();
        }
    }
}

/// Waits for a process to end, at most `limit`; `None` if it does not.
pub fn ended(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().expect("wait") {
            return Some(status);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// A command line, shortened to 2000 characters.
fn shown(command: &Command) -> String {
    let line = format!("{command:?}");
    line.chars().take(2000).collect()
}

/// Runs a command to its end, for at most `seconds`.
pub fn run(command: &mut Command, seconds: u64) -> Done {
    Running::start(command).finish(Duration::from_secs(seconds))
}

/// Runs a command that must succeed and returns its standard output.
pub fn ok(command: &mut Command, seconds: u64) -> String {
    let line = shown(command);
    let done = run(command, seconds);
    assert!(done.status.success(), "{line}: {}\n{}\n{}", done.status, done.text(), done.stderr);
    done.text()
}

/// A shell script that stops at its first error, started in `dir`.
pub fn script(dir: impl AsRef<Path>, text: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-euc").arg(text).arg("sh").current_dir(dir).env("LC_ALL", "C");
    command
}

/// Runs a shell script that must succeed; `$1`, `$2`, … are `arguments`.
pub fn sh(dir: impl AsRef<Path>, text: &str, arguments: &[&Path], seconds: u64) -> String {
    ok(script(dir, text).args(arguments), seconds)
}
