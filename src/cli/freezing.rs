//! `freeze` and `thaw`: stop writes to the store of a mounted vault while it is copied.

use super::{
    args::FreezeArgs,
    exit::{Failure, Outcome},
    locking::{find, require_hearing, tell, tell_within},
    mounts::Mount,
    patience::patiently,
    progress::Spinner,
    signals::Interrupt,
};
use fuse::ControlCommand;
use rustix::{
    fs::{Mode, OFlags, open, syncfs},
    process::{Pid, Signal, kill_process},
};
use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread,
    time::Duration,
};

/// Interval for polling whether the command has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Added to the signal number for the exit code of a command killed by a signal, as shells do.
const BY_SIGNAL: i32 = 128;

/// Runs `freeze`.
pub fn freeze(args: &FreezeArgs) -> Outcome {
    let mount = find(&args.place)?;
    let interrupt = Interrupt::watch()?;
    let say = |command: &ControlCommand| tell_within(&mount, command, &interrupt.patience());
    let thaw = {
        let _spinner = Spinner::start("storing everything");
        if say(&ControlCommand::State)?.is_empty() {
            sync(&mount, &interrupt)?;
        }
        interrupt.check()?;
        // If this process goes away before it gets the answer, the mount thaws itself.
        let number = say(&ControlCommand::Freeze(args.timeout))?;
        // Mounts by older versions of the program return no number.
        ControlCommand::Thaw(number.parse().ok())
    };
    // If interrupted meanwhile, thaw again and do not run the command.
    interrupt.check().inspect_err(|_| drop(say(&thaw)))?;
    let Some((program, arguments)) = args.command.split_first() else { return Ok(()) };
    let (ended, thawed) = run_meanwhile(program, arguments, &interrupt, || say(&thaw).map(drop));
    interrupt.check()?;
    thawed.map_err(|e| {
        let what = format!("{}\nWhat the command copied may have changed meanwhile.", e.message);
        Failure { code: e.code, message: what }
    })?;
    let ended = ended.map_err(|e| Failure::io(program.display(), &e))?;
    match ended.code().or_else(|| ended.signal().map(|signal| BY_SIGNAL + signal)) {
        Some(0) | None => Ok(()),
        Some(code) => std::process::exit(code),
    }
}

/// Runs `thaw`.
pub fn thaw(place: &Path) -> Outcome {
    let mount = find(place)?;
    require_hearing(&mount)?;
    tell(&mount, &ControlCommand::Thaw(None)).map(drop)
}

/// Makes the kernel write back changes made through memory mappings. The mount's own process cannot do
/// this: it would wait for itself.
fn sync(mount: &Mount, interrupt: &Interrupt) -> Outcome {
    let target = mount.target.clone();
    // Open only a directory: something else may have taken its place.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let sync = move || Ok(syncfs(open(target, flags, Mode::empty())?)?);
    let synced = patiently(&interrupt.patience(), sync);
    interrupt.check()?;
    synced.map_err(|e| Failure::io(mount.target.display(), &e))
}

/// Runs a command and calls `thaw` when it ends, or immediately after a signal. Thawing does not wait
/// for the command, which may itself be waiting for the vault.
fn run_meanwhile(
    program: &OsString,
    arguments: &[OsString],
    interrupt: &Interrupt,
    thaw: impl FnOnce() -> Outcome,
) -> (io::Result<ExitStatus>, Outcome) {
    let mut command = Command::new(program);
    command.args(arguments);
    let child = Arc::new(AtomicI32::new(0));
    let (own, signals) = (child.clone(), interrupt.clone());
    // Spawn on a thread: a program inside the mount cannot even be started before the thaw.
    let run = thread::spawn(move || {
        let is_interrupted = || signals.flag().load(Ordering::SeqCst);
        if is_interrupted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut started = command.spawn()?;
        own.store(started.id().cast_signed(), Ordering::SeqCst);
        // The main thread may have called `end` before the process id was stored.
        if is_interrupted() {
            end(&own);
        }
        started.wait()
    });
    while !run.is_finished() && interrupt.check().is_ok() {
        thread::sleep(LOOK);
    }
    let thawed = thaw();
    if !run.is_finished() {
        end(&child);
    }
    let ended = run.join().unwrap_or_else(|_| Err(io::Error::other("an internal error")));
    (ended, thawed)
}

/// Sends SIGTERM to the program, if it was started.
fn end(child: &AtomicI32) {
    if let Some(pid) = Pid::from_raw(child.load(Ordering::SeqCst)) {
        // It may have exited just now.
        let _ = kill_process(pid, Signal::TERM);
    }
}
