//! A filesystem without any encryption, for comparison. It is either a conventional pass-through, or it
//! drops file contents and returns made-up ones, which shows the limits of FUSE itself.

mod nodes;

use clap::Args;
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, SessionACL,
    TimeOrNow, WriteFlags,
};
use nodes::{Node, Nodes};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use std::{
    cell::RefCell,
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use warpcrypt::cli::lab::{Failure, Outcome};

/// How long the kernel may cache names and attributes; the same as for a mount of a vault.
const LASTING: Duration = Duration::from_secs(60);
/// Maximum size of a request, in bytes.
const REQUEST: usize = 1 << 20;
/// Maximum number of background requests.
const BACKGROUND: u16 = 128;

/// Arguments of the process behind such a mount.
#[derive(Debug, Args)]
pub struct PlainArgs {
    /// Directory to pass through
    pub store: PathBuf,
    /// Empty directory to mount it on
    pub mount: PathBuf,
    /// Past the kernel's page cache
    #[arg(long)]
    pub direct: bool,
    /// Store no data: reads are answered from memory, and writes are dropped
    #[arg(long)]
    pub memory: bool,
    /// Event loops; as many as there are cores by default
    #[arg(long)]
    pub loops: Option<usize>,
}

/// Serves the filesystem until it is unmounted.
pub fn run(args: &PlainArgs) -> Outcome {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut config = Config::default();
    config.n_threads = Some(args.loops.unwrap_or(cores));
    config.clone_fd = true;
    config.acl = if rustix::process::getuid().is_root() { SessionACL::All } else { SessionACL::Owner };
    config.mount_options = vec![MountOption::FSName("plain".to_owned())];
    rustix::process::umask(rustix::fs::Mode::empty());
    let plain = Plain {
        nodes: Nodes::new(&args.store),
        files: Mutex::default(),
        folders: Mutex::default(),
        next: AtomicU64::new(1),
        direct: args.direct,
        memory: args.memory,
    };
    fuser::mount(plain, &args.mount, &config).map_err(|e| Failure::io(args.mount.display(), &e))
}

struct Plain {
    nodes: Nodes,
    files: Mutex<HashMap<u64, Arc<Open>>>,
    folders: Mutex<HashMap<u64, Arc<Names>>>,
    next: AtomicU64,
    direct: bool,
    memory: bool,
}

struct Open {
    file: File,
    node: Arc<Node>,
}

/// The entries of a directory.
type Names = Vec<(OsString, FileType)>;

type Answer<T> = Result<T, Errno>;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![7; REQUEST]);
}

fn file_type(of: fs::FileType) -> FileType {
    if of.is_dir() {
        FileType::Directory
    } else if of.is_symlink() {
        FileType::Symlink
    } else if of.is_fifo() {
        FileType::NamedPipe
    } else {
        FileType::RegularFile
    }
}

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let since = Duration::new(seconds.unsigned_abs(), nanoseconds as u32);
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

fn stamp(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() }
        }
    }
}

