//! A reverse view as a filesystem. It is read-only, and the stored form is computed on each read.

use super::{
    errno::Answer,
    owners::Owners,
    permission_policy::PermissionPolicy,
    reverse_attr::{attr, file_type, kind, unknown},
    workers::Workers,
};
use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use parking_lot::Mutex;
use reverse::{Content, View, ViewEntry, ViewNode};
use rustix::fs::Stat;
use std::{
    collections::HashMap,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How long the kernel may cache attributes and names: other programs change the plain directory.
const VALID: Duration = Duration::from_secs(1);
const ROOT: u64 = 1;
/// No file has this size, so the next open makes the kernel look the file up again.
const UNTOLD: i64 = -1;

/// Key of a node: all names of one inode are one node.
#[derive(Clone, PartialEq, Eq, Hash)]
enum NodeKey {
    Place(ViewNode),
    Linked(u64, u64),
}

struct KnownNode {
    node: ViewNode,
    identity: NodeKey,
    lookups: u64,
    /// The stored size that the kernel was told last.
    size: i64,
}

#[derive(Default)]
struct NodeTable {
    by_number: HashMap<u64, KnownNode>,
    numbers: HashMap<NodeKey, u64>,
    last: u64,
}

#[derive(Clone)]
enum OpenNode {
    File(Arc<Content>, PathBuf),
    Own(Arc<Vec<u8>>),
    Dir(Arc<Vec<ViewEntry>>),
}

impl OpenNode {
    fn is_slow(&self) -> bool {
        matches!(self, OpenNode::File(content, _) if content.is_slow())
    }

    fn bytes(&self, offset: u64, size: usize) -> io::Result<Vec<u8>> {
        match self {
            OpenNode::File(content, path) => content.read(offset, size).inspect_err(|e| unreadable(path, e)),
            OpenNode::Own(content) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = content.get(from..).unwrap_or_default();
                Ok(rest[..rest.len().min(size)].to_vec())
            }
            OpenNode::Dir(_) => Err(rustix::io::Errno::ISDIR.into()),
        }
    }
}

/// The filesystem of a reverse view.
pub struct Reversed {
    view: View,
    judge: PermissionPolicy,
    owners: Owners,
    nodes: Mutex<NodeTable>,
    opened: Mutex<HashMap<u64, OpenNode>>,
    next_handle: AtomicU64,
    workers: Workers,
}

impl Reversed {
    /// Creates the filesystem of `view`, which shows these `owners`.
    pub fn new(view: View, judge: PermissionPolicy, owners: Owners) -> Self {
        let node = ViewNode::Plain(PathBuf::new());
        let identity = NodeKey::Place(node.clone());
        let root = KnownNode { node, identity: identity.clone(), lookups: 1, size: 0 };
        let nodes = NodeTable {
            by_number: HashMap::from([(ROOT, root)]),
            numbers: HashMap::from([(identity, ROOT)]),
            last: ROOT,
        };
        Reversed {
            view,
            judge,
            owners,
            nodes: Mutex::new(nodes),
            opened: Mutex::default(),
            next_handle: AtomicU64::new(1),
            workers: Workers::new(),
        }
    }

    fn node(&self, number: INodeNo) -> io::Result<ViewNode> {
        let nodes = self.nodes.lock();
        nodes.by_number.get(&number.0).map(|known| known.node.clone()).ok_or_else(gone)
    }

    fn path(&self, number: INodeNo) -> io::Result<PathBuf> {
        match self.node(number)? {
            ViewNode::Plain(path) => Ok(path),
            ViewNode::DirId(_) | ViewNode::Sidecar(_) | ViewNode::Config { .. } => Err(gone()),
        }
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let node = self.view.lookup(&self.path(parent)?, name)?;
        let stat = self.view.stat(&node)?;
        Ok(self.found(node, &stat))
    }

