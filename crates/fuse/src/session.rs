//! A mount from start to end.

use super::{
    caching::CacheMode,
    capabilities::Largest,
    control::Control,
    control_dir::ControlDir,
    filesystem::MountedFilesystem,
    gate::Gate,
    idle::{lock_when_idle, unmount_when_idle},
    loops::Loops,
    mounter::{Mounter, MounterOrder},
    owners::Owners,
    permission_policy::PermissionPolicy,
    place::{MountPoint, device_number},
    requests::Requests,
    ring::{Prepared, Rings},
    server::{Server, Transport},
    settings,
};
use crossbeam_channel::bounded;
use fuser::{Config, SessionACL};
use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::CWD,
};
use std::{
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use vault::Vault;

/// Maximum number of event loops.
const MOST_LOOPS: usize = 16;
/// Minimum number of event loops: one can wait while another is busy.
const FEWEST_LOOPS: usize = 2;
/// Maximum number of directories kept open.
const MOST_DIRS: usize = 4096;
/// Divisor for the share of the process's descriptors that directories may use.
const DIRS_SHARE: usize = 4;
/// Maximum request size of a ring in bytes. Each entry of a queue has a buffer of this size, into and out
/// of which contents are copied, and a smaller buffer stays in the processor's caches.
const LARGEST_OF_RINGS: u32 = 512 << 10;
/// Lower bound for the maximum write size in bytes. Limiting it further is not worth the cost.
const SMALL_REQUEST: u32 = 128 << 10;

/// Parameters of a mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Whether other users may access the mount.
    pub allow_other: bool,
    /// The source in the kernel's mount table: the vault's path.
    pub source: OsString,
    /// Flags by their names in mount(8): `noexec`, `suid`, …. `default_permissions` makes the kernel
    /// check permission bits even where they would bind no one.
    pub flags: Vec<String>,
    /// The owners to show instead of the stored ones.
    pub owners: Owners,
    /// Number of event loops; by default the number of cores, between 2 and 16.
    pub loops: Option<usize>,
    /// Policy for direct I/O instead of the kernel's page cache.
    pub cache: CacheMode,
    /// Memory for request buffers in bytes, over all event loops.
    pub requests: usize,
    /// Lock the vault when no program has made a request for this long.
    pub idle: Option<Duration>,
    /// Unmount when no program has made a request for this long, and the mount is not in use.
    pub idle_unmount: Option<Duration>,
    /// Whether requests use io_uring.
    pub rings: RingMode,
}

/// Whether requests use io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingMode {
    /// If the kernel offers it.
    Auto,
    /// Yes, or the mount fails.
    On,
    /// No.
    Off,
}

/// A mount. Dropping it ends the mount and waits until everything is stored in the vault.
pub struct Session {
    pub(super) unmounter: Unmounter,
    pub(super) thread: Option<JoinHandle<io::Result<()>>>,
}

/// Ends a mount, from any thread.
#[derive(Clone)]
pub struct Unmounter {
    pub(super) target: Arc<Path>,
    pub(super) ended: Arc<AtomicBool>,
    pub(super) one_at_a_time: Arc<Mutex<()>>,
    pub(super) gate: Arc<Gate>,
    pub(super) mounter: Arc<Mounter>,
    /// The mount's device number, once it answers.
    pub(super) device: Arc<OnceLock<u64>>,
}

