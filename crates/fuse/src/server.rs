//! State shared by all requests: the vault, the tables, and the reporting of results.

use super::{
    caching::{CacheMode, Caching},
    caller::Caller,
    dirs::Dirs,
    errno::{self, Answer, Reporter},
    gate::{self, Ending, Gate, RequestGuard},
    handles::{FileHandle, Handles},
    inodes::{self, Id, Inodes, Name, Node},
    loops::{Busy, Loops},
    owners::Owners,
    permission_policy::PermissionPolicy,
    read_queue::ReadQueue,
    replies::AttrReply,
    stale::PageInvalidator,
    suspend_state::SuspendState,
    workers::Workers,
};
use content::{Error, Result};
use fuser::{INodeNo, Notifier};
use metrics::Activity;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32},
    },
    time::Duration,
};
use vault::{Dir, Kind, OpenFile, Stat, StoredName, Target, There, Vault};

/// How long the kernel may cache names and attributes if only this mount changes them.
const LASTING: Duration = Duration::from_secs(60);
/// How long it may cache them if another process may write, or if a file's blocks may not be stored yet.
const BRIEF: Duration = Duration::from_secs(1);

/// The state behind a mount.
pub struct Server {
    pub vault: Arc<Vault>,
    pub inodes: Inodes,
    pub handles: Handles,
    pub dirs: Dirs,
    pub read_only: bool,
    pub judge: PermissionPolicy,
    /// The owners that the kernel is told.
    pub owners: Owners,
    /// Whether reads set access times.
    pub counts_reads: bool,
    pub caching: Caching,
    pub queued: ReadQueue,
    pub dropper: Arc<PageInvalidator>,
    pub gate: Arc<Gate>,
    /// Why requests are held. Locked while that changes.
    pub held: Mutex<SuspendState>,
    /// Whether the vault is frozen or being frozen.
    pub frozen: AtomicBool,
    /// How often the vault was frozen.
    pub freezes: AtomicU32,
    reporter: Reporter,
    workers: Workers,
    loops: Arc<Loops>,
    kernel: OnceLock<Notifier>,
    /// The mount's minor device number.
    pub device: OnceLock<u32>,
    /// Wipes the idle buffers of rings.
    pub wipe_rings: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The path by which a request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Through `/dev/fuse`, to an event loop.
    Device,
    /// Through a ring, whose thread moves long requests to another thread.
    Ring,
}

impl Server {
    /// Creates the state for `vault` with these event loops, behind this gate, and with room for
    /// `open_dirs` open directories. `judge` checks permissions, and `owners` are shown. Reads set access
    /// times if `counts_reads` and the store keeps them.
    ///
    /// # Errors
    /// If the root cannot be read.
    pub fn new(
        vault: Arc<Vault>,
        read_only: bool,
        (judge, owners): (PermissionPolicy, Owners),
        counts_reads: bool,
        cache: CacheMode,
        (loops, gate): (Arc<Loops>, Arc<Gate>),
        open_dirs: usize,
    ) -> Result<Arc<Server>> {
        let root = vault.stat(Target::Dir(&vault.root()))?;
        Ok(Arc::new(Server {
            inodes: Inodes::new(inodes::key(&root)),
            handles: Handles::default(),
            dirs: Dirs::new(open_dirs),
            read_only: read_only || vault.read_only(),
            judge,
            owners,
            counts_reads: counts_reads && !read_only && vault.keeps_atime(),
            caching: Caching::new(cache),
            queued: ReadQueue::default(),
            dropper: PageInvalidator::new(loops.clone(), gate.clone()),
            gate,
            held: Mutex::new(SuspendState::Not),
            frozen: AtomicBool::new(false),
            freezes: AtomicU32::new(0),
            reporter: Reporter::default(),
            workers: Workers::new(),
            loops,
            kernel: OnceLock::new(),
            device: OnceLock::new(),
            wipe_rings: OnceLock::new(),
            vault,
        }))
    }

    /// Sets the notifier, which sends the kernel messages that it did not request.
    pub fn connect(&self, kernel: Notifier) {
        // A mount has one kernel, so this is set only once.
        let _ = self.kernel.set(kernel);
    }

    /// The kernel's notifier, once it is connected.
    pub fn kernel(&self) -> Option<&Notifier> {
        self.kernel.get()
    }

