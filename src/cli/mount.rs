//! `mount`: checks everything possible before asking for a password, then serves.

use super::{
    anchor,
    args::{EngineArg, MountArgs},
    daemon, exclude,
    exit::{Code, Failure, Outcome},
    holder, log, mount_point,
    named_file::Links,
    note, options, password,
    progress::Spinner,
    reverse,
    session::{Confined, EndSignals, MountPlan, Mounted},
    shared_store, tell, unlocking, vaults,
};
use crypto::machine::allow_any_memory;
use format::key_slot::SlotKind;
use fuse::Trust;
use rustix::{
    fs::{Access, access},
    io::Errno,
};
use std::{
    fs,
    io::{self, IsTerminal},
};
use vault::{OpenOptions, PATIENCE, Unlock};

/// Bytes in the unit of `--memory`.
const MIB: usize = 1 << 20;

/// Runs `mount`.
pub fn run(args: MountArgs) -> Outcome {
    let typed = args.mount.clone();
    let (args, kind) = prepare(args)?;
    let unlock = password::unlock(&args.unlock, kind)?;
    if args.foreground {
        return in_foreground(args, unlock);
    }
    daemon::start(&args, &unlock)?;
    // Scripts need no confirmation.
    if io::stdout().is_terminal() {
        tell(&format!("Mounted at {}.\n", typed.display()));
    }
    Ok(())
}

fn in_foreground(args: MountArgs, unlock: Unlock) -> Outcome {
    let what = shown(&args);
    let elsewhere = log::in_foreground(args.log_file.as_deref(), links(&args));
    let signals = EndSignals::hold()?;
    let plan = plan(args)?;
    // Confine the process before the spinner starts a thread.
    let confined = Confined::begin(&plan)?;
    let mounted = {
        let _spinner = Spinner::start("unlocking and mounting");
        confined.mount(&plan, &unlock)?
    };
    drop(unlock);
    if elsewhere {
        note(format_args!("mounted {what}"));
    }
    serve(mounted, signals, &what)
}

/// Runs `serve`, the process behind a mount. Started by [`run`].
pub fn serve_for_parent(args: MountArgs) -> Outcome {
    let (patterns, unlock, report) = daemon::Report::begin()?;
    let args = MountArgs { patterns, ..options::absorb(args)? };
    let what = shown(&args);
    log::in_background(args.log_file.as_deref(), links(&args));
    let mount = || {
        let plan = plan(args)?;
        Confined::begin(&plan)?.mount(&plan, &unlock)
    };
    let started = EndSignals::hold().and_then(|signals| Ok((mount()?, signals)));
    drop(unlock);
    let (mounted, signals) = match started {
        Ok(started) => started,
        Err(failure) => {
            report.failed(&failure);
            return Err(failure);
        }
    };
    report.ready()?;
    serve(mounted, signals, &what)
}

/// Whether the path to the log may contain links. The same rule applies as for the mount point.
fn links(args: &MountArgs) -> Links {
    match args.trust() {
        Trust::All => Links::Followed,
        Trust::Root | Trust::User(_) => Links::Refused,
    }
}

fn shown(args: &MountArgs) -> String {
    format!("{} on {}", args.vault.display(), args.mount.display())
}

/// Serves until the mount ends. Logs the beginning and the outcome.
fn serve(mounted: Mounted, signals: EndSignals, what: &str) -> Outcome {
    ::log::info!("mounted {what}");
    let outcome = mounted.serve(signals);
    match &outcome {
        Ok(()) => ::log::info!("unmounted {what}; all of it is stored"),
        Err(failure) => ::log::error!("unmounted {what}: {}", failure.message.replace('\n', "; ")),
    }
    outcome
}

fn plan(args: MountArgs) -> Outcome<MountPlan> {
    let open = OpenOptions {
        read_only: args.read_only,
        engine: args.engine.into(),
        durability: args.durability.into(),
        memory: args.memory as usize * MIB,
        sharing: args.shared.then_some(PATIENCE),
        anchor: anchor::wanted(args.anchor.as_deref()),
    };
    let trust = args.trust();
    Ok(MountPlan {
        exclusions: exclude::exclusions(&args)?,
        vault: args.vault,
        nonempty: args.nonempty,
        trust,
        mount: args.mount,
        open,
        reverse: args.reverse,
        allow_other: args.allow_other,
        owners: args.owners,
        cache: args.cache.into(),
        rings: args.io_uring.into(),
        flags: args.options,
        idle: args.idle,
        idle_unmount: args.idle_unmount,
    })
}

