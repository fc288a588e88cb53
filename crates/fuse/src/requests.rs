//! Handlers for all requests of the kernel, over either transport. A request passes the gate or is held
//! there, its user is admitted, the work is done, and the answer is sent.

use super::{
    attr,
    by_number::ByNumber,
    caller::Caller,
    errno::{Answer, READ_ONLY_ATTRIBUTE, UNSUPPORTED_REQUEST},
    gate::RequestGuard,
    inodes::ROOT,
    metrics::is_metrics,
    names::Entry,
    read_queue::{QueuedRead, SMALL},
    replies::{
        AttrReply, Created, FoundReply, Listing, ListingPlus, OpenReply, Place, Reply, Value, Written,
    },
    server::{Server, Transport},
    small_reads::ReadReply,
    stale::PageRead,
    wanted::Wanted,
};
use fuser::{AccessFlags, FopenFlags, OpenFlags, RenameFlags, WriteFlags};
use metrics::Activity;
use std::{ffi::OsStr, sync::Arc, time::Duration};
use vault::{Kind, SetAttr, StatFs};

/// Maximum bytes of one read; the kernel requests less.
const READ_MOST: usize = 16 << 20;

/// Serves requests of one transport.
#[derive(Clone)]
pub struct Requests {
    /// The state that the requests work on.
    pub server: Arc<Server>,
    /// The transport of the requests.
    pub transport: Transport,
}

/// A read request.
pub struct Reading {
    /// The node.
    pub number: u64,
    /// The open file.
    pub handle: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Number of bytes.
    pub size: u32,
    /// Whether the read fills pages of the kernel's cache.
    pub page: bool,
}

/// A write request.
pub struct Writing<'a> {
    /// The node.
    pub number: u64,
    /// The open file.
    pub handle: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The bytes to write.
    pub data: &'a [u8],
    /// Flags of the request.
    pub flags: WriteFlags,
    /// The file's current open flags.
    pub open: OpenFlags,
}

/// Runs `$body` with the `$server` and the request's `$pass`: at once, or when the vault is unlocked or
/// thawed. If the request is held, its `$owned` parts are copied.
macro_rules! when_open {
    ($this:expr, $caller:expr, $reply:ident, [$($owned:ident),*], |$server:ident, $pass:ident| $body:block) => {
        match $this.server.pass() {
            Some($pass) => {
                let $server = &$this.server;
                $body
            }
            None => {
                $(let $owned = $owned.to_owned();)*
                $this.server.hold($caller, move |$server, pass: Answer<RequestGuard>| {
                    $(let $owned = &*$owned;)*
                    let $pass = match pass {
                        Ok(pass) => pass,
                        Err(e) => return $reply.answer(Err(e)),
                    };
                    $body
                })
            }
        }
    };
}