    /// Tells the kernel that a node's attributes have changed without a request from it.
    pub fn attributes_changed(&self, number: u64) {
        if let Some(kernel) = self.kernel.get() {
            // A negative offset leaves cached data alone. An error means that the kernel does not know
            // the node.
            let _ = kernel.inval_inode(INodeNo(number), -1, 0);
        }
    }

    /// Waits for slow requests still in progress. Called when no more requests arrive.
    pub fn finish(&self) {
        self.loops.end();
        self.read_queued();
        self.workers.finish();
        self.dropper.finish();
    }

    /// Runs `work` for a request on `node`: an error becomes its errno, a panic becomes EIO.
    // Not inlined: dropping `RequestGuard` wipes the stack below its frame, which must include `work`'s.
    #[inline(never)]
    pub fn answer<T>(
        &self,
        activity: Activity,
        node: u64,
        work: impl FnOnce(&Self) -> Result<T>,
    ) -> Answer<T> {
        let describe = || self.inodes.stored_path(node);
        let answer = metrics::measure(activity, 0, || self.reporter.answer(node, describe, || work(self)));
        if answer.as_ref().is_err_and(|e| errno::is_failure(*e)) {
            metrics::failed(activity);
        }
        answer
    }

    /// Like [`Server::answer`], for a request by `user` that reaches a node by name. Requests on handles
    /// are answered for every user: a program with a handle was admitted, or was given it.
    pub fn named<T>(
        &self,
        user: u32,
        activity: Activity,
        node: u64,
        work: impl FnOnce(&Self) -> Result<T>,
    ) -> Answer<T> {
        self.judge.admit(user)?;
        self.answer(activity, node, work)
    }

    /// Like [`Server::named`], for a request that may carry a file handle by which it reaches the file.
    pub fn reached<T>(
        &self,
        handle: Option<u64>,
        user: u32,
        activity: Activity,
        node: u64,
        work: impl FnOnce(&Self) -> Result<T>,
    ) -> Answer<T> {
        match handle {
            Some(_) => self.answer(activity, node, work),
            None => self.named(user, activity, node, work),
        }
    }

