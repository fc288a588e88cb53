//! A mount from its beginning to its end.

use super::{
    caching::CacheMode,
    capabilities::Largest,
    control::Control,
    control_dir::ControlDir,
    filesystem::Mounted,
    gate::Gate,
    idle::{lock_when_idle, unmount_when_idle},
    loops::Loops,
    mounter::{Mounter, Order},
    permissions::Judge,
    place::{MountPoint, device_number},
    requests::Requests,
    ring::{Prepared, Rings},
    server::{Server, Transport},
    settings,
};
use crate::vault::{self, Vault};
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

/// Event loops at most.
const MOST_LOOPS: usize = 16;
/// Event loops at least: one can wait while another is busy.
const FEWEST_LOOPS: usize = 2;
/// Directories kept open at most.
const MOST_DIRS: usize = 4096;
/// The part of the process's descriptors that directories may take.
const DIRS_SHARE: usize = 4;
/// Bytes of the largest request of a ring. Each place of a queue has a buffer of this size, into and out of which its
/// contents are copied: a smaller one stays in the processor's caches.
const LARGEST_OF_RINGS: u32 = 512 << 10;
/// Bytes of the smallest request that is worth a limit.
const SMALL_REQUEST: u32 = 128 << 10;

/// How to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Nothing may be written.
    pub read_only: bool,
    /// Other users may enter.
    pub allow_other: bool,
    /// The source in the kernel's mount table: the vault's path.
    pub source: OsString,
    /// Flags by their names in mount(8): `noexec`, `suid`, …; `default_permissions` if the kernel is to
    /// check permission bits where they would bind nobody.
    pub flags: Vec<String>,
    /// Event loops; by default as many as there are cores, from 2 to 16.
    pub loops: Option<usize>,
    /// Which handles use direct I/O instead of the kernel's page cache.
    pub cache: CacheMode,
    /// Bytes that the buffers of requests may take, in all event loops together.
    pub requests: usize,
    /// The vault is locked when no program has made a request for so long.
    pub idle: Option<Duration>,
    /// The mount ends when no program has made a request for so long, and none uses it.
    pub idle_unmount: Option<Duration>,
    /// Whether requests come over io_uring.
    pub rings: RingMode,
}

/// Whether requests come over io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingMode {
    /// Where the kernel offers it.
    Auto,
    /// Yes, or the mount fails.
    On,
    /// No.
    Off,
}

/// A mount. Dropping it ends the mount and waits until everything is in the vault.
pub struct Session {
    pub(super) unmounter: Unmounter,
    pub(super) thread: Option<JoinHandle<io::Result<()>>>,
}

/// Ends a mount from anywhere.
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

/// Mounts `vault` on `target`, for which `mounter` was started, and returns once it answers, there and on its socket in
/// `control_dir`.
///
/// # Errors
/// If the vault's root cannot be read or the socket cannot be made, or what the kernel or fusermount3 said.
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
    let judge = Judge::on_mount(options.allow_other, &options.flags);
    let open_dirs = (vault::descriptors() / DIRS_SHARE).min(MOST_DIRS);
    let server = Server::new(
        vault.clone(),
        options.read_only,
        judge,
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
    // The kernel keeps out who may not enter. Whoever is given an open file may close it, too.
    config.acl = SessionACL::All;
    config.n_threads = Some(count);
    config.clone_fd = count > 1;
    let kernel_of_rings = fd.try_clone().inspect_err(|_| unmounter.give_up())?;
    let _ = kernel.set(fd.try_clone().inspect_err(|_| unmounter.give_up())?); // nobody else sets it
    let (begun, has_begun) = bounded(1);
    let requests = Requests { server: server.clone(), transport: Transport::Device };
    let mounted = Mounted { requests, largest, rings: prepared.is_some(), begun };
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
        let _ = unmounter.device.set(number); // A mount has one.
        let _ = server.device.set(rustix::fs::minor(number));
        let ending = unmounter.clone();
        Control::start(number, control_dir, server.clone(), Box::new(move || ending.end()))
            .map_err(|e| io::Error::other(format!("its control socket: {e}")))
    });
    let control = control.inspect_err(|_| {
        unmounter.give_up();
        loops.end(); // So does the monitor.
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
                last_resort.give_up(); // Event loops may be left, and nothing may be written from here on.
            }
            ended.store(true, Ordering::Release);
            // First: its name is that of the mount, which another mount may have from now on.
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
            loops.end(); // So does the monitor.
        })?;
    let session = Session { unmounter, thread: Some(thread) };
    if let Some(advice) = target.device_number().and_then(settings::raise_read_ahead) {
        log::info!("{advice}");
    }
    Ok(session)
}

