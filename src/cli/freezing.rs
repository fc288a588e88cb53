//! `freeze` and `thaw`: the store of a mounted vault is held still while it is copied.

use super::{
    args::FreezeArgs,
    exit::{Failure, Outcome},
    locking::{find, require_hearing, tell, tell_within},
    mounts::Mount,
    patience::patiently,
    progress::Spinner,
    signals::Interrupt,
};
use crate::fuse::ControlCommand;
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

/// How often it is looked whether the command has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Added to the number of the signal that ended a command, as shells do.
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
        // Who goes away without the answer leaves it to the mount to thaw.
        let number = say(&ControlCommand::Freeze(args.timeout))?;
        // A mount by an older version of the program has no numbers.
        ControlCommand::Thaw(number.parse().ok())
    };
    // Who does not wait for it does not want it frozen, and wants no command.
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

/// Has the kernel hand over what programs changed in mappings. The mount's own process could not: it would wait for itself.
fn sync(mount: &Mount, interrupt: &Interrupt) -> Outcome {
    let target = mount.target.clone();
    // Nothing but a directory is opened: another may be there by now.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let sync = move || Ok(syncfs(open(target, flags, Mode::empty())?)?);
    let synced = patiently(&interrupt.patience(), sync);
    interrupt.check()?;
    synced.map_err(|e| Failure::io(mount.target.display(), &e))
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
