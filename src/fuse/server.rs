//! What all requests share: the vault, the tables, and what becomes of an answer.

use super::{
    caching::{CacheMode, Caching},
    caller::Caller,
    dirs::Dirs,
    errno::{self, Answer, Reporter},
    gate::{self, Ending, Gate, Pass},
    handles::{FileHandle, Handles},
    held::Held,
    inodes::{self, Id, Inodes, Name, Node},
    loops::{Busy, Loops},
    permissions::Judge,
    read_queue::ReadQueue,
    replies::Told,
    stale::Dropper,
    workers::Workers,
};
use crate::{
    metrics::{self, Activity},
    vault::{Dir, Error, Kind, OpenFile, Result, Stat, StoredName, Target, There, Vault},
};
use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32},
    },
    time::Duration,
};

/// How long the kernel may rely on names and attributes when nobody but this mount changes them.
const LASTING: Duration = Duration::from_secs(60);
/// How long otherwise: if another process may write, or a file's blocks may not be stored yet.
const BRIEF: Duration = Duration::from_secs(1);

/// The state behind a mount.
pub struct Server {
    pub vault: Arc<Vault>,
    pub inodes: Inodes,
    pub handles: Handles,
    pub dirs: Dirs,
    pub read_only: bool,
    pub judge: Judge,
    /// Whether reading sets times of access.
    pub counts_reads: bool,
    pub caching: Caching,
    pub queued: ReadQueue,
    pub dropper: Arc<Dropper>,
    pub gate: Arc<Gate>,
    /// What requests wait for; held while that changes.
    pub held: Mutex<Held>,
    /// Whether the vault is frozen, or is being.
    pub frozen: AtomicBool,
    /// How often it was frozen.
    pub freezes: AtomicU32,
    reporter: Reporter,
    workers: Workers,
    loops: Arc<Loops>,
    kernel: OnceLock<Notifier>,
    /// The mount's device number, the minor one.
    pub device: OnceLock<u32>,
    /// Wipes the idle buffers of rings.
    pub wipe_rings: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// How a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Through `/dev/fuse`, to an event loop.
    Device,
    /// Through a ring, whose thread has given what takes long to another.
    Ring,
}

impl Server {
    /// Serves `vault` with these event loops, behind this gate, and room for `open_dirs` open directories. `judge` checks
    /// permissions. Reading sets times of access if it `counts_reads` and the store keeps them.
    ///
    /// # Errors
    /// If the root does not answer.
    pub fn new(
        vault: Arc<Vault>,
        read_only: bool,
        judge: Judge,
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
            counts_reads: counts_reads && !read_only && vault.keeps_atime(),
            caching: Caching::new(cache),
            queued: ReadQueue::default(),
            dropper: Dropper::new(loops.clone(), gate.clone()),
            gate,
            held: Mutex::new(Held::Not),
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

    /// Takes the notifier, which can tell the kernel what it did not ask for.
    pub fn connect(&self, kernel: Notifier) {
        // A mount has one kernel: it is set once.
        let _ = self.kernel.set(kernel);
    }

    /// The kernel's notifier, once there is one.
    pub fn kernel(&self) -> Option<&Notifier> {
        self.kernel.get()
    }

    /// Tells the kernel that a node's attributes changed by themselves.
    pub fn attributes_changed(&self, number: u64) {
        if let Some(kernel) = self.kernel.get() {
            // A negative offset leaves cached data alone. An error means that the kernel does not know the node.
            let _ = kernel.inval_inode(INodeNo(number), -1, 0);
        }
    }

    /// Waits for slow requests that are still being served, once no more come.
    pub fn finish(&self) {
        self.loops.end();
        self.read_queued();
        self.workers.finish();
        self.dropper.finish();
    }

    /// Runs `work` for a request on `node`: an error becomes its errno, a panic EIO.
    #[inline(never)] // What `work` has on the stack lies below the part of who has the request's pass, whose end wipes it.
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

    /// As [`Server::answer`], for a request by `user` that reaches a node by a name. Requests on handles are answered
    /// for every user: a program that has a handle was let in, or was given it.
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

    /// As [`Server::named`], for a request that may say the handle of a file by which it reaches that.
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

    /// Counts this event loop as busy with a request; first does the reads that are queued. To be dropped after the
    /// request's pass: the loop may park then.
    pub fn busy(&self) -> Busy<'_> {
        let busy = self.loops.begin();
        self.read_queued();
        busy
    }

