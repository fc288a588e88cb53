//! The kernel's requests as fuser delivers them: each is handed to [`Server`] and answered.

use super::{
    attr,
    by_number::ByNumber,
    caller::Caller,
    capabilities::{self, Largest},
    errno::{READ_ONLY_ATTRIBUTE, UNSUPPORTED_REQUEST},
    inodes::ROOT,
    metrics::is_metrics,
    names::Entry,
    read_queue::{QueuedRead, SMALL},
    replies::{done, or_answer, value, when_open},
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
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [name], |server, serving| {
            if let Some(what) = ByNumber::of(name) {
                return server.slowly(&serving, move |s| {
                    let find = |s: &Server| s.by_number(parent.0, what);
                    s.reply_entry(reply, s.named(caller.user, Activity::Lookup, parent.0, find));
                });
            }
            match server.named(caller.user, Activity::Lookup, parent.0, |s| s.lookup(parent.0, name)) {
                Ok(Some(found)) => server.reply_entry(reply, Ok(found)),
                // Node 0 says that there is none, and for how long that may be relied on.
                Ok(None) => reply.entry(&server.absent_ttl(), &attr::none(), Generation(0)),
                Err(e) => reply.error(e),
            }
        });
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
        let caller = Caller::of(request);
        let get = move |s: &Server| s.getattr(number.0, handle.map(|h| h.0));
        // The root's are asked for by whoever looks at the mount point.
        if number.0 == ROOT {
            let _serving = self.server.busy_without_keys();
            let known = self.server.named(caller.user, Activity::Getattr, ROOT, get);
            return self.server.reply_attr(reply, ROOT, known);
        }
        when_open!(self.server, busy, caller, reply, [], |server, _serving| {
            let known = server.named(caller.user, Activity::Getattr, number.0, get);
            server.reply_attr(reply, number.0, known);
        });
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
        when_open!(self.server, busy, caller, reply, [], |server, serving| {
            let work = move |s: &Server| {
                let set = |s: &Server| s.setattr(number.0, handle.map(|h| h.0), changes, caller);
                s.reply_attr(reply, number.0, s.named(caller.user, Activity::Setattr, number.0, set));
            };
            if size.is_some() { server.slowly(&serving, work) } else { work(server) }
        });
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [], |server, _serving| {
            match server.named(caller.user, Activity::Readlink, number.0, |s| s.readlink(number.0)) {
                Ok(target) => reply.data(target.as_encoded_bytes()),
                Err(e) => reply.error(e),
            }
        });
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
        let caller = Caller::of(request);
        let new = Wanted::by(request, mode, umask);
        when_open!(self.server, busy, caller, reply, [name], |server, _serving| {
            server.reply_entry(
                reply,
                server.named(caller.user, Activity::Mknod, parent.0, |s| {
                    s.mknod(parent.0, name, new, mode, rdev)
                }),
            );
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
        let caller = Caller::of(request);
        let new = Wanted::by(request, mode, umask);
        when_open!(self.server, busy, caller, reply, [name], |server, _serving| {
            server.reply_entry(
                reply,
                server.named(caller.user, Activity::Mkdir, parent.0, |s| s.mkdir(parent.0, name, new)),
            );
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [name], |server, _serving| {
            done(reply, server.named(caller.user, Activity::Unlink, parent.0, |s| s.unlink(parent.0, name)));
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [name], |server, _serving| {
            done(reply, server.named(caller.user, Activity::Rmdir, parent.0, |s| s.rmdir(parent.0, name)));
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let caller = Caller::of(request);
        let new = Wanted::by(request, 0o777, 0);
        when_open!(self.server, busy, caller, reply, [name, target], |server, _serving| {
            server.reply_entry(
                reply,
                server.named(caller.user, Activity::Symlink, parent.0, |s| {
                    s.symlink(parent.0, name, target.as_os_str(), new)
                }),
            );
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
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [name, newname], |server, _serving| {
            let (from, to) = ((parent.0, name), (newparent.0, newname));
            done(
                reply,
                server.named(caller.user, Activity::Rename, parent.0, |s| s.rename(from, to, flags, caller)),
            );
        });
    }

    fn link(&self, request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [name], |server, _serving| {
            server.reply_entry(
                reply,
                server.named(caller.user, Activity::Link, number.0, |s| s.link(number.0, parent.0, name)),
            );
        });
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
        let caller = Caller::of(request);
        let new = Wanted::by(request, mode, umask);
        when_open!(self.server, busy, caller, reply, [name], |server, _serving| {
            let flags = OpenFlags(flags);
            let made = server
                .named(caller.user, Activity::Create, parent.0, |s| s.create(parent.0, name, new, flags));
            match made {
                Ok((Entry { id, stat }, handle, mode)) => {
                    let (ttl, attr) = server.tell(id.number, &stat);
                    reply.created(&ttl, &attr, Generation(id.generation), FileHandle(handle), mode);
                }
                Err(e) => reply.error(e),
            }
        });
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [], |server, serving| {
            let user = caller.user;
            server.slowly(&serving, move |s| {
                match s.named(user, Activity::Open, number.0, |s| s.open(number.0, flags)) {
                    Ok((handle, mode)) => reply.opened(FileHandle(handle), mode),
                    Err(e) => reply.error(e),
                }
            });
        });
    }

    fn read(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let caller = Caller::of(request);
        when_open!(self.server, busy_reading, caller, reply, [], |server, serving| {
            let len = (size as usize).min(READ_MOST);
            match server.handles.file(handle.0) {
                Ok(file) => {
                    // A direct read names a lock owner, whether there are locks or not; a read of pages does not.
                    let page = owner.is_none().then(|| PageRead::begin(file.node.clone()));
                    if len <= SMALL {
                        return server.read_small(QueuedRead {
                            file,
                            offset,
                            len,
                            reply,
                            page,
                            pass: serving.follow(),
                        });
                    }
                    server.read_queued();
                    server.read_alone(&file, offset, len, reply);
                }
                Err(e) => {
                    server.read_queued();
                    server.answer_read(number.0, reply, Err(e));
                }
            }
        });
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
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [data], |server, _serving| {
            match server
                .answer(Activity::Write, number.0, |s| s.write(handle.0, offset, data, (flags, open), caller))
            {
                Ok(()) => {
                    metrics::bytes(Activity::Write, data.len());
                    reply.written(data.len() as u32); // The kernel's own request: at most max_write.
                }
                Err(e) => reply.error(e),
            }
        });
    }

    /// On a locked vault there is nothing to flush: a program that is killed could not end before it is answered.
    fn flush(&self, _: &Request, number: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let Some(serving) = self.server.busy_unless_locked() else { return reply.ok() };
        self.server.slowly(&serving, move |s| {
            done(reply, s.answer(Activity::Flush, number.0, |s| s.flush(handle.0)));
        });
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
        let serving = self.server.busy_without_keys();
        self.server.slowly(&serving, move |s| {
            done(reply, s.answer(Activity::Release, number.0, |s| s.release(handle.0)));
        });
    }

    fn fsync(&self, request: &Request, number: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [], |server, serving| {
            server.slowly(&serving, move |s| {
                done(reply, s.answer(Activity::Fsync, number.0, |s| s.fsync(handle.0)))
            });
        });
    }

    fn opendir(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let caller = Caller::of(request);
        let answer =
            move |s: &Server, reply: ReplyOpen| match s
                .named(caller.user, Activity::Opendir, number.0, |s| s.opendir(number.0))
            {
                Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
                Err(e) => reply.error(e),
            };
        // `df` opens the root.
        if number.0 == ROOT {
            let _serving = self.server.busy_without_keys();
            return answer(&self.server, reply);
        }
        when_open!(self.server, busy, caller, reply, [], |server, _serving| { answer(server, reply) });
    }

    fn readdir(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [], |server, _serving| {
            match server.answer(Activity::Readdir, number.0, |s| s.fill(handle.0, offset, &mut reply)) {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(e),
            }
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [], |server, _serving| {
            match server.answer(Activity::Readdir, number.0, |s| s.fill_plus(handle.0, offset, &mut reply)) {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(e),
            }
        });
    }

    fn releasedir(&self, _: &Request, number: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let _serving = self.server.busy_without_keys();
        done(reply, self.server.answer(Activity::Releasedir, number.0, |s| s.release(handle.0)));
    }

    fn fsyncdir(&self, request: &Request, number: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [], |server, serving| {
            server.slowly(&serving, move |s| {
                done(reply, s.answer(Activity::Fsyncdir, number.0, |s| s.fsyncdir(handle.0)));
            });
        });
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let _serving = self.server.busy_without_keys();
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
        if is_metrics(number.0, name) {
            return reply.error(READ_ONLY_ATTRIBUTE);
        }
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [name, value], |server, _serving| {
            let set = |s: &Server| s.setxattr(number.0, name, value, flags, caller);
            done(reply, server.named(caller.user, Activity::Setxattr, number.0, set));
        });
    }

    fn getxattr(&self, request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if let Some(numbers) = self.server.metrics(number.0, name, request.uid()) {
            let _serving = self.server.busy_without_keys();
            return value(reply, size, Ok(numbers));
        }
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [name], |server, _serving| {
            let got = server.named(caller.user, Activity::Getxattr, number.0, |s| s.getxattr(number.0, name));
            value(reply, size, got);
        });
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [], |server, _serving| {
            let result = server.named(caller.user, Activity::Listxattr, number.0, |s| s.listxattr(number.0));
            value(reply, size, result);
        });
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [name], |server, _serving| {
            done(
                reply,
                server.named(caller.user, Activity::Removexattr, number.0, |s| s.removexattr(number.0, name)),
            );
        });
    }

    /// Sent for access(2) and chdir(2) where the kernel does not judge by permission bits.
    fn access(&self, request: &Request, number: INodeNo, wanted: AccessFlags, reply: ReplyEmpty) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [], |server, _serving| {
            done(
                reply,
                server.named(caller.user, Activity::Access, number.0, |s| s.access(number.0, wanted)),
            );
        });
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
        when_open!(self.server, busy, caller, reply, [], |server, serving| {
            server.slowly(&serving, move |s| {
                done(
                    reply,
                    s.answer(Activity::Fallocate, number.0, |s| {
                        s.fallocate(handle.0, offset, len, mode, caller)
                    }),
                )
            });
        });
    }

    fn lseek(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [], |server, _serving| {
            match server.answer(Activity::Lseek, number.0, |s| s.lseek(handle.0, offset, whence)) {
                Ok(offset) => reply.offset(offset),
                Err(e) => reply.error(e),
            }
        });
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
        let caller = Caller::of(request);
        when_open!(self.server, busy, caller, reply, [], |server, serving| {
            let (from, to) = ((handle_in.0, offset_in), (handle_out.0, offset_out));
            server.slowly(&serving, move |s| {
                match s.answer(Activity::Copy, number_out.0, |s| s.copy(from, to, len, caller)) {
                    Ok(copied) => reply.written(copied),
                    Err(e) => reply.error(e),
                }
            });
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
