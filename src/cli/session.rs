//! An unlocked vault on its mount point, from the mount to the end of its last flush.

use super::{
    anchor,
    exit::{Code, Failure, Outcome},
    mount_point, reverse, vaults,
};
use crate::{
    engine::{self, EngineChoice},
    fuse::{
        self, CacheMode, ControlDir, MountOptions, Mounter, MounterTask, NoControlDir, RingMode, Session,
        Trust,
    },
    metrics,
    vault::{self, OpenOptions, Unlock, Vault},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{io, path::PathBuf, sync::Arc, thread, time::Duration};

/// How long an unmount requested by a signal waits for users of the mount before it detaches the mount anyway.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it tries.
const PAUSE: Duration = Duration::from_millis(100);
/// The part of the memory for contents that requests from the kernel may take; the vault leaves it free.
const REQUESTS_SHARE: usize = 16;

/// What is mounted where, and how.
pub struct Plan {
    /// The vault, an absolute path.
    pub vault: PathBuf,
    /// The mount point, an absolute path without links.
    pub mount: PathBuf,
    /// It may have content.
    pub nonempty: bool,
    /// The owners of the directories it may lie in.
    pub trust: Trust,
    /// How the vault is opened.
    pub open: OpenOptions,
    /// The vault is a plain directory, to be shown in its stored form.
    pub reverse: bool,
    /// Whether other users have access.
    pub allow_other: bool,
    /// Where open files are cached.
    pub cache: CacheMode,
    /// Whether requests come over io_uring.
    pub rings: RingMode,
    /// Mount flags by their names in mount(8).
    pub flags: Vec<String>,
    /// The vault is locked when no program has made a request for so long.
    pub idle: Option<Duration>,
}

/// The signals that end a mount. They are held from before it is made, so that none kills it half-made.
pub struct EndSignals(Signals);

impl EndSignals {
    /// SIGINT, SIGTERM and SIGHUP; from here on they wait for [`Mounted::serve`].
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub fn hold() -> Outcome<Self> {
        Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map(EndSignals)
            .map_err(|e| Failure::io("signal handlers", &e))
    }
}

/// A mount that answers. Dropping it unmounts.
pub struct Mounted(Session);

impl Mounted {
    /// Unlocks, mounts, and waits until the mount answers.
    ///
    /// # Errors
    /// If the vault does not open or cannot be mounted there.
    pub fn start(plan: &Plan, unlock: &Unlock) -> Outcome<Mounted> {
        // The modes of new files follow from the caller's umask, or a default ACL.
        rustix::process::umask(rustix::fs::Mode::empty());
        let place = mount_point::open(&plan.mount, plan.nonempty, plan.trust)?;
        vault::lift_limits();
        metrics::start();
        let options = MountOptions {
            read_only: plan.open.read_only,
            allow_other: plan.allow_other,
            source: plan.vault.clone().into(),
            flags: plan.flags.clone(),
            loops: None,
            cache: plan.cache,
            rings: plan.rings,
            requests: plan.open.memory / REQUESTS_SHARE,
            idle: plan.idle,
        };
        let mounter = Arc::new(Mounter::start(&place, &task(plan)).map_err(|e| refused(plan, &e))?);
        if plan.open.engine != EngineChoice::Cpu {
            let starter = mounter.clone();
            engine::start_gpus_through(move |socket| starter.start_gpu(socket));
        }
        fuse::confine();
        if plan.reverse {
            let view = reverse::view(&plan.vault, unlock)?;
            return fuse::mount_reverse(view, &place, mounter, &options)
                .map(Mounted)
                .map_err(|e| refused(plan, &e));
        }
        let control_dir = ControlDir::make().map_err(|e| no_control(&e))?;
        let vault = Vault::open(&plan.vault, unlock, plan.open.clone()).map_err(vaults::explain)?;
        vault.require_a_name().map_err(|e| Failure::plain(Code::Failed, e))?;
        anchor::take_if_new(&vault, plan.open.anchor.as_ref())?;
        vault.anchor_behind();
        vault.rotate_behind();
        fuse::mount(vault, &place, mounter, &control_dir, &options)
            .map(Mounted)
            .map_err(|e| refused(plan, &e))
    }

    /// Serves until the vault is unmounted or a signal ends the mount.
    ///
    /// # Errors
    /// If something could not be stored.
    pub fn serve(self, mut signals: EndSignals) -> Outcome {
        let unmounter = self.0.unmounter();
        // Not joined: it ends with the process, or waits for a signal that never comes.
        thread::spawn(move || {
            for _ in signals.0.forever() {
                let tries = PATIENCE.as_millis() / PAUSE.as_millis();
                let quiet = (0..tries).any(|_| unmounter.unmount(false).is_ok() || wait());
                if !quiet && let Err(e) = unmounter.unmount(true) {
                    log::error!("unmounting: {e}");
                }
            }
        });
        self.0.wait().map_err(|e| unsaved(&e))
    }
}

/// A pause between two tries; always false, so that it can stand in a condition.
fn wait() -> bool {
    thread::sleep(PAUSE);
    false
}

/// What the process that mounts is told.
fn task(plan: &Plan) -> MounterTask {
    MounterTask {
        target: plan.mount.clone(),
        source: plan.vault.clone().into(),
        allow_other: plan.allow_other,
        flags: plan.flags.clone(),
    }
}

fn refused(plan: &Plan, error: &io::Error) -> Failure {
    let what = format!("mounting on {}: {error}", plan.mount.display());
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Failure::new(
            Code::FuseUnavailable,
            what,
            "Mounting needs root, or fusermount3 from the package fuse3.",
        ),
        _ if what.contains("user_allow_other") => Failure::new(
            Code::FuseUnavailable,
            what,
            "Add the line `user_allow_other` to /etc/fuse.conf (as root), or leave out --allow-other.",
        ),
        _ => Failure::plain(Code::FuseUnavailable, what),
    }
}

fn no_control(error: &NoControlDir) -> Failure {
    Failure::new(
        Code::Failed,
        error,
        "`lock`, `unlock` and `freeze` reach a mount by a socket in a directory that only its user can write to. Have one made \
         there, or let this user write to /tmp.",
    )
}

fn unsaved(error: &io::Error) -> Failure {
    Failure::new(
        Code::Failed,
        format!("the mount ended with an error: {error}"),
        "Data that was synced before is in the vault. The log says what is not.",
    )
}
