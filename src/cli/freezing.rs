//! `freeze` and `thaw`: the store of a mounted vault is held still while it is copied.

use super::{
    args::FreezeArgs,
    exit::{Failure, Outcome},
    locking::{find, state, tell},
    mounts::Mount,
    progress::Spinner,
    signals::Interrupt,
};
use crate::fuse::ControlCommand;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::OsString,
    fs::File,
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

/// How often it is looked whether the command has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Added to the number of the signal that ended a command, as shells do.
const BY_SIGNAL: i32 = 128;

/// Runs `freeze`.
pub fn freeze(args: &FreezeArgs) -> Outcome {
    let mount = find(&args.place)?;
    let interrupt = Interrupt::watch()?;
    let thaw = {
        let _spinner = Spinner::start("storing everything");
        if state(&mount)?.is_empty() {
            sync(&mount)?;
        }
        interrupt.check()?;
        let number = tell(&mount, &ControlCommand::Freeze(args.timeout))?;
        // A mount by an older version of the program has no numbers.
        ControlCommand::Thaw(number.parse().ok())
    };
    // Who does not wait for it does not want it frozen, and wants no command.
    interrupt.check().inspect_err(|_| drop(tell(&mount, &thaw)))?;
    let Some((program, arguments)) = args.command.split_first() else { return Ok(()) };
    let (ended, thawed) = run_meanwhile(program, arguments, &interrupt, || tell(&mount, &thaw).map(drop));
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
    tell(&find(place)?, &ControlCommand::Thaw(None)).map(drop)
}

/// Has the kernel hand over what programs changed in mappings. The mount's own process could not: it would wait for itself.
fn sync(mount: &Mount) -> Outcome {
    let failed = |e: io::Error| Failure::io(mount.target.display(), &e);
    let root = File::open(&mount.target).map_err(failed)?;
    rustix::fs::syncfs(root).map_err(|e| failed(e.into()))
}

/// Runs a command, and `thaw`s the vault: when it ends, or at once after a signal. So it goes on even if the command waits
/// for the vault itself.
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
    // On a thread: a program that lies in the mount cannot even be started before the thaw.
    let run = thread::spawn(move || {
        let is_interrupted = || signals.flag().load(Ordering::SeqCst);
        if is_interrupted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut started = command.spawn()?;
        own.store(started.id().cast_signed(), Ordering::SeqCst);
        // Whoever waits for this thread may have looked for the program before it was there.
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

/// Ends a program, if it was started.
fn end(child: &AtomicI32) {
    if let Some(pid) = Pid::from_raw(child.load(Ordering::SeqCst)) {
        // It may have ended just now.
        let _ = kill_process(pid, Signal::TERM);
    }
}