impl Requests {
    /// Looks up a name.
    pub fn lookup(&self, caller: Caller, parent: u64, name: &OsStr, reply: impl Reply<FoundReply>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [name], |server, pass| {
            if let Some(what) = ByNumber::of(name) {
                return server.run_blocking(transport, pass, move |s| {
                    let found = s.named(caller.user, Activity::Lookup, parent, |s| s.by_number(parent, what));
                    reply.answer(found.map(|entry| s.found_entry(&entry)));
                });
            }
            let name = name.to_owned();
            server.beside_others(transport, pass, move |s| {
                let found = s.named(caller.user, Activity::Lookup, parent, |s| s.lookup(parent, &name));
                reply.answer(found.map(|found| match found {
                    Some(entry) => s.found_entry(&entry),
                    None => s.no_entry(),
                }));
            });
        });
    }

    /// Subtracts `lookups` from the kernel's lookups of a node.
    pub fn forget(&self, number: u64, lookups: u64) {
        let _pass = self.server.gate.try_pass();
        let _ = self.server.answer(Activity::Forget, number, |s| {
            s.inodes.forget(number, lookups);
            Ok(())
        });
    }

    /// Returns attributes; those of an open file if there is a handle.
    pub fn getattr(&self, caller: Caller, number: u64, handle: Option<u64>, reply: impl Reply<AttrReply>) {
        let answer = move |s: &Server| {
            let get = |s: &Server| s.getattr(number, handle);
            let got = s.reached(handle, caller.user, Activity::Getattr, number, get);
            got.map(|stat| s.tell(number, &stat))
        };
        // Programs that look at the mount point need the root's attributes, so the root is served even
        // while the vault is locked.
        if number == ROOT {
            let _pass = self.server.gate.try_pass();
            return reply.answer(answer(&self.server));
        }
        when_open!(self, caller, reply, [], |server, _pass| { reply.answer(answer(server)) });
    }

    /// Changes attributes.
    pub fn setattr(
        &self,
        caller: Caller,
        number: u64,
        handle: Option<u64>,
        mut changes: SetAttr,
        reply: impl Reply<AttrReply>,
    ) {
        attr::touch_resized(&mut changes);
        let transport = self.transport;
        when_open!(self, caller, reply, [], |server, pass| {
            let work = move |s: &Server| {
                let set = |s: &Server| s.setattr(number, handle, changes, caller);
                let stat = s.reached(handle, caller.user, Activity::Setattr, number, set);
                reply.answer(stat.map(|stat| s.tell(number, &stat)));
            };
            match changes.size {
                Some(_) => server.run_blocking(transport, pass, work),
                None => server.beside_others(transport, pass, work),
            }
        });
    }

    /// Returns the target of a symbolic link.
    pub fn readlink(&self, caller: Caller, number: u64, reply: impl for<'a> Reply<&'a [u8]>) {
        when_open!(self, caller, reply, [], |server, _pass| {
            let target = server.named(caller.user, Activity::Readlink, number, |s| s.readlink(number));
            match &target {
                Ok(target) => reply.answer(Ok(target.as_encoded_bytes())),
                Err(e) => reply.answer(Err(*e)),
            }
        });
    }

    /// Creates a file without opening it, or a FIFO, a socket or a device. `format` is the mode including
    /// the type.
    pub fn mknod(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        new: Wanted,
        (format, rdev): (u32, u32),
        reply: impl Reply<FoundReply>,
    ) {
        let transport = self.transport;
        when_open!(self, caller, reply, [name], |server, pass| {
            let name = name.to_owned();
            server.beside_others(transport, pass, move |s| {
                let make = |s: &Server| s.mknod(parent, &name, new, format, rdev);
                reply.answer(s.entry(caller, Activity::Mknod, parent, make));
            });
        });
    }

    /// Creates a directory.
    pub fn mkdir(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        new: Wanted,
        reply: impl Reply<FoundReply>,
    ) {
        let transport = self.transport;
        when_open!(self, caller, reply, [name], |server, pass| {
            let name = name.to_owned();
            server.beside_others(transport, pass, move |s| {
                reply.answer(s.entry(caller, Activity::Mkdir, parent, |s| s.mkdir(parent, &name, new)));
            });
        });
    }

    /// Removes a name of a node other than a directory.
    pub fn unlink(&self, caller: Caller, parent: u64, name: &OsStr, reply: impl Reply<()>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [name], |server, pass| {
            let name = name.to_owned();
            server.beside_others(transport, pass, move |s| {
                let remove = |s: &Server| s.unlink(parent, &name);
                reply.answer(s.named(caller.user, Activity::Unlink, parent, remove));
            });
        });
    }

    /// Removes a directory.
    pub fn rmdir(&self, caller: Caller, parent: u64, name: &OsStr, reply: impl Reply<()>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [name], |server, pass| {
            let name = name.to_owned();
            server.beside_others(transport, pass, move |s| {
                reply.answer(s.named(caller.user, Activity::Rmdir, parent, |s| s.rmdir(parent, &name)));
            });
        });
    }

    /// Creates a symbolic link.
    pub fn symlink(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        target: &OsStr,
        reply: impl Reply<FoundReply>,
    ) {
        let (transport, new) = (self.transport, Wanted::by(caller, 0o777, 0));
        when_open!(self, caller, reply, [name, target], |server, pass| {
            let (name, target) = (name.to_owned(), target.to_owned());
            server.beside_others(transport, pass, move |s| {
                let make = |s: &Server| s.symlink(parent, &name, &target, new);
                reply.answer(s.entry(caller, Activity::Symlink, parent, make));
            });
        });
    }

    /// Renames a node, or exchanges two.
    pub fn rename(
        &self,
        caller: Caller,
        (parent, name): (u64, &OsStr),
        (newparent, newname): (u64, &OsStr),
        flags: RenameFlags,
        reply: impl Reply<()>,
    ) {
        let transport = self.transport;
        when_open!(self, caller, reply, [name, newname], |server, pass| {
            let (name, newname) = (name.to_owned(), newname.to_owned());
            server.beside_others(transport, pass, move |s| {
                let rename = |s: &Server| s.rename((parent, &name), (newparent, &newname), flags, caller);
                reply.answer(s.named(caller.user, Activity::Rename, parent, rename));
            });
        });
    }

    /// Adds a name to a node.
    pub fn link(
        &self,
        caller: Caller,
        number: u64,
        parent: u64,
        name: &OsStr,
        reply: impl Reply<FoundReply>,
    ) {
        let transport = self.transport;
        when_open!(self, caller, reply, [name], |server, pass| {
            let name = name.to_owned();
            server.beside_others(transport, pass, move |s| {
                let link = |s: &Server| s.link(number, parent, &name);
                reply.answer(s.entry(caller, Activity::Link, number, link));
            });
        });
    }

    /// Creates a file and opens it.
    pub fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        new: Wanted,
        flags: OpenFlags,
        reply: impl Reply<Created>,
    ) {
        let transport = self.transport;
        when_open!(self, caller, reply, [name], |server, pass| {
            let name = name.to_owned();
            server.beside_others(transport, pass, move |s| {
                let create = |s: &Server| s.create(parent, &name, new, flags);
                let made = s.named(caller.user, Activity::Create, parent, create);
                reply.answer(made.map(|made| s.created(made)));
            });
        });
    }

    /// Creates a file without a name, in the filesystem of a directory, and opens it. fuser does not know
    /// this request, so it arrives only over rings.
    pub fn tmpfile(
        &self,
        caller: Caller,
        parent: u64,
        new: Wanted,
        flags: OpenFlags,
        reply: impl Reply<Created>,
    ) {
        when_open!(self, caller, reply, [], |server, _pass| {
            let made = server.named(caller.user, Activity::Create, parent, |s| s.tmpfile(parent, new, flags));
            reply.answer(made.map(|made| server.created(made)));
        });
    }

    /// Opens a file.
    pub fn open(&self, caller: Caller, number: u64, flags: OpenFlags, reply: impl Reply<OpenReply>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [], |server, pass| {
            server.run_blocking(transport, pass, move |s| {
                let opened = s.named(caller.user, Activity::Open, number, |s| s.open(number, flags));
                reply.answer(opened.map(|(handle, mode)| OpenReply { handle, mode }));
            });
        });
    }

    /// Reads from a file.
    pub fn read<R: ReadReply>(&self, caller: Caller, read: Reading, reply: R) {
        when_open!(self, caller, reply, [], |server, pass| {
            let len = (read.size as usize).min(READ_MOST);
            match server.handles.file(read.handle) {
                Ok(file) => {
                    let page = read.page.then(|| PageRead::begin(file.node.clone()));
                    let offset = read.offset;
                    if len <= SMALL {
                        return R::read_small(server, QueuedRead { file, offset, len, reply, page, pass });
                    }
                    server.read_queued();
                    server.read_alone(&file, offset, len, page.is_some(), reply);
                }
                Err(e) => {
                    server.read_queued();
                    server.answer_read(read.number, reply, Err(e));
                }
            }
        });
    }

    /// Writes to a file.
    pub fn write<R: Reply<Written>>(&self, caller: Caller, write: Writing, reply: R) {
        let Writing { number, handle, offset, data, flags, open } = write;
        let transport = self.transport;
        let work = move |server: &Server, data: &[u8], reply: R| {
            let write = |s: &Server| s.write(handle, offset, data, (flags, open), caller, transport);
            reply.answer(server.answer(Activity::Write, number, write).map(|()| {
                metrics::bytes(Activity::Write, data.len());
                Written(data.len() as u32) // The kernel sends at most max_write bytes.
            }));
        };
        when_open!(self, caller, reply, [data], |server, pass| {
            if server.may_wait_to_write(handle) {
                let data = data.to_owned();
                server.run_blocking(transport, pass, move |s| work(s, &data, reply));
            } else {
                work(server, data, reply);
            }
        });
    }

    /// Called when a program closes one of its descriptors. A locked vault has nothing to flush, and
    /// answers at once: a killed program cannot exit before that.
    pub fn flush(&self, number: u64, handle: u64, reply: impl Reply<()>) {
        let transport = self.transport;
        let flush = move |server: &Arc<Server>, pass: Answer<RequestGuard>| match pass {
            Ok(pass) => server.run_blocking(transport, pass, move |s| {
                reply.answer(s.answer(Activity::Flush, number, |s| s.flush(handle)));
            }),
            Err(_) => reply.answer(Ok(())),
        };
        match self.server.gate.try_pass() {
            Some(pass) => flush(&self.server, Ok(pass)),
            None => self.server.hold_unless_shut(flush),
        }
    }

    /// Called when the last descriptor of a handle is closed.
    pub fn release(&self, number: u64, handle: u64, reply: impl Reply<()>) {
        let pass = self.server.gate.try_pass();
        self.server.run_blocking(self.transport, pass, move |s| {
            reply.answer(s.answer(Activity::Release, number, |s| s.release(handle)));
        });
    }

    /// Makes a file durable.
    pub fn fsync(&self, caller: Caller, number: u64, (handle, data): (u64, bool), reply: impl Reply<()>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [], |server, pass| {
            server.run_blocking(transport, pass, move |s| {
                reply.answer(s.answer(Activity::Fsync, number, |s| s.fsync(handle, data)));
            });
        });
    }

    /// Opens a directory.
    pub fn opendir(&self, caller: Caller, number: u64, reply: impl Reply<OpenReply>) {
        let answer = move |s: &Server| {
            let opened = s.named(caller.user, Activity::Opendir, number, |s| s.opendir(number));
            opened.map(|handle| OpenReply { handle, mode: FopenFlags::empty() })
        };
        // `df` opens the root.
        if number == ROOT {
            let _pass = self.server.gate.try_pass();
            return reply.answer(answer(&self.server));
        }
        when_open!(self, caller, reply, [], |server, _pass| { reply.answer(answer(server)) });
    }

    /// Lists names, starting at an offset.
    pub fn readdir(&self, caller: Caller, number: u64, handle: u64, offset: u64, mut reply: impl Listing) {
        when_open!(self, caller, reply, [], |server, _pass| {
            let fill = |s: &Server| s.fill(handle, offset, &mut reply);
            let filled = server.answer(Activity::Readdir, number, fill);
            reply.answer(filled);
        });
    }

    /// Lists names and attributes, starting at an offset.
    pub fn readdirplus(
        &self,
        caller: Caller,
        number: u64,
        handle: u64,
        offset: u64,
        mut reply: impl ListingPlus,
    ) {
        when_open!(self, caller, reply, [], |server, _pass| {
            let fill = |s: &Server| s.fill_plus(handle, offset, &mut reply);
            let filled = server.answer(Activity::Readdir, number, fill);
            reply.answer(filled);
        });
    }

    /// Called when the last descriptor of a directory handle is closed.
    pub fn releasedir(&self, number: u64, handle: u64, reply: impl Reply<()>) {
        let _pass = self.server.gate.try_pass();
        reply.answer(self.server.answer(Activity::Releasedir, number, |s| s.release(handle)));
    }

    /// Makes a directory's entries durable.
    pub fn fsyncdir(&self, caller: Caller, number: u64, handle: u64, reply: impl Reply<()>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [], |server, pass| {
            server.run_blocking(transport, pass, move |s| {
                reply.answer(s.answer(Activity::Fsyncdir, number, |s| s.fsyncdir(handle)));
            });
        });
    }

    /// Returns the space of the store.
    pub fn statfs(&self, number: u64, reply: impl Reply<StatFs>) {
        let _pass = self.server.gate.try_pass();
        reply.answer(self.server.answer(Activity::Statfs, number, |s| s.statfs()));
    }

    /// Sets an extended attribute.
    pub fn setxattr(
        &self,
        caller: Caller,
        number: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: impl Reply<()>,
    ) {
        if is_metrics(number, name) {
            return reply.answer(Err(READ_ONLY_ATTRIBUTE));
        }
        let transport = self.transport;
        when_open!(self, caller, reply, [name, value], |server, pass| {
            let (name, value) = (name.to_owned(), value.to_owned());
            server.beside_others(transport, pass, move |s| {
                let set = |s: &Server| s.setxattr(number, &name, &value, flags, caller);
                reply.answer(s.named(caller.user, Activity::Setxattr, number, set));
            });
        });
    }

    /// Returns an extended attribute, for a caller whose buffer holds `room` bytes.
    pub fn getxattr(&self, caller: Caller, number: u64, name: &OsStr, room: u32, reply: impl Reply<Value>) {
        if let Some(numbers) = self.server.metrics(number, name, caller.user) {
            let _pass = self.server.gate.try_pass();
            return reply.answer(Value::fitting(room, numbers));
        }
        when_open!(self, caller, reply, [name], |server, _pass| {
            let get = |s: &Server| s.getxattr(number, name);
            let got = server.named(caller.user, Activity::Getxattr, number, get);
            reply.answer(got.and_then(|value| Value::fitting(room, value)));
        });
    }

    /// Returns the names of the extended attributes, for a caller whose buffer holds `room` bytes.
    pub fn listxattr(&self, caller: Caller, number: u64, room: u32, reply: impl Reply<Value>) {
        when_open!(self, caller, reply, [], |server, _pass| {
            let listed =
                server.named(caller.user, Activity::Listxattr, number, |s| s.listxattr(number, caller));
            reply.answer(listed.and_then(|names| Value::fitting(room, names)));
        });
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, caller: Caller, number: u64, name: &OsStr, reply: impl Reply<()>) {
        when_open!(self, caller, reply, [name], |server, _pass| {
            let remove = |s: &Server| s.removexattr(number, name);
            reply.answer(server.named(caller.user, Activity::Removexattr, number, remove));
        });
    }

    /// Answers access(2) and chdir(2), on mounts where the kernel does not check permission bits.
    pub fn access(&self, caller: Caller, number: u64, wanted: AccessFlags, reply: impl Reply<()>) {
        when_open!(self, caller, reply, [], |server, _pass| {
            let judge = |s: &Server| s.access(number, wanted);
            reply.answer(server.named(caller.user, Activity::Access, number, judge));
        });
    }

    /// Allocates, punches or zeroes a range; `bytes` are its offset and length.
    pub fn fallocate(
        &self,
        caller: Caller,
        (number, handle): (u64, u64),
        bytes: (u64, u64),
        mode: i32,
        reply: impl Reply<()>,
    ) {
        let transport = self.transport;
        when_open!(self, caller, reply, [], |server, pass| {
            server.run_blocking(transport, pass, move |s| {
                let work = |s: &Server| s.fallocate(handle, bytes.0, bytes.1, mode, caller);
                reply.answer(s.answer(Activity::Fallocate, number, work));
            });
        });
    }

    /// Finds data or a hole. Not served while the kernel uses its write-back cache: the kernel does not
    /// write dirty pages back before this request, so the answer would be wrong. It then treats the whole
    /// file as data.
    pub fn lseek(
        &self,
        caller: Caller,
        (number, handle): (u64, u64),
        offset: i64,
        whence: i32,
        reply: impl Reply<Place>,
    ) {
        if self.server.caching.gathers() {
            return reply.answer(Err(UNSUPPORTED_REQUEST));
        }
        when_open!(self, caller, reply, [], |server, _pass| {
            let seek = |s: &Server| s.lseek(handle, offset, whence);
            reply.answer(server.answer(Activity::Lseek, number, seek).map(Place));
        });
    }

    /// Copies from one handle and offset to another; `number` is the node written to.
    pub fn copy(
        &self,
        caller: Caller,
        number: u64,
        from: (u64, u64),
        to: (u64, u64),
        len: u64,
        reply: impl Reply<Written>,
    ) {
        let transport = self.transport;
        when_open!(self, caller, reply, [], |server, pass| {
            server.run_blocking(transport, pass, move |s| {
                let copied = s.answer(Activity::Copy, number, |s| s.copy(from, to, len, caller));
                reply.answer(copied.map(Written));
            });
        });
    }
}