/// Mounts `vault` on `target`, for which `mounter` was started. Returns once the mount answers, both on
/// `target` and on its socket in `control_dir`.
///
/// # Errors
/// If the vault's root cannot be read or the socket cannot be created; otherwise the error of the kernel
/// or fusermount3.
pub fn mount(
    vault: Arc<Vault>,
    target: &MountPoint,
    mounter: Arc<Mounter>,
    control_dir: &ControlDir,
    options: &MountOptions,
) -> io::Result<Session> {
    let usual = options.loops.unwrap_or_else(usual_loops).max(1);
    let prepared = prepare_rings(options.rings)?;
    let count = if prepared.is_some() { FEWEST_LOOPS } else { usual };
    let kernel = Arc::new(OnceLock::new());
    let from = kernel.clone();
    let loops = Loops::new(count, Box::new(move || from.get().is_some_and(request_waits)));
    let gate = Gate::new();
    let judge = PermissionPolicy::on_mount(options.allow_other, &options.flags);
    let open_dirs = (vault::descriptors() / DIRS_SHARE).min(MOST_DIRS);
    let server = Server::new(
        vault.clone(),
        options.read_only,
        (judge, options.owners),
        counts_reads(&options.flags),
        options.cache,
        (loops.clone(), gate.clone()),
        open_dirs,
    )
    .map_err(|e| io::Error::other(e.to_string()))?;
    let most = if prepared.is_some() { LARGEST_OF_RINGS } else { u32::MAX };
    let read = settings::raise_largest_request().min(most);
    let write = read.min(u32::try_from(options.requests / usual).unwrap_or(u32::MAX));
    let largest = Largest { read, write: write.max(SMALL_REQUEST) };
    let fd = mounter.mount(server.read_only)?;
    let ended = Arc::new(AtomicBool::new(false));
    let (target_of, one_at_a_time) = (target.path().into(), Arc::default());
    let device = Arc::default();
    let unmounter =
        Unmounter { target: target_of, ended: ended.clone(), one_at_a_time, gate, mounter, device };
    let mut config = Config::default();
    // The kernel controls access to the mount. fuser must not: a process that was given an open file must
    // be able to close it.
    config.acl = SessionACL::All;
    config.n_threads = Some(count);
    config.clone_fd = count > 1;
    let kernel_of_rings = fd.try_clone().inspect_err(|_| unmounter.give_up())?;
    let _ = kernel.set(fd.try_clone().inspect_err(|_| unmounter.give_up())?); // Set only here.
    let (begun, has_begun) = bounded(1);
    let requests = Requests { server: server.clone(), transport: Transport::Device };
    let mounted = MountedFilesystem { requests, largest, rings: prepared.is_some(), begun };
    let session = fuser::Session::from_fd(mounted, fd, config.acl, config);
    let session = session.inspect_err(|_| unmounter.give_up())?;
    server.connect(session.notifier());
    let agreed = has_begun.recv().map_err(|_| io::Error::other("the mount ended before it answered"))?;
    let rings = match prepared.filter(|_| agreed) {
        Some(prepared) => Some(
            begin_rings(prepared, kernel_of_rings, &server, largest, options.requests)
                .inspect_err(|_| unmounter.give_up())?,
        ),
        None => None,
    };
    let (monitored, reader) = (loops.clone(), server.clone());
    let monitor = thread::Builder::new()
        .name("monitor".into())
        .spawn(move || monitored.monitor(|| reader.read_queued()))
        .inspect_err(|_| unmounter.give_up())?;
    let number =
        target.device_number().ok_or_else(|| io::Error::other("the mount point was moved meanwhile"));
    let control = number.and_then(|number| {
        let _ = unmounter.device.set(number); // A mount has only one.
        let _ = server.device.set(rustix::fs::minor(number));
        let ending = unmounter.clone();
        Control::start(number, control_dir, server.clone(), Box::new(move || ending.end()))
            .map_err(|e| io::Error::other(format!("its control socket: {e}")))
    });
    let control = control.inspect_err(|_| {
        unmounter.give_up();
        loops.end(); // This also stops the monitor.
    })?;
    if let Some(idle) = options.idle {
        let server = Arc::downgrade(&server);
        let watch = move || lock_when_idle(&server, idle);
        thread::Builder::new().name("idle".into()).spawn(watch).inspect_err(|_| unmounter.give_up())?;
    }
    if let Some(idle) = options.idle_unmount {
        let (server, ending) = (Arc::downgrade(&server), unmounter.clone());
        let watch = move || unmount_when_idle(&server, idle, || ending.unmount(false));
        thread::Builder::new().name("idle".into()).spawn(watch).inspect_err(|_| unmounter.give_up())?;
    }
    let last_resort = unmounter.clone();
    let thread = thread::Builder::new()
        .name("mount".into())
        .spawn(move || {
            let served = session.run();
            if served.is_err() {
                last_resort.give_up(); // Event loops may remain, and nothing may be written from here on.
            }
            ended.store(true, Ordering::Release);
            // First, because the socket's name is derived from the device number, which another mount may
            // get from now on.
            control.end();
            if let Some(rings) = rings {
                rings.end();
            }
            server.finish();
            let _ = monitor.join(); // It holds the server, whose keys are wiped when it is dropped.
            let stored = vault.shut_down().map_err(|e| io::Error::other(e.to_string()));
            served.and(stored)
        })
        .inspect_err(|_| {
            unmounter.give_up();
            loops.end(); // This also stops the monitor.
        })?;
    let session = Session { unmounter, thread: Some(thread) };
    if let Some(advice) = target.device_number().and_then(settings::raise_read_ahead) {
        log::info!("{advice}");
    }
    Ok(session)
}