impl Plain {
    fn node(&self, number: INodeNo) -> Answer<Arc<Node>> {
        self.nodes.get(number.0).ok_or(Errno::ENOENT)
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> Answer<PathBuf> {
        Ok(self.node(parent)?.path().join(name))
    }

    fn attr(&self, number: u64, node: &Node) -> Answer<FileAttr> {
        let of = fs::symlink_metadata(node.path())?;
        Ok(FileAttr {
            ino: INodeNo(number),
            size: of.len().max(node.size.load(Ordering::Relaxed)),
            blocks: of.blocks(),
            atime: time(of.atime(), of.atime_nsec()),
            mtime: time(of.mtime(), of.mtime_nsec()),
            ctime: time(of.ctime(), of.ctime_nsec()),
            crtime: UNIX_EPOCH,
            kind: file_type(of.file_type()),
            perm: (of.mode() & 0o7777) as u16,
            nlink: of.nlink() as u32,
            uid: of.uid(),
            gid: of.gid(),
            rdev: of.rdev() as u32,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Gives a new node to the user who requested it, not to the server's user; PostgreSQL requires that.
    fn owned(path: PathBuf, request: &Request) -> Answer<PathBuf> {
        if request.uid() != rustix::process::geteuid().as_raw() {
            std::os::unix::fs::lchown(&path, Some(request.uid()), Some(request.gid()))?;
        }
        Ok(path)
    }

    /// Looks up a path and counts the lookup.
    fn entry(&self, path: &Path) -> Answer<FileAttr> {
        fs::symlink_metadata(path)?;
        let (number, node) = self.nodes.found(path);
        self.attr(number, &node)
    }

    fn reply_entry(&self, reply: ReplyEntry, made: Answer<PathBuf>) {
        match made.and_then(|path| self.entry(&path)) {
            Ok(attr) => reply.entry(&LASTING, &attr, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn mode(&self) -> FopenFlags {
        if self.direct {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        }
    }

    fn keep(&self, file: File, node: Arc<Node>) -> FileHandle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.files.lock().insert(handle, Arc::new(Open { file, node }));
        FileHandle(handle)
    }

    fn file(&self, handle: FileHandle) -> Answer<Arc<Open>> {
        self.files.lock().get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    fn change(
        &self,
        node: &Node,
        mode: Option<u32>,
        owner: (Option<u32>, Option<u32>),
        size: Option<u64>,
    ) -> io::Result<()> {
        let path = node.path();
        if let Some(mode) = mode {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o7777))?;
        }
        if owner != (None, None) {
            std::os::unix::fs::lchown(&path, owner.0, owner.1)?;
        }
        if let Some(size) = size {
            node.size.store(0, Ordering::Relaxed);
            OpenOptions::new().write(true).open(&path)?.set_len(size)?;
        }
        Ok(())
    }

    fn list(&self, number: INodeNo) -> Answer<Names> {
        let mut all = vec![(".".into(), FileType::Directory), ("..".into(), FileType::Directory)];
        for entry in fs::read_dir(self.node(number)?.path())? {
            let entry = entry?;
            all.push((entry.file_name(), file_type(entry.file_type()?)));
        }
        Ok(all)
    }

    fn listing(&self, handle: FileHandle) -> Answer<Arc<Names>> {
        self.folders.lock().get(&handle.0).cloned().ok_or(Errno::EBADF)
    }
}

fn empty(reply: ReplyEmpty, done: Answer<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

impl Filesystem for Plain {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO;
        // If one of these is refused, the kernel's own value remains.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(REQUEST as u32);
        let _ = config.set_max_readahead(REQUEST as u32).or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(reply, self.child(parent, name));
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.nodes.forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(number).and_then(|node| self.attr(number.0, &node)) {
            Ok(attr) => reply.attr(&LASTING, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let work = || -> Answer<FileAttr> {
            let node = self.node(number)?;
            self.change(&node, mode, (uid, gid), size)?;
            if atime.is_some() || mtime.is_some() {
                let times = Timestamps { last_access: stamp(atime), last_modification: stamp(mtime) };
                rustix::fs::utimensat(CWD, node.path(), &times, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(io::Error::from)?;
            }
            self.attr(number.0, &node)
        };
        match work() {
            Ok(attr) => reply.attr(&LASTING, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.node(number).and_then(|node| Ok(fs::read_link(node.path())?)) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(e) => reply.error(e),
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.child(parent, name).and_then(|path| {
            fs::DirBuilder::new().mode(mode & !umask).create(&path)?;
            Self::owned(path, request)
        });
        self.reply_entry(reply, made);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.child(parent, name).and_then(|path| {
            std::os::unix::fs::symlink(target, &path)?;
            Self::owned(path, request)
        });
        self.reply_entry(reply, made);
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let made = self.child(parent, name).and_then(|path| {
            fs::hard_link(self.node(number)?.path(), &path)?;
            Ok(path)
        });
        self.reply_entry(reply, made);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.child(parent, name).and_then(|path| {
            fs::remove_file(&path)?;
            self.nodes.removed(&path);
            Ok(())
        });
        empty(reply, done);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.child(parent, name).and_then(|path| {
            fs::remove_dir(&path)?;
            self.nodes.removed(&path);
            Ok(())
        });
        empty(reply, done);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let work = || -> Answer<()> {
            let (from, to) = (self.child(parent, name)?, self.child(new_parent, new_name)?);
            fs::rename(&from, &to)?;
            self.nodes.removed(&to);
            self.nodes.renamed(&from, &to);
            Ok(())
        };
        empty(reply, work());
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let made = self.child(parent, name).and_then(|path| {
            let mut options = OpenOptions::new();
            let file =
                options.read(true).write(true).create(true).truncate(true).mode(mode & !umask).open(&path)?;
            let path = Self::owned(path, request)?;
            let (number, node) = self.nodes.found(&path);
            Ok((self.attr(number, &node)?, self.keep(file, node)))
        });
        match made {
            Ok((attr, handle)) => reply.created(&LASTING, &attr, Generation(0), handle, self.mode()),
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.node(number).and_then(|node| {
            let write = flags.acc_mode() != fuser::OpenAccMode::O_RDONLY;
            let file = OpenOptions::new().read(true).write(write).open(node.path())?;
            Ok(self.keep(file, node))
        });
        match opened {
            Ok(handle) => reply.opened(handle, self.mode()),
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let open = match self.file(handle) {
            Ok(open) => open,
            Err(e) => return reply.error(e),
        };
        BUFFER.with_borrow_mut(|buffer| {
            let wanted = (size as usize).min(buffer.len());
            if self.memory {
                let left = open.node.size.load(Ordering::Relaxed).saturating_sub(offset);
                return reply.data(&buffer[..wanted.min(left as usize)]);
            }
            match open.file.read_at(&mut buffer[..wanted], offset) {
                Ok(read) => reply.data(&buffer[..read]),
                Err(e) => reply.error(e.into()),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.file(handle).and_then(|open| {
            if self.memory {
                open.node.reaches(offset.saturating_add(data.len() as u64));
            } else {
                open.file.write_all_at(data, offset)?;
            }
            Ok(())
        });
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.lock().remove(&handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, self.file(handle).and_then(|open| Ok(open.file.sync_all()?)));
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.list(number) {
            Ok(all) => {
                let handle = self.next.fetch_add(1, Ordering::Relaxed);
                self.folders.lock().insert(handle, Arc::new(all));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(e) => reply.error(e),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let all = match self.listing(handle) {
            Ok(all) => all,
            Err(e) => return reply.error(e),
        };
        for ((name, kind), next) in all.iter().skip(offset as usize).zip(offset + 1..) {
            if reply.add(number, next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let (folder, all) = match self.node(number).and_then(|node| Ok((node, self.listing(handle)?))) {
            Ok(both) => both,
            Err(e) => return reply.error(e),
        };
        let path = folder.path();
        for ((name, _), next) in all.iter().skip(offset as usize).zip(offset + 1..) {
            let dots = next <= 2;
            let attr = if dots { self.attr(number.0, &folder) } else { self.entry(&path.join(name)) };
            let Ok(attr) = attr else { continue };
            if reply.add(attr.ino, next, name, &LASTING, &attr, Generation(0)) {
                if !dots {
                    self.nodes.forget(attr.ino.0, 1);
                }
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.folders.lock().remove(&handle.0);
        reply.ok();
    }
}
