//! Requests that fuser reads from `/dev/fuse`. Each is handed to [`Requests`].

use super::{
    attr,
    caller::Caller,
    capabilities::{self, Extras, Largest},
    errno::UNSUPPORTED_REQUEST,
    read_queue::SMALL,
    requests::{Reading, Requests, Writing},
    wanted::Wanted,
};
use crossbeam_channel::Sender;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo, IoctlFlags, KernelConfig,
    LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyBmap,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::{ffi::OsStr, io, path::Path, time::SystemTime};
use vault::SetAttr;

/// The fuser filesystem of a mounted vault.
pub struct MountedFilesystem {
    /// The request handlers.
    pub requests: Requests,
    /// Maximum request sizes to negotiate with the kernel.
    pub largest: Largest,
    /// Whether rings are available.
    pub rings: bool,
    /// Notified when the kernel has initialized the mount, with whether it will use rings.
    pub begun: Sender<bool>,
}

/// Counts this event loop as busy and passes the request on.
macro_rules! serve {
    ($this:ident, $($call:tt)*) => {{
        let _busy = $this.requests.server.busy();
        $this.requests.$($call)*
    }};
}

impl Filesystem for MountedFilesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let server = &self.requests.server;
        let protocol = config.kernel_abi();
        let extras = Extras { rings: self.rings, gathering: server.caching.wants_gathering() };
        let who = (server.read_only, server.changes_alone());
        let agreed = capabilities::agree(config, who, server.judge, self.largest, extras);
        server.caching.agreed(protocol, agreed.gathering);
        let _ = self.begun.send(agreed.rings); // The mounting thread may have given up.
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        serve!(self, lookup(Caller::of(request), parent.0, name, reply));
    }

    /// Also called for each node of a batch forget request.
    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        let _busy = self.requests.server.busy_in_part();
        self.requests.forget(number.0, lookups);
    }

    fn getattr(&self, request: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        serve!(self, getattr(Caller::of(request), number.0, handle.map(|h| h.0), reply));
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
        let (mode, atime, mtime) =
            (mode.map(|m| m & 0o7777), atime.map(attr::set_time), mtime.map(attr::set_time));
        let changes = SetAttr { mode, uid, gid, size, atime, mtime };
        serve!(self, setattr(Caller::of(request), number.0, handle.map(|h| h.0), changes, reply));
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        serve!(self, readlink(Caller::of(request), number.0, reply));
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
        let new = Wanted::by(caller, mode, umask);
        serve!(self, mknod(caller, parent.0, name, new, (mode, rdev), reply));
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
        serve!(self, mkdir(caller, parent.0, name, Wanted::by(caller, mode, umask), reply));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        serve!(self, unlink(Caller::of(request), parent.0, name, reply));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        serve!(self, rmdir(Caller::of(request), parent.0, name, reply));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        serve!(self, symlink(Caller::of(request), parent.0, name, target.as_os_str(), reply));
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
        serve!(self, rename(Caller::of(request), from, to, flags, reply));
    }

    fn link(&self, request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        serve!(self, link(Caller::of(request), number.0, parent.0, name, reply));
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
        let new = Wanted::by(caller, mode, umask);
        serve!(self, create(caller, parent.0, name, new, OpenFlags(flags), reply));
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        serve!(self, open(Caller::of(request), number.0, flags, reply));
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
        // A direct read carries a lock owner, even if no lock is held. A read of pages does not.
        let page = owner.is_none();
        let read = Reading { number: number.0, handle: handle.0, offset, size, page };
        let server = &self.requests.server;
        // A small read may join queued ones.
        let _busy = if size as usize <= SMALL { server.busy_reading() } else { server.busy() };
        self.requests.read(Caller::of(request), read, reply);
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
        let write = Writing { number: number.0, handle: handle.0, offset, data, flags, open };
        serve!(self, write(Caller::of(request), write, reply));
    }

    fn flush(&self, _: &Request, number: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        serve!(self, flush(number.0, handle.0, reply));
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
        serve!(self, release(number.0, handle.0, reply));
    }

    fn fsync(&self, request: &Request, number: INodeNo, handle: FileHandle, data: bool, reply: ReplyEmpty) {
        serve!(self, fsync(Caller::of(request), number.0, (handle.0, data), reply));
    }

    fn opendir(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        serve!(self, opendir(Caller::of(request), number.0, reply));
    }

    fn readdir(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        serve!(self, readdir(Caller::of(request), number.0, handle.0, offset, reply));
    }

    fn readdirplus(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        serve!(self, readdirplus(Caller::of(request), number.0, handle.0, offset, reply));
    }

    fn releasedir(&self, _: &Request, number: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        serve!(self, releasedir(number.0, handle.0, reply));
    }

    fn fsyncdir(&self, request: &Request, number: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        serve!(self, fsyncdir(Caller::of(request), number.0, handle.0, reply));
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        serve!(self, statfs(number.0, reply));
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
        serve!(self, setxattr(Caller::of(request), number.0, name, value, flags, reply));
    }

    fn getxattr(&self, request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        serve!(self, getxattr(Caller::of(request), number.0, name, size, reply));
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        serve!(self, listxattr(Caller::of(request), number.0, size, reply));
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        serve!(self, removexattr(Caller::of(request), number.0, name, reply));
    }

    fn access(&self, request: &Request, number: INodeNo, wanted: AccessFlags, reply: ReplyEmpty) {
        serve!(self, access(Caller::of(request), number.0, wanted, reply));
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
        serve!(self, fallocate(Caller::of(request), (number.0, handle.0), (offset, len), mode, reply));
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
        serve!(self, lseek(Caller::of(request), (number.0, handle.0), offset, whence, reply));
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
        let (from, to) = ((handle_in.0, offset_in), (handle_out.0, offset_out));
        serve!(self, copy(Caller::of(request), number_out.0, from, to, len, reply));
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