/// Creates rings if `mode` asks for them.
///
/// # Errors
/// If rings are required but unavailable.
fn prepare_rings(mode: RingMode) -> io::Result<Option<Prepared>> {
    match mode {
        RingMode::Off => Ok(None),
        RingMode::Auto if !settings::offer_rings() => Ok(None),
        RingMode::Auto => Ok(Prepared::new().inspect_err(|e| log::info!("no io_uring: {e}")).ok()),
        RingMode::On if !settings::offer_rings() => {
            let what = format!("no io_uring for FUSE: as root, write Y to {}", settings::RINGS);
            Err(io::Error::new(io::ErrorKind::Unsupported, what))
        }
        RingMode::On => Ok(Some(Prepared::new()?)),
    }
}

/// Starts serving a mount whose kernel waits for its rings.
fn begin_rings(
    prepared: Prepared,
    kernel: OwnedFd,
    server: &Arc<Server>,
    largest: Largest,
    memory: usize,
) -> io::Result<Rings> {
    let requests = Requests { server: server.clone(), transport: Transport::Ring };
    let rings = prepared.serve(kernel, &requests, largest.of_both(), memory)?;
    let word = rings.word();
    // The rings of a mount are set only once.
    let _ = server.wipe_rings.set(Box::new(move || word.empty()));
    log::info!("requests come over io_uring");
    Ok(rings)
}

impl Session {
    /// Returns a handle that can end the mount from elsewhere.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Waits until the mount has ended for any reason, and everything is stored in the vault.
    ///
    /// # Errors
    /// If serving ended for a reason other than an unmount, or if something could not be stored.
    pub fn wait(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("serving the mount failed for an internal reason")),
            None => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.unmounter.give_up();
            // There is no caller to report an error to; `wait` would return it.
            let _ = self.join();
        }
    }
}

impl Unmounter {
    /// Ends the mount. If it is in use, fails with EBUSY, or if `lazy`, detaches it and lets its users
    /// finish. Does nothing if the mount has ended.
    ///
    /// # Errors
    /// The error of the kernel or fusermount3.
    pub fn unmount(&self, lazy: bool) -> io::Result<()> {
        let _turn = self.one_at_a_time.lock();
        if self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.is_hidden() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.mounter.order(if lazy { MounterOrder::Detach } else { MounterOrder::Unmount })?;
        // Waiting and future requests fail: the vault can no longer be reached to unlock it.
        self.gate.end();
        Ok(())
    }

    /// Ends the mount at once even if it is in use: programs that have something open get errors.
    ///
    /// # Errors
    /// As `unmount`.
    pub fn end(&self) -> io::Result<()> {
        let hidden = self.is_hidden();
        {
            let _turn = self.one_at_a_time.lock();
            if self.ended.load(Ordering::Acquire)
                || !hidden && self.mounter.order(MounterOrder::Force).is_ok()
            {
                return Ok(());
            }
        }
        if !hidden {
            self.unmount(false).or_else(|_| self.unmount(true))?;
        }
        // If the system does not permit it, the mount ends when the last program closes it.
        if let Some(number) = self.device.get() {
            self.mounter
                .order(MounterOrder::Abort(*number))
                .unwrap_or_else(|e| log::info!("the mount ends when the last program closes its files: {e}"));
        }
        Ok(())
    }

    /// Whether another filesystem is at the mount point, over this one or instead of it.
    fn is_hidden(&self) -> bool {
        let there = device_number(CWD, &self.target);
        self.device.get().is_some_and(|own| there.is_some_and(|there| there != *own))
    }

    /// Ends the mount by any means; it may have ended already.
    pub(super) fn give_up(&self) {
        let _ = self.unmount(false).or_else(|_| self.unmount(true));
    }
}

/// Whether a mount with these flags keeps access times. The last of several contradictory flags counts.
fn counts_reads(flags: &[String]) -> bool {
    flags
        .iter()
        .rev()
        .find(|flag| ["atime", "noatime"].contains(&flag.as_str()))
        .is_none_or(|flag| flag == "atime")
}

/// Default number of event loops.
pub(super) fn usual_loops() -> usize {
    thread::available_parallelism().map_or(FEWEST_LOOPS, |n| n.get().clamp(FEWEST_LOOPS, MOST_LOOPS))
}

/// Whether the kernel has a request that no loop has taken.
fn request_waits(device: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(device, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
