//! An unlocked vault on its mount point, from mounting to the last flush.

use super::{
    anchor,
    exit::{Code, Failure, Outcome},
    mount_point, reverse, rights, vaults,
};
use ::reverse::Exclusions;
use engine::EngineChoice;
use fuse::{
    CacheMode, ControlDir, MountOptions, MountPoint, Mounter, MounterTask, NoControlDir, Owners, Reach,
    RingMode, Session, Trust,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{io, os::fd::AsFd, path::PathBuf, sync::Arc, thread, time::Duration};
use vault::{OpenOptions, Unlock, Vault};

/// How long an unmount requested by a signal waits for users of the mount before it detaches the mount
/// anyway.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between attempts to unmount.
const PAUSE: Duration = Duration::from_millis(100);
/// Divisor: requests from the kernel may use this fraction of the memory for contents. The vault leaves
/// it free.
const REQUESTS_SHARE: usize = 16;

/// The parameters of a mount.
pub struct MountPlan {
    /// The vault, an absolute path.
    pub vault: PathBuf,
    /// The mount point, an absolute path without links.
    pub mount: PathBuf,
    /// Whether the mount point may have contents.
    pub nonempty: bool,
    /// The owners accepted for the directories above the mount point.
    pub trust: Trust,
    /// Options for opening the vault.
    pub open: OpenOptions,
    /// Whether the vault is a plain directory to be shown in encrypted form.
    pub reverse: bool,
    /// Nodes of the plain directory that are not shown.
    pub exclusions: Exclusions,
    /// Whether other users have access.
    pub allow_other: bool,
    /// The owners to show instead of the stored ones.
    pub owners: Owners,
    /// Page-cache policy for open files.
    pub cache: CacheMode,
    /// Whether requests come over io_uring.
    pub rings: RingMode,
    /// Mount flags by their names in mount(8).
    pub flags: Vec<String>,
    /// Idle time after which the vault is locked.
    pub idle: Option<Duration>,
    /// Idle time after which the vault is unmounted, once no program uses it.
    pub idle_unmount: Option<Duration>,
}

/// The signals that end a mount. They are held back before mounting starts, so that none interrupts it
/// halfway.
pub struct EndSignals(Signals);

impl EndSignals {
    /// Holds back SIGINT, SIGTERM and SIGHUP until [`Mounted::serve`] handles them.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn hold() -> Outcome<Self> {
        Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map(EndSignals)
            .map_err(|e| Failure::io("signal handlers", &e))
    }
}

/// A process that has given up all rights except those for serving one mount, which does not exist yet.
pub struct Confined {
    place: MountPoint,
    mounter: Arc<Mounter>,
    /// `None` for a reverse view.
    control_dir: Option<ControlDir>,
    /// Kept until the mount has opened these files: the kernel identifies them by inode, and some
    /// filesystems assign a new inode each time a name is looked up.
    _reach: Reach,
}

impl Confined {
    /// Opens the mount point, starts the process that will mount, and gives up the rights that serving does
    /// not need, including those to mount. Call it while the process has a single thread, because each
    /// thread has its own rights.
    ///
    /// # Errors
    /// If the mount point is not usable, or the control socket has no place.
    pub fn begin(plan: &MountPlan) -> Outcome<Self> {
        let place = mount_point::open(&plan.mount, plan.nonempty, plan.trust)?;
        let control_dir = (!plan.reverse).then(ControlDir::make).transpose().map_err(|e| no_control(&e))?;
        let mounter = Arc::new(Mounter::start(&place, &task(plan)).map_err(|e| refused(plan, &e))?);
        if plan.open.engine != EngineChoice::Cpu {
            let starter = mounter.clone();
            engine::start_gpus_through(move |socket| starter.start_gpu(socket));
        }
        vault::lift_limits();
        let reach = reach(plan, control_dir.as_ref());
        for left in fuse::confine(&reach) {
            log::warn!("the mount {left}");
        }
        Ok(Confined { place, mounter, control_dir, _reach: reach })
    }

    /// Unlocks, mounts, and waits until the mount answers.
    ///
    /// # Errors
    /// If the vault does not open or cannot be mounted there.
    pub fn mount(self, plan: &MountPlan, unlock: &Unlock) -> Outcome<Mounted> {
        // The modes of new files are determined by the caller's umask or a default ACL.
        rustix::process::umask(rustix::fs::Mode::empty());
        metrics::start();
        let Confined { place, mounter, control_dir, _reach } = self;
        let options = MountOptions {
            read_only: plan.open.read_only,
            allow_other: plan.allow_other,
            source: plan.vault.clone().into(),
            flags: plan.flags.clone(),
            owners: plan.owners,
            loops: None,
            cache: plan.cache,
            rings: plan.rings,
            requests: plan.open.memory / REQUESTS_SHARE,
            idle: plan.idle,
            idle_unmount: plan.idle_unmount,
        };
        let Some(control_dir) = control_dir else {
            let view = reverse::view(&plan.vault, plan.exclusions.clone(), unlock)?;
            return fuse::mount_reverse(view, &place, mounter, &options)
                .map(Mounted)
                .map_err(|e| refused(plan, &e));
        };
        let vault = Vault::open(&plan.vault, unlock, plan.open.clone()).map_err(vaults::explain)?;
        vault.require_a_name().map_err(|e| Failure::plain(Code::Failed, e))?;
        anchor::take_if_new(&vault, plan.open.anchor.as_ref())?;
        vault.anchor_behind();
        vault.rotate_behind();
        fuse::mount(vault, &place, mounter, &control_dir, &options)
            .map(Mounted)
            .map_err(|e| refused(plan, &e))
    }
}

/// A mount that answers. Dropping it unmounts it.
pub struct Mounted(Session);

impl Mounted {
    /// Serves until the vault is unmounted or a signal ends the mount.
    ///
    /// # Errors
    /// If something could not be stored.
    pub fn serve(self, mut signals: EndSignals) -> Outcome {
        let unmounter = self.0.unmounter();
        // Never joined: the thread waits for signals until the process ends.
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

/// Sleeps between two attempts. Always returns false, for use in a condition.
fn wait() -> bool {
    thread::sleep(PAUSE);
    false
}

/// The task of the process that mounts.
fn task(plan: &MountPlan) -> MounterTask {
    MounterTask {
        target: plan.mount.clone(),
        source: plan.vault.clone().into(),
        allow_other: plan.allow_other,
        flags: plan.flags.clone(),
    }
}

/// The files that the process will use. A file that is missing now stays missing, or is created in a
/// listed directory.
fn reach(plan: &MountPlan, control_dir: Option<&ControlDir>) -> Reach {
    let mut reach = Reach { serves: true, rings: plan.rings != RingMode::Off, ..Reach::default() };
    match plan.reverse {
        true => reach.seen.extend(rights::opened(&plan.vault)),
        false => reach.directories.extend(rights::opened(&plan.vault)),
    }
    reach.directories.extend(control_dir.and_then(|dir| dir.as_fd().try_clone_to_owned().ok()));
    rights::add_measurements(&mut reach, plan.open.engine);
    rights::add_anchor(&mut reach, plan.open.anchor.as_ref());
    reach
}

fn refused(plan: &MountPlan, error: &io::Error) -> Failure {
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