/// Merges the `-o` options, makes paths absolute, and checks everything that needs no password. Also
/// returns the kind of secret needed.
fn prepare(args: MountArgs) -> Outcome<(MountArgs, SlotKind)> {
    let mut args = options::absorb(args)?;
    if args.any_kdf_memory {
        allow_any_memory(); // The process behind the mount gets it as an argument.
    }
    args.log_file = args.log_file.as_deref().map(std::path::absolute).transpose().map_err(working_dir)?;
    args.anchor = args.anchor.as_deref().map(std::path::absolute).transpose().map_err(working_dir)?;
    args.patterns = exclude::collect(&args)?;
    exclude::exclusions(&args)?;
    let config = if args.reverse { reverse::read(&args.vault)? } else { vaults::read(&args.vault)? };
    args.read_only |= args.reverse;
    args.vault = args.vault.canonicalize().map_err(|e| Failure::io(args.vault.display(), &e))?;
    args.mount = mount_point::check(&args.mount, args.nonempty, args.trust())?;
    if args.vault.starts_with(&args.mount) {
        return Err(Failure::new(
            Code::Usage,
            format!("the vault is inside the mount point {}", args.mount.display()),
            "The mount would hide it. Choose a directory elsewhere.",
        ));
    }
    if args.mount.starts_with(&args.vault) {
        return Err(Failure::new(
            Code::Usage,
            format!("the mount point {} is inside the vault", args.mount.display()),
            "Everything in the vault's directory belongs to the vault. Choose a directory elsewhere.",
        ));
    }
    if let Some(file) = &args.anchor {
        anchor::refuse_inside(file, &[&args.vault, &args.mount])?;
    }
    if args.engine == EngineArg::Gpu {
        engine::gpus().map_err(vaults::no_gpu)?;
    }
    fuse_available()?;
    if args.allow_other {
        require_allow_other()?;
    }
    if !args.read_only && access(&args.vault, Access::WRITE_OK) == Err(Errno::ROFS) {
        return Err(Failure::read_only_store(args.vault.display()));
    }
    if args.shared {
        shared_store::check(&args.vault)?;
    }
    let kind = unlocking::require_slot(&config, &args.unlock)?;
    if !args.read_only {
        holder::wait_until_free(&args.vault)?;
    }
    Ok((args, kind))
}

fn working_dir(e: io::Error) -> Failure {
    Failure::io("the working directory", &e)
}

/// Whether fusermount3 allows users to choose `allow_other`.
///
/// # Errors
/// If its configuration cannot be read.
pub fn others_allowed() -> io::Result<bool> {
    let conf = fs::read_to_string("/etc/fuse.conf")?;
    Ok(conf.lines().any(|line| line.trim() == "user_allow_other"))
}

/// Fails for an ordinary user if fusermount3 is known to refuse `allow_other`. An unreadable
/// /etc/fuse.conf proves nothing: fusermount3 may have been built to read its configuration elsewhere.
fn require_allow_other() -> Outcome {
    if rustix::process::geteuid().is_root() || others_allowed().unwrap_or(true) {
        return Ok(());
    }
    Err(Failure::new(
        Code::FuseUnavailable,
        "only root may let others use a mount: `user_allow_other` is not in /etc/fuse.conf",
        "Add that line there (as root), or leave out --allow-other.",
    ))
}

/// Checks that FUSE is available, before any other work.
///
/// # Errors
/// If `/dev/fuse` does not open, with advice.
pub fn fuse_available() -> Outcome {
    let Err(error) = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") else { return Ok(()) };
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "All users need access to the device: chmod 666 /dev/fuse (as root)."
        }
        _ => {
            "Load the kernel module: modprobe fuse (as root). In a container, pass the device: --device /dev/fuse."
        }
    };
    Err(Failure::new(Code::FuseUnavailable, format!("/dev/fuse: {error}"), advice))
}
