//! A mount in the background. The program runs itself again, sends patterns and the secret through one
//! pipe, and waits on another until the mount answers or has failed.

use super::{
    args::{CacheArg, DurabilityArg, EngineArg, IoUringArg, MountArgs},
    descriptors, exclude,
    exit::{Code, Failure, Outcome},
    password,
    progress::Spinner,
};
use crypto::machine::any_memory_is_allowed;
use reverse::Patterns;
use rustix::io::Errno;
use std::{
    ffi::OsString,
    fs::File,
    io::{Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};
use vault::Unlock;

/// The report of a successful mount.
const READY: &str = "ready";

/// Starts the process behind a mount and returns once it is ready. `args` must contain absolute paths.
///
/// # Errors
/// The error that the process reported, or that it died.
pub fn start(args: &MountArgs, unlock: &Unlock) -> Outcome {
    let broken = |e: std::io::Error| Failure::plain(Code::Failed, format!("starting the mount process: {e}"));
    descriptors::hand_none_on();
    let mut child = Command::new("/proc/self/exe")
        .arg0("warpcrypt")
        .args(arguments(args))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(broken)?;
    // If the child has already exited, its missing report will tell.
    if let Some(mut to) = child.stdin.take() {
        let _ = exclude::send(&args.patterns, &mut to).and_then(|()| password::send(unlock, &mut to));
    }
    let mut report = String::new();
    // The child shows its own progress while it builds an anchor.
    let makes_anchor = args.anchor.as_ref().is_some_and(|file| !file.exists());
    let _spinner = (!makes_anchor).then(|| Spinner::start("unlocking and mounting"));
    if let Some(from) = &mut child.stdout {
        from.read_to_string(&mut report).map_err(broken)?;
    }
    outcome(&report, child)
}

fn outcome(report: &str, mut child: Child) -> Outcome {
    let (first, message) = report.split_once('\n').unwrap_or((report, ""));
    if first == READY {
        return Ok(());
    }
    if let Some(code) = first.parse().ok().and_then(Code::from_number) {
        return Err(Failure { code, message: message.to_owned() });
    }
    let end = child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
    Err(Failure::new(
        Code::Failed,
        format!("the mount process ended before the mount was ready ({end})"),
        "Its log may say why; --foreground shows it.",
    ))
}

/// The arguments for the child: all but those that the parent has already handled.
fn arguments(args: &MountArgs) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec!["serve".into()];
    if any_memory_is_allowed() {
        line.push("--any-kdf-memory".into());
    }
    if args.read_only {
        line.push("--read-only".into());
    }
    if args.reverse {
        line.push("--reverse".into());
    }
    if args.one_file_system {
        line.push("--one-file-system".into());
    }
    if args.shared {
        line.push("--shared".into());
    }
    if args.allow_other {
        line.push("--allow-other".into());
    }
    let engine = match args.engine {
        EngineArg::Auto => "auto",
        EngineArg::Cpu => "cpu",
        EngineArg::Gpu => "gpu",
    };
    let durability = match args.durability {
        DurabilityArg::Strict => "strict",
        DurabilityArg::Relaxed => "relaxed",
    };
    let cache = match args.cache {
        CacheArg::Auto => "auto",
        CacheArg::Kernel => "kernel",
        CacheArg::Direct => "direct",
        CacheArg::WriteBack => "write-back",
    };
    let io_uring = match args.io_uring {
        IoUringArg::Auto => "auto",
        IoUringArg::On => "on",
        IoUringArg::Off => "off",
    };
    line.extend(["--io-uring".into(), io_uring.into()]);
    line.extend(["--engine".into(), engine.into(), "--durability".into(), durability.into()]);
    line.extend(["--cache".into(), cache.into(), "--memory".into(), args.memory.to_string().into()]);
    if let Some(idle) = args.idle {
        line.extend(["--idle".into(), format!("{}s", idle.as_secs()).into()]);
    }
    if let Some(idle) = args.idle_unmount {
        line.extend(["--idle-unmount".into(), format!("{}s", idle.as_secs()).into()]);
    }
    if let Some(file) = &args.anchor {
        line.extend(["--anchor".into(), file.into()]);
    }
    if let Some(file) = &args.log_file {
        line.extend(["--log-file".into(), file.into()]);
    }
    if args.nonempty {
        line.extend(["-o".into(), "nonempty".into()]);
    }
    if args.any_path {
        line.extend(["-o".into(), "any-path".into()]);
    }
    if let Some(user) = args.for_uid {
        line.extend(["-o".into(), format!("for-uid={user}").into()]);
    }
    for (option, id) in [("uid", args.owners.user), ("gid", args.owners.group)] {
        line.extend(id.into_iter().flat_map(|id| ["-o".into(), format!("{option}={id}").into()]));
    }
    for option in &args.options {
        line.extend(["-o".into(), option.into()]);
    }
    line.extend(["--".into(), (&args.vault).into(), (&args.mount).into()]);
    line
}

/// The child's end of the pipe, for a single report.
pub struct Report(File);

impl Report {
    /// Takes patterns and the secret from standard input, and standard output as the channel for the
    /// report. Both are `/dev/null` afterwards, so that processes started later do not hold the pipes
    /// open. Changes the working directory to the root.
    ///
    /// # Errors
    /// If the process was not started by [`start`].
    pub fn begin() -> Outcome<(Patterns, Unlock, Report)> {
        let failed = |e: Errno| Failure::plain(Code::Failed, format!("detaching: {e}"));
        // Without a buffer, in which the secret would stay.
        let mut from =
            File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(failed)?);
        let patterns = exclude::receive(&mut from);
        let received = patterns.and_then(|patterns| Ok((patterns, password::receive(&mut from)?)));
        let (patterns, unlock) = received.map_err(|_| {
            Failure::new(Code::Usage, "no key on standard input", "`serve` is started by `warpcrypt mount`.")
        })?;
        let to = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).map_err(failed)?;
        let null = descriptors::null().map_err(failed)?;
        rustix::stdio::dup2_stdin(&null).map_err(failed)?;
        rustix::stdio::dup2_stdout(&null).map_err(failed)?;
        rustix::process::chdir("/").map_err(failed)?;
        Ok((patterns, unlock, Report(to.into())))
    }

    /// Leaves the terminal's session and tells the waiting parent that the mount answers. This must not
    /// happen earlier: at an autofs mount point only the process group of its daemon may mount; all
    /// other processes block until it has.
    ///
    /// # Errors
    /// If the parent is gone (Ctrl-C). The caller should then unmount.
    pub fn ready(mut self) -> Outcome {
        let failed = |e: Errno| Failure::plain(Code::Failed, format!("detaching: {e}"));
        rustix::process::setsid().map_err(failed)?;
        self.0.write_all(READY.as_bytes()).map_err(|_| Failure::interrupted())?;
        release_terminal().map_err(failed)
    }

    /// Tells the waiting parent why the mount failed. The parent prints it.
    pub fn failed(mut self, failure: &Failure) {
        let text = format!("{}\n{}", failure.code as u8, failure.message);
        // If the parent is gone, there is nowhere to report to.
        let _ = self.0.write_all(text.as_bytes());
        let _ = release_terminal();
    }
}

fn release_terminal() -> Result<(), Errno> {
    rustix::stdio::dup2_stderr(descriptors::null()?)
}