    /// Counts this event loop as busy with a request, after serving the queued reads. Drop the result
    /// after the request's pass, because the loop may then park.
    pub fn busy(&self) -> Busy<'_> {
        let busy = self.loops.begin();
        self.read_queued();
        busy
    }

    /// Like `busy`, for a read, which may join the queued ones.
    pub fn busy_reading(&self) -> Busy<'_> {
        self.loops.begin()
    }

    /// Like `busy`, for one of the parts into which fuser splits a request.
    pub fn busy_in_part(&self) -> Busy<'_> {
        let busy = self.loops.begin_part();
        self.read_queued();
        busy
    }

    /// Counts a program's request and lets it pass. `None` if the vault is locked or frozen.
    pub fn pass(&self) -> Option<RequestGuard> {
        self.gate.count();
        self.gate.try_pass()
    }

    /// Holds a request of `caller` until the vault is unlocked or thawed. `work` gets an error if the
    /// request cannot wait any longer.
    pub fn hold(
        self: &Arc<Self>,
        caller: Caller,
        work: impl FnOnce(&Arc<Server>, Answer<RequestGuard>) + Send + 'static,
    ) {
        let server = self.clone();
        self.gate.hold(caller.thread, Box::new(move |pass| work(&server, pass)));
    }

    /// While the vault is being locked, holds a request that a locked vault can answer. `work` gets an
    /// error once it is locked.
    pub fn hold_unless_shut(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Server>, Answer<RequestGuard>) + Send + 'static,
    ) {
        let server = self.clone();
        self.gate.hold_unless_shut(Box::new(move |pass| work(&server, pass)));
    }

    /// Starts to hold requests, and returns once every request that has passed is answered.
    ///
    /// # Errors
    /// If the mount is ending.
    pub fn close_gate(&self) -> std::result::Result<(), Ending> {
        self.gate.close(|| self.read_queued(), |work, pass| self.let_in(work, pass))
    }

    /// Lets requests pass again.
    pub fn open_gate(&self) {
        self.gate.open(|work, pass| self.let_in(work, pass));
    }

    /// Runs a held request on a worker.
    fn let_in(&self, work: gate::QueuedRequest, pass: RequestGuard) {
        self.workers.run(move || work(Ok(pass)));
    }

    /// Whether the kernel has a request that no loop has taken.
    pub fn request_waits(&self) -> bool {
        self.loops.request_waits()
    }

    /// Runs a request that may take long: here if another event loop is free, otherwise on a worker. So a
    /// request that waits for a disk never blocks all others. A ring's request has already been moved to
    /// a worker if necessary.
    pub fn run_blocking<P: Send + 'static>(
        self: &Arc<Self>,
        transport: Transport,
        pass: P,
        job: impl FnOnce(&Server) + Send + 'static,
    ) {
        if transport == Transport::Ring || self.may_wait(transport) {
            return job(self);
        }
        let server = self.clone();
        self.workers.run(move || {
            job(&server);
            drop(pass);
        });
    }

    /// Whether the thread that serves a request of this transport may block, because another would serve
    /// the next request.
    pub fn may_wait(&self, transport: Transport) -> bool {
        match transport {
            Transport::Device => !self.loops.all_busy(),
            Transport::Ring => false,
        }
    }

    /// Runs `job` on a worker.
    pub fn elsewhere(&self, job: impl FnOnce() + Send + 'static) {
        self.workers.run(job);
    }

    /// How long the kernel may cache a name.
    pub fn name_ttl(&self) -> Duration {
        match self.read_only {
            _ if self.vault.is_shared() => Duration::ZERO,
            true => BRIEF,
            false => LASTING,
        }
    }

    /// How long the kernel may cache that a name does not exist.
    pub fn absent_ttl(&self) -> Duration {
        if self.read_only || self.vault.is_shared() { Duration::ZERO } else { LASTING }
    }

    /// Describes a node to the kernel, with how long it may cache the attributes: briefly if a file's
    /// blocks may not be stored yet.
    pub fn tell(&self, number: u64, stat: &Stat) -> AttrReply {
        let size = if stat.kind == Kind::File { self.size_to_tell(number, stat) } else { None };
        let ttl = if size.is_some() { BRIEF.min(self.name_ttl()) } else { self.name_ttl() };
        AttrReply { number, stat: Stat { size: size.unwrap_or(stat.size), ..self.owners.shown(stat) }, ttl }
    }

    /// The size of an open file, which is always right. `None` for a file that is not open; the size that
    /// the kernel is told is then recorded.
    fn size_to_tell(&self, number: u64, stat: &Stat) -> Option<u64> {
        let size = || self.open_file(inodes::key(stat)).map(|open| open.file.size());
        let Ok(node) = self.inodes.get(number) else { return size() };
        if self.caching.gathers() {
            // The kernel keeps the first size that it is told.
            let size = size();
            if size.is_none() {
                node.kernel_size.note_first(stat.size);
            }
            return size;
        }
        let size = size().or_else(|| {
            node.kernel_size.note(stat.size);
            // An open in the meantime may have checked before the size was recorded.
            size()
        });
        if size.is_some() {
            node.kernel_size.by_file();
        }
        size
    }

    /// Whether only this mount changes the vault.
    pub fn changes_alone(&self) -> bool {
        !self.read_only && !self.vault.is_shared()
    }

    /// Refuses changes on a read-only mount.
    pub fn writable(&self) -> Result<()> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// The open file of an inode.
    pub fn open_file(&self, key: inodes::Key) -> Option<Arc<OpenFile>> {
        self.vault.files().get(key)
    }

    /// Closes the handle of a file or directory.
    pub fn release(&self, handle: u64) -> Result<()> {
        if let Some(FileHandle { node, file, direct_io, write }) = self.handles.remove(handle) {
            // Do this first, so that a new open finds the file closed: the handle has no requests left.
            let mut in_use = node.in_use.lock();
            in_use.closed(direct_io, write, file.file.size());
            in_use.is_same_file(&file);
            drop(in_use);
            self.vault.files().release(file);
        }
        Ok(())
    }

    /// Counts a lookup of a node found as `stored` in `dir`, the directory `parent`. `None` if it has
    /// vanished.
    pub fn found(&self, parent: u64, dir: &Dir, stored: StoredName, stat: &Stat) -> Option<Id> {
        self.count(parent, dir, stored, stat, None)
    }

    fn count(
        &self,
        parent: u64,
        dir: &Dir,
        stored: StoredName,
        stat: &Stat,
        file: Option<&OpenFile>,
    ) -> Option<Id> {
        let now = |name: &Name| match name.parent == parent {
            true => self.vault.stat(Target::Entry(dir, &name.stored)),
            false => self.vault.stat(Target::Entry(&*self.dir(name.parent)?, &name.stored)),
        };
        let stands = |name: &Name| now(name).is_ok_and(|now| inodes::key(&now) == inodes::key(stat));
        let generation = |name: &Name| {
            let target = file.map_or(Target::Entry(dir, &name.stored), Target::File);
            self.vault.generation(target).into()
        };
        let moves = self.vault.is_shared();
        self.inodes.found(stat, Name { parent, stored }, generation, stands, moves)
    }

    /// Counts a lookup of a node just created as `stored` in `dir`, the directory `parent`. `bare` means
    /// that it has no extended attributes. `file` is set if it is open.
    ///
    /// # Errors
    /// ENOENT if another process has removed it since.
    pub fn made(
        &self,
        parent: u64,
        dir: &Dir,
        stored: StoredName,
        stat: &Stat,
        bare: bool,
        file: Option<&OpenFile>,
    ) -> Result<Id> {
        let id = self.count(parent, dir, stored, stat, file).ok_or_else(errno::no_entry)?;
        if let Ok(node) = self.inodes.get(id.number) {
            *node.bare.write() = bare && self.changes_alone();
        }
        Ok(id)
    }

    /// Whether `target` in the store, whose inode is `key`, is the node that the kernel knows as `node`.
    pub fn is_node(&self, node: &Node, key: inodes::Key, target: Target) -> bool {
        node.is_inode(key, self.vault.generation(target).into())
    }

    /// The node of an entry found in the store, if the kernel knows it.
    pub fn known(&self, there: &There) -> Option<Arc<Node>> {
        let generation = || if self.vault.has_generations() { there.pin.generation().into() } else { 0 };
        self.inodes.find(there.inode()).filter(|node| node.is_inode(there.inode(), generation()))
    }

    /// Calls `work` with a verified name of `node`. The name cannot change during the call.
    ///
    /// # Errors
    /// ENOENT if the node has no name; ESTALE if another process removed all known names; any error of
    /// `work`.
    pub fn with_name<T>(&self, node: &Node, work: impl FnOnce(&Dir, &StoredName) -> Result<T>) -> Result<T> {
        self.with_one_of_names(node, true, work)
    }

    /// Like [`Server::with_name`], for a `work` that verifies by itself that the name leads to the node.
    pub fn with_some_name<T>(
        &self,
        node: &Node,
        work: impl FnOnce(&Dir, &StoredName) -> Result<T>,
    ) -> Result<T> {
        self.with_one_of_names(node, self.vault.is_shared(), work)
    }

    fn with_one_of_names<T>(
        &self,
        node: &Node,
        look: bool,
        work: impl FnOnce(&Dir, &StoredName) -> Result<T>,
    ) -> Result<T> {
        let names = node.names.read();
        let mut name = names.any().ok_or_else(errno::no_entry)?;
        // The kernel knows the directory of the name that it used. A directory it has forgotten requires
        // a search of the store.
        let known_first = || {
            let (known, forgotten): (Vec<_>, Vec<_>) =
                names.latest_first().partition(|name| self.is_at_hand(name.parent));
            known.into_iter().chain(forgotten)
        };
        if look {
            for name in known_first() {
                if let Some(dir) = self.dir_leading_to(node, name)? {
                    return work(&dir, &name.stored);
                }
            }
            return Err(errno::stale());
        }
        if !self.is_at_hand(name.parent) {
            name = known_first().next().unwrap_or(name);
        }
        let dir = self.dir(name.parent)?;
        work(&dir, &name.stored)
    }

    /// The directory of a name that leads to a node; `None` if the name does not. If the store cannot
    /// tell, the name is used, and the caller's work gets the error. In a shared vault it is then not
    /// used, because another name may work.
    ///
    /// # Errors
    /// Those of [`Server::dir`], unless another name may work.
    fn dir_leading_to(&self, node: &Node, name: &Name) -> Result<Option<Arc<Dir>>> {
        let may_be_another = |e: &Error| self.vault.is_shared() || errno::is_no_entry(e);
        let dir = match self.dir(name.parent) {
            Err(e) if may_be_another(&e) => return Ok(None),
            dir => dir?,
        };
        let target = Target::Entry(&dir, &name.stored);
        let leads = match self.vault.stat(target) {
            Ok(stat) => self.is_node(node, inodes::key(&stat), target),
            Err(e) => !may_be_another(&e),
        };
        Ok(leads.then_some(dir))
    }
}