    /// Attributes of a listed entry, and how long they are valid; `None` if it has vanished. Counts a
    /// lookup.
    fn find_listed(&self, entry: &ViewEntry) -> Option<(FileAttr, Duration)> {
        let node = entry.node.clone();
        match self.view.stat(&node) {
            Ok(stat) => Some((self.found(node, &stat), VALID)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            // List it anyway, or copies would silently omit it: a program that wants more than its name
            // asks again and gets the error.
            Err(_) => {
                let number = self.know(node.clone(), NodeKey::Place(node), 0);
                Some((unknown(number, entry.kind), Duration::ZERO))
            }
        }
    }

    /// Attributes of a node that the kernel looks up.
    fn found(&self, node: ViewNode, stat: &Stat) -> FileAttr {
        let linked = matches!(node, ViewNode::Plain(_))
            && kind(stat) != FileType::Directory
            && self.view.is_linked(stat);
        let identity =
            if linked { NodeKey::Linked(stat.st_dev, stat.st_ino) } else { NodeKey::Place(node.clone()) };
        attr(self.know(node, identity, stat.st_size), stat, self.owners)
    }

    /// Counts a lookup of a node, and returns its number.
    fn know(&self, node: ViewNode, identity: NodeKey, size: i64) -> u64 {
        let mut nodes = self.nodes.lock();
        let number = match nodes.numbers.get(&identity) {
            Some(number) => *number,
            None => {
                nodes.last += 1;
                let number = nodes.last;
                nodes.numbers.insert(identity.clone(), number);
                number
            }
        };
        let new = KnownNode { node: node.clone(), identity, lookups: 0, size: 0 };
        let known = nodes.by_number.entry(number).or_insert(new);
        // Of several names, the one seen last is the most likely to exist.
        known.node = node;
        known.lookups += 1;
        known.size = size;
        number
    }

    /// Undoes the lookup of an entry whose attributes did not reach the kernel, which may still have
    /// others.
    fn take_back(&self, number: u64) {
        if let Some(known) = self.nodes.lock().by_number.get_mut(&number) {
            known.size = UNTOLD;
        }
        self.let_go(number, 1);
    }

    fn let_go(&self, number: u64, count: u64) {
        let mut nodes = self.nodes.lock();
        let Some(known) = nodes.by_number.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups == 0 && number != ROOT {
            let identity = known.identity.clone();
            nodes.by_number.remove(&number);
            // Keep the number of a linked file: a copying program recognizes its names as one file by
            // this number, even if the kernel has forgotten it in between.
            if let NodeKey::Place(_) = identity {
                nodes.numbers.remove(&identity);
            }
        }
    }

    /// Fills a reply with names and attributes, starting at an offset. Every entry in it counts as a
    /// lookup.
    fn fill_plus(&self, number: u64, entries: &[ViewEntry], offset: u64, reply: &mut ReplyDirectoryPlus) {
        let mut add = |place, name: &OsStr, attr: &FileAttr, valid| {
            reply.add(attr.ino, place, name, &valid, attr, Generation(0))
        };
        // The kernel does not instantiate `.` and `..`, and counts no lookup for them.
        let own = [(".", number), ("..", ROOT)];
        for (place, (name, number)) in (1..).zip(own).skip(offset as usize) {
            let dir = unknown(number, rustix::fs::FileType::Directory);
            if add(place, OsStr::new(name), &dir, Duration::ZERO) {
                return;
            }
        }
        let done = offset.saturating_sub(own.len() as u64);
        for (place, entry) in (1 + own.len() as u64..).zip(entries).skip(done as usize) {
            let Some((attr, valid)) = self.find_listed(entry) else { continue };
            if add(place, &entry.name, &attr, valid) {
                return self.take_back(attr.ino.0);
            }
        }
    }

    /// Returns attributes; with a file handle, those of the file as it was opened.
    fn stat(&self, number: INodeNo, handle: Option<FileHandle>) -> io::Result<FileAttr> {
        let stat = match handle.map(|handle| self.opened(handle)).transpose()? {
            Some(OpenNode::File(content, _)) => content.stat()?,
            Some(OpenNode::Own(_) | OpenNode::Dir(_)) | None => self.view.stat(&self.node(number)?)?,
        };
        if let Some(known) = self.nodes.lock().by_number.get_mut(&number.0) {
            known.size = stat.st_size;
        }
        Ok(attr(number.0, &stat, self.owners))
    }

    /// Opens a plain file, which must have the size that the kernel was told. Programs rely on that size:
    /// with another one, a copy would be silently truncated or incomplete. The kernel looks a stale file
    /// up again.
    fn content(&self, number: INodeNo, path: &Path) -> io::Result<Content> {
        let content = self.view.content(path)?;
        let told = self.nodes.lock().by_number.get(&number.0).map(|known| known.size);
        if told != i64::try_from(content.stored_size()).ok() {
            log::warn!("{}: changed since the lookup; repeating the lookup", path.display());
            return Err(gone());
        }
        Ok(content)
    }

    fn keep(&self, opened: OpenNode) -> FileHandle {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.opened.lock().insert(handle, opened);
        FileHandle(handle)
    }

    fn opened(&self, handle: FileHandle) -> io::Result<OpenNode> {
        self.opened.lock().get(&handle.0).cloned().ok_or_else(gone)
    }

    fn open_file(&self, number: INodeNo) -> io::Result<FileHandle> {
        Ok(self.keep(match self.node(number)? {
            ViewNode::Plain(path) => OpenNode::File(Arc::new(self.content(number, &path)?), path),
            own @ (ViewNode::DirId(_) | ViewNode::Sidecar(_) | ViewNode::Config { .. }) => {
                OpenNode::Own(Arc::new(self.view.own_content(&own)?))
            }
        }))
    }

    fn entries(&self, handle: FileHandle) -> io::Result<Arc<Vec<ViewEntry>>> {
        match self.opened(handle)? {
            OpenNode::Dir(entries) => Ok(entries),
            OpenNode::File(..) | OpenNode::Own(_) => Err(rustix::io::Errno::NOTDIR.into()),
        }
    }
}

impl Filesystem for Reversed {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        let _ = config.add_capabilities(wanted & config.capabilities());
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.judge.admit(request.uid()).and_then(|()| Ok(self.find(parent, name)?)) {
            Ok(attr) => reply.entry(&VALID, &attr, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, count: u64) {
        self.let_go(number.0, count);
    }

    fn getattr(&self, request: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        // A program with an open file was admitted, or was given the descriptor.
        let admitted = if handle.is_some() { Ok(()) } else { self.judge.admit(request.uid()) };
        match admitted.and_then(|()| Ok(self.stat(number, handle)?)) {
            Ok(attr) => reply.attr(&VALID, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        let target = || Ok(self.path(number).and_then(|path| self.view.target(&path))?);
        match self.judge.admit(request.uid()).and_then(|()| target()) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.judge.admit(request.uid()).and_then(|()| Ok(self.open_file(number)?)) {
            // Cached pages belong to the inode: one handle would see data that another read before the
            // file changed.
            Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO),
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
        let opened = match self.opened(handle) {
            Ok(opened) => opened,
            Err(e) => return reply.error(e.into()),
        };
        let is_slow = opened.is_slow();
        let answer = move || match opened.bytes(offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(e) => reply.error(e.into()),
        };
        if is_slow { self.workers.run(answer) } else { answer() }
    }

    /// Nothing is ever written.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    /// Sent for root, where the kernel does not check.
    fn access(&self, request: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        match self.judge.admit(request.uid()) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
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
        self.opened.lock().remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let entries = || Ok(self.path(number).and_then(|path| self.view.list(&path))?);
        match self.judge.admit(request.uid()).and_then(|()| entries()) {
            Ok(entries) => reply.opened(self.keep(OpenNode::Dir(Arc::new(entries))), FopenFlags::empty()),
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
        let entries = match self.entries(handle) {
            Ok(entries) => entries,
            Err(e) => return reply.error(e.into()),
        };
        let own = [(".", number.0), ("..", ROOT)]
            .map(|(name, inode)| (inode, FileType::Directory, OsStr::new(name)));
        let others = entries.iter().map(|e| (e.inode, file_type(e.kind), e.name.as_os_str()));
        for (place, (inode, kind, name)) in (1_u64..).zip(own.into_iter().chain(others)).skip(offset as usize)
        {
            if reply.add(INodeNo(inode), place, kind, name) {
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
        match self.entries(handle) {
            Ok(entries) => {
                self.fill_plus(number.0, &entries, offset, &mut reply);
                reply.ok();
            }
            Err(e) => reply.error(e.into()),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.opened.lock().remove(&handle.0);
        reply.ok();
    }

    fn getxattr(&self, request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = || Ok(self.node(number).and_then(|node| self.view.attribute(&node, name))?);
        answer_xattr(self.judge.admit(request.uid()).and_then(|()| value()), size, reply);
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let names = || Ok(self.node(number).and_then(|node| self.view.attributes(&node))?);
        let names = self.judge.admit(request.uid()).and_then(|()| names());
        let list =
            names.map(|names| names.iter().flat_map(|name| [name.as_bytes(), &[0]].concat()).collect());
        answer_xattr(list, size, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.view.space() {
            Ok(space) => reply.statfs(
                space.f_blocks,
                space.f_bfree,
                space.f_bavail,
                space.f_files,
                space.f_ffree,
                space.f_bsize as u32,
                space.f_namemax as u32,
                space.f_frsize as u32,
            ),
            Err(e) => reply.error(e.into()),
        }
    }
}

/// A `room` of 0 asks for the length only.
fn answer_xattr(bytes: Answer<Vec<u8>>, room: u32, reply: ReplyXattr) {
    match bytes {
        Ok(bytes) if room == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > room as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(e) => reply.error(e),
    }
}

fn unreadable(path: &Path, error: &io::Error) {
    log::error!("{}: cannot be read for the view, try again: {error}", path.display());
}

fn gone() -> io::Error {
    rustix::io::Errno::STALE.into()
}