    /// As `busy`, for a read, which may join those that are queued.
    pub fn busy_reading(&self) -> Busy<'_> {
        self.loops.begin()
    }

    /// As `busy`, for one of the parts that fuser makes of a request.
    pub fn busy_in_part(&self) -> Busy<'_> {
        let busy = self.loops.begin_part();
        self.read_queued();
        busy
    }

    /// Lets a program's request pass that needs the vault. `None` if the vault is locked or frozen.
    pub fn pass(&self) -> Option<Pass> {
        self.gate.count();
        self.gate.try_pass()
    }

    /// Holds a request of `caller` until the vault is unlocked. `work` gets an error if it is not to wait any longer.
    pub fn hold(
        self: &Arc<Self>,
        caller: Caller,
        work: impl FnOnce(&Arc<Server>, Answer<Pass>) + Send + 'static,
    ) {
        let server = self.clone();
        self.gate.hold(caller.thread, Box::new(move |pass| work(&server, pass)));
    }

    /// Holds a request that is nothing to a locked vault while that is being locked. `work` gets an error once it is.
    pub fn hold_unless_shut(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Server>, Answer<Pass>) + Send + 'static,
    ) {
        let server = self.clone();
        self.gate.hold_unless_shut(Box::new(move |pass| work(&server, pass)));
    }

    /// Has requests wait, and returns once every one that has passed is answered.
    ///
    /// # Errors
    /// If the mount is to end.
    pub fn close_gate(&self) -> std::result::Result<(), Ending> {
        self.gate.close(|| self.read_queued(), |work, pass| self.let_in(work, pass))
    }

    /// Lets requests pass again.
    pub fn open_gate(&self) {
        self.gate.open(|work, pass| self.let_in(work, pass));
    }

    /// Does what was held, on a thread of its own.
    fn let_in(&self, work: gate::Held, pass: Pass) {
        self.workers.run(move || work(Ok(pass)));
    }

    /// Whether the kernel has a request that no loop has taken.
    pub fn request_waits(&self) -> bool {
        self.loops.request_waits()
    }

    /// Runs a request that may take long: here if another event loop is free, else on a worker. So a request that
    /// waits for a disk never keeps all others waiting. A ring's request is on a worker by then if it is to be.
    pub fn slowly<P: Send + 'static>(
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

    /// Whether the thread that serves a request that came this way may wait: another would serve the next one.
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

    /// How long the kernel may rely on a name.
    pub fn name_ttl(&self) -> Duration {
        match self.read_only {
            _ if self.vault.is_shared() => Duration::ZERO,
            true => BRIEF,
            false => LASTING,
        }
    }

    /// How long the kernel may rely on there being no such name.
    pub fn absent_ttl(&self) -> Duration {
        if self.read_only || self.vault.is_shared() { Duration::ZERO } else { LASTING }
    }

    /// What to tell the kernel of a node, and how long it may rely on that: briefly if a file's blocks may not be stored
    /// yet.
    pub fn tell(&self, number: u64, stat: &Stat) -> Told {
        let size = if stat.kind == Kind::File { self.size_to_tell(number, stat) } else { None };
        let ttl = if size.is_some() { BRIEF.min(self.name_ttl()) } else { self.name_ttl() };
        Told { number, stat: Stat { size: size.unwrap_or(stat.size), ..*stat }, ttl }
    }

    /// The size of a file that is open, which is always right; notes what is told of one that is not.
    fn size_to_tell(&self, number: u64, stat: &Stat) -> Option<u64> {
        let size = || self.open_file(inodes::key(stat)).map(|open| open.file.size());
        let Ok(node) = self.inodes.get(number) else { return size() };
        if self.caching.gathers() {
            // The kernel keeps the size that it is told first.
            let size = size();
            if size.is_none() {
                node.kernel_size.note_first(stat.size);
            }
            return size;
        }
        let size = size().or_else(|| {
            node.kernel_size.note(stat.size);
            // An open in the meantime may have looked before the note.
            size()
        });
        if size.is_some() {
            node.kernel_size.by_file();
        }
        size
    }

    /// Whether nobody but this mount changes the vault.
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

    /// Takes back the handle of a file or directory.
    pub fn release(&self, handle: u64) -> Result<()> {
        if let Some(FileHandle { node, file, direct_io, write }) = self.handles.remove(handle) {
            // First, so that an open of the file may find it closed: no request of the handle is left.
            let mut in_use = node.in_use.lock();
            in_use.closed(direct_io, write, file.file.size());
            in_use.is_same_file(&file);
            drop(in_use);
            self.vault.files().release(file);
        }
        Ok(())
    }

    /// Counts a lookup of what was found as `stored` in `dir`, the directory `parent`. `None` if it is not there any
    /// more.
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

    /// Counts a lookup of what was just made as `stored` in `dir`, the directory `parent`. It has no attribute if it is `bare`.
    /// `file` is given if it is open.
    ///
    /// # Errors
    /// ENOENT if it was removed by another process since.
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

    /// Whether `target` in the store, whose inode is `key`, is what the kernel knows as `node`.
    pub fn is_node(&self, node: &Node, key: inodes::Key, target: Target) -> bool {
        node.is_inode(key, self.vault.generation(target).into())
    }

    /// The node of what was found in the store, if the kernel knows it.
    pub fn known(&self, there: &There) -> Option<Arc<Node>> {
        let generation = || if self.vault.has_generations() { there.pin.generation().into() } else { 0 };
        self.inodes.find(there.inode()).filter(|node| node.is_inode(there.inode(), generation()))
    }

    /// Does `work` with a name of `node` that leads to it, which keeps that name meanwhile.
    ///
    /// # Errors
    /// ENOENT if it has none; ESTALE if somebody else took all that are known; what `work` returned.
    pub fn with_name<T>(&self, node: &Node, work: impl FnOnce(&Dir, &StoredName) -> Result<T>) -> Result<T> {
        self.with_one_of_names(node, true, work)
    }

    /// The same, where `work` finds out by itself whether the name leads to the node.
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
        // The kernel knows the directory of the name that it came by. One that it forgot is searched for in the whole store.
        let known_first = || {
            let (known, forgotten): (Vec<_>, Vec<_>) =
                names.latest_first().partition(|name| self.is_at_hand(name.parent));
            known.into_iter().chain(forgotten)
        };
        if look {
            name = known_first().find(|name| self.leads_to(name, node)).ok_or_else(errno::stale)?;
        } else if !self.is_at_hand(name.parent) {
            name = known_first().next().unwrap_or(name);
        }
        let dir = self.dir(name.parent)?;
        work(&dir, &name.stored)
    }

    /// Whether a name leads to a node. Where the store does not say, the work that needs the name meets its error, except
    /// in a shared vault: there another name may do.
    fn leads_to(&self, name: &Name, node: &Node) -> bool {
        let found = self.dir(name.parent).and_then(|dir| {
            let target = Target::Entry(&dir, &name.stored);
            let key = inodes::key(&self.vault.stat(target)?);
            Ok(self.is_node(node, key, target))
        });
        match found {
            Ok(leads) => leads,
            Err(e) => !self.vault.is_shared() && !errno::is_no_entry(&e),
        }
    }
}