/// Makes rings, if there are to be any.
///
/// # Errors
/// If there must be, and cannot.
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

/// Has the rings serve a mount whose kernel waits for them.
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
    // A mount has its rings once.
    let _ = server.wipe_rings.set(Box::new(move || word.empty()));
    log::info!("requests come over io_uring");
    Ok(rings)
}

impl Session {
    /// Something that ends the mount from elsewhere.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Waits until the mount has ended, by any means, and everything is in the vault.
    ///
    /// # Errors
    /// If serving ended for another reason than an unmount, or if something could not be stored.
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
            // Nobody is left to hear of an error; `wait` returns it.
            let _ = self.join();
        }
    }
}

impl Unmounter {
    /// Ends the mount. If it is in use, fails with EBUSY; if `lazy`, detaches it and lets its users finish. Does
    /// nothing to a mount that has ended.
    ///
    /// # Errors
    /// What the kernel or fusermount3 said.
    pub fn unmount(&self, lazy: bool) -> io::Result<()> {
        let _turn = self.one_at_a_time.lock();
        if self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.is_hidden() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.mounter.order(if lazy { Order::Detach } else { Order::Unmount })?;
        // Nobody could unlock the vault any more for those that wait, or would.
        self.gate.end();
        Ok(())
    }

    /// Ends the mount at once, whoever uses it: programs that have something open get errors.
    ///
    /// # Errors
    /// As `unmount`.
    pub fn end(&self) -> io::Result<()> {
        let hidden = self.is_hidden();
        {
            let _turn = self.one_at_a_time.lock();
            if self.ended.load(Ordering::Acquire) || !hidden && self.mounter.order(Order::Force).is_ok() {
                return Ok(());
            }
        }
        if !hidden {
            self.unmount(false).or_else(|_| self.unmount(true))?;
        }
        // Where the system does not offer it, the mount ends when the last program lets go of it.
        if let Some(number) = self.device.get() {
            self.mounter
                .order(Order::Abort(*number))
                .unwrap_or_else(|e| log::info!("the mount ends when the last program lets go of it: {e}"));
        }
        Ok(())
    }

    /// Whether another filesystem stands at the mount point: over this one, or in its place.
    fn is_hidden(&self) -> bool {
        let there = device_number(CWD, &self.target);
        self.device.get().is_some_and(|own| there.is_some_and(|there| there != *own))
    }

    /// Ends the mount by any means; it may have ended already.
    pub(super) fn give_up(&self) {
        let _ = self.unmount(false).or_else(|_| self.unmount(true));
    }
}

/// Whether a mount with these flags keeps times of access: of several that say so the last counts.
fn counts_reads(flags: &[String]) -> bool {
    flags
        .iter()
        .rev()
        .find(|flag| ["atime", "noatime"].contains(&flag.as_str()))
        .is_none_or(|flag| flag == "atime")
}

/// Event loops of a mount that names no number.
pub(super) fn usual_loops() -> usize {
    thread::available_parallelism().map_or(FEWEST_LOOPS, |n| n.get().clamp(FEWEST_LOOPS, MOST_LOOPS))
}

/// Whether the kernel has a request that no loop has taken.
fn request_waits(device: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(device, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