impl Server {
    /// Runs a short request at once, unless the vault is shared: then another machine may have locked the
    /// directory.
    fn beside_others<P: Send + 'static>(
        self: &Arc<Self>,
        transport: Transport,
        pass: P,
        job: impl FnOnce(&Server) + Send + 'static,
    ) {
        if self.vault.is_shared() { self.run_blocking(transport, pass, job) } else { job(self) }
    }

    /// Runs `work` for a `caller` that reaches `node` by name, and describes the node that it returns.
    fn entry(
        &self,
        caller: Caller,
        activity: Activity,
        node: u64,
        work: impl FnOnce(&Self) -> content::Result<Entry>,
    ) -> Answer<FoundReply> {
        self.named(caller.user, activity, node, work).map(|entry| self.found_entry(&entry))
    }

    fn found_entry(&self, Entry { id, stat }: &Entry) -> FoundReply {
        let told = self.tell(id.number, stat);
        FoundReply { told, generation: id.generation, name_ttl: self.name_ttl() }
    }

    /// Describes a new file, with its handle and how the kernel must treat the handle.
    fn created(&self, (Entry { id, stat }, handle, mode): (Entry, u64, FopenFlags)) -> Created {
        let told = self.tell(id.number, &stat);
        let name_ttl = told.ttl;
        let found = FoundReply { told, generation: id.generation, name_ttl };
        Created { found, opened: OpenReply { handle, mode } }
    }

    /// Node 0 means that there is no such entry, and carries how long the kernel may cache that.
    fn no_entry(&self) -> FoundReply {
        let told = AttrReply { number: 0, stat: attr::unknown(Kind::File, 0), ttl: Duration::ZERO };
        FoundReply { told, generation: 0, name_ttl: self.absent_ttl() }
    }
}

#[cfg(test)]
mod tests;
