//! The kernel's requests as fuser delivers them: each is handed to [`Server`] and answered.

use super::{
    attr,
    caller::Caller,
    capabilities::{self, Largest},
    errno::{READ_ONLY_ATTRIBUTE, UNSUPPORTED_REQUEST},
    metrics::is_metrics,
    names::Entry,
    read_queue::{QueuedRead, SMALL},
    replies::{done, value},
    server::Server,
    stale::PageRead,
    wanted::Wanted,
};
use crate::{
    metrics::{self, Activity},
    vault::SetAttr,
};
use crossbeam_channel::Sender;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use std::{ffi::OsStr, io, path::Path, sync::Arc, time::SystemTime};

/// Most bytes of one read; the kernel asks for less.
const READ_MOST: usize = 16 << 20;

/// A mounted vault.
pub struct Mounted {
    /// What answers the requests.
    pub server: Arc<Server>,
    /// The largest requests, as agreed on with the kernel.
    pub largest: Largest,
    /// Is told when the kernel has begun: from then on every request is answered.
    pub begun: Sender<()>,
}

impl Filesystem for Mounted {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.server.caching.agreed(config.kernel_abi());
        capabilities::agree(config, self.server.read_only, self.server.judge, self.largest);
        let _ = self.begun.send(()); // Who mounts may have given up.
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _busy = self.server.busy();
        match self.server.named(request.uid(), Activity::Lookup, parent.0, |s| s.lookup(parent.0, name)) {
            Ok(Some(found)) => self.server.reply_entry(reply, Ok(found)),
            // Node 0 says that there is none, and for how long that may be relied on.
            Ok(None) => reply.entry(&self.server.absent_ttl(), &attr::none(), Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    /// Also called for each node of a request to forget many.
    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        let _busy = self.server.busy_in_part();
        let _ = self.server.answer(Activity::Forget, number.0, |s| {
            s.inodes.forget(number.0, lookups);
            Ok(())
        });
    }

    fn getattr(&self, request: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let _busy = self.server.busy();
        let get = |s: &Server| s.getattr(number.0, handle.map(|h| h.0));
        self.server.reply_attr(
            reply,
            number.0,
            self.server.named(request.uid(), Activity::Getattr, number.0, get),
        );
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (mode, mtime) = (mode.map(|m| m & 0o7777), mtime.map(attr::set_time));
        let mut changes = SetAttr { mode, uid, gid, size, atime: atime.map(attr::set_time), mtime };
        attr::touch_resized(&mut changes);
        let caller = Caller::of(request);
        let work = move |s: &Server| {
            let set = |s: &Server| s.setattr(number.0, handle.map(|h| h.0), changes, caller);
            s.reply_attr(reply, number.0, s.named(caller.user, Activity::Setattr, number.0, set));
        };
        let _busy = self.server.busy();
        if size.is_some() { self.server.slowly(work) } else { work(&self.server) }
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        let _busy = self.server.busy();
        match self.server.named(request.uid(), Activity::Readlink, number.0, |s| s.readlink(number.0)) {
            Ok(target) => reply.data(target.as_encoded_bytes()),
            Err(e) => reply.error(e),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let new = Wanted::by(request, mode, umask);
        self.server.answer_entry(request, Activity::Mknod, parent, reply, |s| {
            s.mknod(parent.0, name, new, mode, rdev)
        });
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
        let new = Wanted::by(request, mode, umask);
        self.server.answer_entry(request, Activity::Mkdir, parent, reply, |s| s.mkdir(parent.0, name, new));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.server.answer_done(request, Activity::Unlink, parent, reply, |s| s.unlink(parent.0, name));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.server.answer_done(request, Activity::Rmdir, parent, reply, |s| s.rmdir(parent.0, name));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let new = Wanted::by(request, 0o777, 0);
        self.server.answer_entry(request, Activity::Symlink, parent, reply, |s| {
            s.symlink(parent.0, name, target.as_os_str(), new)
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name), (newparent.0, newname));
        let caller = Caller::of(request);
        self.server
            .answer_done(request, Activity::Rename, parent, reply, |s| s.rename(from, to, flags, caller));
    }

    fn link(&self, request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.server
            .answer_entry(request, Activity::Link, number, reply, |s| s.link(number.0, parent.0, name));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _busy = self.server.busy();
        let new = Wanted::by(request, mode, umask);
        let flags = OpenFlags(flags);
        let made = self
            .server
            .named(request.uid(), Activity::Create, parent.0, |s| s.create(parent.0, name, new, flags));
        match made {
            Ok((Entry { id, stat }, handle, mode)) => {
                let (ttl, attr) = self.server.tell(id.number, &stat);
                reply.created(&ttl, &attr, Generation(id.generation), FileHandle(handle), mode);
            }
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _busy = self.server.busy();
        let user = request.uid();
        self.server.slowly(move |s| {
            match s.named(user, Activity::Open, number.0, |s| s.open(number.0, flags)) {
                Ok((handle, mode)) => reply.opened(FileHandle(handle), mode),
                Err(e) => reply.error(e),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _busy = self.server.busy_reading();
        let len = (size as usize).min(READ_MOST);
        match self.server.handles.file(handle.0) {
            Ok(file) => {
                // A direct read names a lock owner, whether there are locks or not; a read of pages does not.
                let page = owner.is_none().then(|| PageRead::begin(file.node.clone()));
                if len <= SMALL {
                    return self.server.read_small(QueuedRead { file, offset, len, reply, page });
                }
                self.server.read_queued();
                self.server.read_alone(&file, offset, len, reply);
            }
            Err(e) => {
                self.server.read_queued();
                self.server.answer_read(number.0, reply, Err(e));
            }
        }
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _busy = self.server.busy();
        let caller = Caller::of(request);
        match self
            .server
            .answer(Activity::Write, number.0, |s| s.write(handle.0, offset, data, (flags, open), caller))
        {
            Ok(()) => {
                metrics::bytes(Activity::Write, data.len());
                reply.written(data.len() as u32); // The kernel's own request: at most max_write.
            }
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _: &Request, number: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.server.answer_done_slowly(Activity::Flush, number, reply, move |s| s.flush(handle.0));
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.server.answer_done_slowly(Activity::Release, number, reply, move |s| s.release(handle.0));
    }

    fn fsync(&self, _: &Request, number: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.server.answer_done_slowly(Activity::Fsync, number, reply, move |s| s.fsync(handle.0));
    }

    fn opendir(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let _busy = self.server.busy();
        match self.server.named(request.uid(), Activity::Opendir, number.0, |s| s.opendir(number.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
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
        let _busy = self.server.busy();
        match self.server.answer(Activity::Readdir, number.0, |s| s.fill(handle.0, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _busy = self.server.busy();
        match self.server.answer(Activity::Readdir, number.0, |s| s.fill_plus(handle.0, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn releasedir(&self, _: &Request, number: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let _busy = self.server.busy();
        done(reply, self.server.answer(Activity::Releasedir, number.0, |s| s.release(handle.0)));
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.server.answer_done_slowly(Activity::Fsyncdir, number, reply, move |s| s.fsyncdir(handle.0));
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let _busy = self.server.busy();
        match self.server.answer(Activity::Statfs, number.0, |s| s.statfs()) {
            Ok(s) => {
                reply.statfs(s.blocks, s.bfree, s.bavail, s.files, s.ffree, s.bsize, s.namelen, s.frsize);
            }
            Err(e) => reply.error(e),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let _busy = self.server.busy();
        if is_metrics(number.0, name) {
            return reply.error(READ_ONLY_ATTRIBUTE);
        }
        let caller = Caller::of(request);
        let set = |s: &Server| s.setxattr(number.0, name, value, flags, caller);
        done(reply, self.server.named(request.uid(), Activity::Setxattr, number.0, set));
    }

    fn getxattr(&self, request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _busy = self.server.busy();
        if let Some(numbers) = self.server.metrics(number.0, name, request.uid()) {
            return value(reply, size, Ok(numbers));
        }
        let result =
            self.server.named(request.uid(), Activity::Getxattr, number.0, |s| s.getxattr(number.0, name));
        value(reply, size, result);
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let _busy = self.server.busy();
        let result =
            self.server.named(request.uid(), Activity::Listxattr, number.0, |s| s.listxattr(number.0));
        value(reply, size, result);
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.server
            .answer_done(request, Activity::Removexattr, number, reply, |s| s.removexattr(number.0, name));
    }

    /// Sent for access(2) and chdir(2) where the kernel does not judge by permission bits.
    fn access(&self, request: &Request, number: INodeNo, wanted: AccessFlags, reply: ReplyEmpty) {
        self.server.answer_done(request, Activity::Access, number, reply, |s| s.access(number.0, wanted));
    }

    fn fallocate(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let caller = Caller::of(request);
        self.server.answer_done_slowly(Activity::Fallocate, number, reply, move |s| {
            s.fallocate(handle.0, offset, len, mode, caller)
        });
    }

    fn lseek(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _busy = self.server.busy();
        match self.server.answer(Activity::Lseek, number.0, |s| s.lseek(handle.0, offset, whence)) {
            Ok(offset) => reply.offset(offset),
            Err(e) => reply.error(e),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        handle_in: FileHandle,
        offset_in: u64,
        number_out: INodeNo,
        handle_out: FileHandle,
        offset_out: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _busy = self.server.busy();
        let caller = Caller::of(request);
        let (from, to) = ((handle_in.0, offset_in), (handle_out.0, offset_out));
        self.server.slowly(move |s| {
            match s.answer(Activity::Copy, number_out.0, |s| s.copy(from, to, len, caller)) {
                Ok(copied) => reply.written(copied),
                Err(e) => reply.error(e),
            }
        });
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.error(UNSUPPORTED_REQUEST);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(UNSUPPORTED_REQUEST);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(UNSUPPORTED_REQUEST);
    }
}
