//! What is done with each request of the kernel, however it came: it passes the gate or is held there, its user is
//! admitted, the work is done, and the answer sent.

use super::{
    attr,
    by_number::ByNumber,
    caller::Caller,
    errno::{Answer, READ_ONLY_ATTRIBUTE, UNSUPPORTED_REQUEST},
    gate::Pass,
    inodes::ROOT,
    metrics::is_metrics,
    names::Entry,
    read_queue::{QueuedRead, SMALL},
    replies::{Created, Found, Listing, ListingPlus, Opened, Place, Reply, Told, Value, Written},
    server::{Server, Transport},
    small_reads::ReadReply,
    stale::PageRead,
    wanted::Wanted,
};
use crate::{
    metrics::{self, Activity},
    vault::{Kind, SetAttr, StatFs},
};
use fuser::{AccessFlags, FopenFlags, OpenFlags, RenameFlags, WriteFlags};
use std::{ffi::OsStr, sync::Arc, time::Duration};

/// Most bytes of one read; the kernel asks for less.
const READ_MOST: usize = 16 << 20;

/// Serves requests that came by one transport.
#[derive(Clone)]
pub struct Requests {
    /// What does the work.
    pub server: Arc<Server>,
    /// How they came.
    pub transport: Transport,
}

/// A request to read.
pub struct Reading {
    /// The node.
    pub number: u64,
    /// The open file.
    pub handle: u64,
    /// Where in the file.
    pub offset: u64,
    /// Bytes.
    pub size: u32,
    /// Whether it is to fill pages of the kernel's cache.
    pub page: bool,
}

/// A request to write.
pub struct Writing<'a> {
    /// The node.
    pub number: u64,
    /// The open file.
    pub handle: u64,
    /// Where in the file.
    pub offset: u64,
    /// What is written.
    pub data: &'a [u8],
    /// How.
    pub flags: WriteFlags,
    /// The flags that the file is open with at the moment.
    pub open: OpenFlags,
}

/// Does `$body` with the `$server` and the request's `$pass`: at once, or when the vault is unlocked. The `$owned`
/// parts of the request are kept so long.
macro_rules! when_open {
    ($this:expr, $caller:expr, $reply:ident, [$($owned:ident),*], |$server:ident, $pass:ident| $body:block) => {
        match $this.server.pass() {
            Some($pass) => {
                let $server = &$this.server;
                $body
            }
            None => {
                $(let $owned = $owned.to_owned();)*
                $this.server.hold($caller, move |$server, pass: Answer<Pass>| {
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
    /// Finds a name.
    pub fn lookup(&self, caller: Caller, parent: u64, name: &OsStr, reply: impl Reply<Found>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [name], |server, pass| {
            if let Some(what) = ByNumber::of(name) {
                return server.slowly(transport, pass, move |s| {
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

    /// The kernel forgets so many lookups of a node.
    pub fn forget(&self, number: u64, lookups: u64) {
        let _pass = self.server.gate.try_pass();
        let _ = self.server.answer(Activity::Forget, number, |s| {
            s.inodes.forget(number, lookups);
            Ok(())
        });
    }

    /// Attributes, of an open file if there is a handle.
    pub fn getattr(&self, caller: Caller, number: u64, handle: Option<u64>, reply: impl Reply<Told>) {
        let answer = move |s: &Server| {
            let get = |s: &Server| s.getattr(number, handle);
            let got = s.reached(handle, caller.user, Activity::Getattr, number, get);
            got.map(|stat| s.tell(number, &stat))
        };
        // The root's are asked for by whoever looks at the mount point.
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
        reply: impl Reply<Told>,
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
                Some(_) => server.slowly(transport, pass, work),
                None => server.beside_others(transport, pass, work),
            }
        });
    }

    /// The target of a link.
    pub fn readlink(&self, caller: Caller, number: u64, reply: impl for<'a> Reply<&'a [u8]>) {
        when_open!(self, caller, reply, [], |server, _pass| {
            let target = server.named(caller.user, Activity::Readlink, number, |s| s.readlink(number));
            match &target {
                Ok(target) => reply.answer(Ok(target.as_encoded_bytes())),
                Err(e) => reply.answer(Err(*e)),
            }
        });
    }

    /// Makes a file without opening it, a FIFO, a socket or a device; `format` is the mode with its type.
    pub fn mknod(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        new: Wanted,
        (format, rdev): (u32, u32),
        reply: impl Reply<Found>,
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

    /// Makes a directory.
    pub fn mkdir(&self, caller: Caller, parent: u64, name: &OsStr, new: Wanted, reply: impl Reply<Found>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [name], |server, pass| {
            let name = name.to_owned();
            server.beside_others(transport, pass, move |s| {
                reply.answer(s.entry(caller, Activity::Mkdir, parent, |s| s.mkdir(parent, &name, new)));
            });
        });
    }

    /// Removes a name of something other than a directory.
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

    /// Makes a link.
    pub fn symlink(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        target: &OsStr,
        reply: impl Reply<Found>,
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

    /// Renames or exchanges.
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

    /// Gives a node one more name.
    pub fn link(&self, caller: Caller, number: u64, parent: u64, name: &OsStr, reply: impl Reply<Found>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [name], |server, pass| {
            let name = name.to_owned();
            server.beside_others(transport, pass, move |s| {
                let link = |s: &Server| s.link(number, parent, &name);
                reply.answer(s.entry(caller, Activity::Link, number, link));
            });
        });
    }

    /// Makes a file and opens it.
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

    /// Makes a file without a name, in the filesystem of a directory, and opens it. fuser does not know this request:
    /// it comes by rings alone.
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
    pub fn open(&self, caller: Caller, number: u64, flags: OpenFlags, reply: impl Reply<Opened>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [], |server, pass| {
            server.slowly(transport, pass, move |s| {
                let opened = s.named(caller.user, Activity::Open, number, |s| s.open(number, flags));
                reply.answer(opened.map(|(handle, mode)| Opened { handle, mode }));
            });
        });
    }

    /// Reads.
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

    /// Writes.
    pub fn write<R: Reply<Written>>(&self, caller: Caller, write: Writing, reply: R) {
        let Writing { number, handle, offset, data, flags, open } = write;
        let transport = self.transport;
        let work = move |server: &Server, data: &[u8], reply: R| {
            let write = |s: &Server| s.write(handle, offset, data, (flags, open), caller, transport);
            reply.answer(server.answer(Activity::Write, number, write).map(|()| {
                metrics::bytes(Activity::Write, data.len());
                Written(data.len() as u32) // The kernel's own request: at most max_write.
            }));
        };
        when_open!(self, caller, reply, [data], |server, pass| {
            if server.may_wait_to_write(handle) {
                let data = data.to_owned();
                server.slowly(transport, pass, move |s| work(s, &data, reply));
            } else {
                work(server, data, reply);
            }
        });
    }

    /// A program closes one of its descriptors. On a locked vault there is nothing to flush: a program that is killed
    /// could not end before it is answered.
    pub fn flush(&self, number: u64, handle: u64, reply: impl Reply<()>) {
        let transport = self.transport;
        let flush = move |server: &Arc<Server>, pass: Answer<Pass>| match pass {
            Ok(pass) => server.slowly(transport, pass, move |s| {
                reply.answer(s.answer(Activity::Flush, number, |s| s.flush(handle)));
            }),
            Err(_) => reply.answer(Ok(())),
        };
        match self.server.gate.try_pass() {
            Some(pass) => flush(&self.server, Ok(pass)),
            None => self.server.hold_unless_shut(flush),
        }
    }

    /// The last descriptor of a handle is closed.
    pub fn release(&self, number: u64, handle: u64, reply: impl Reply<()>) {
        let pass = self.server.gate.try_pass();
        self.server.slowly(self.transport, pass, move |s| {
            reply.answer(s.answer(Activity::Release, number, |s| s.release(handle)));
        });
    }

    /// Makes a file durable.
    pub fn fsync(&self, caller: Caller, number: u64, (handle, data): (u64, bool), reply: impl Reply<()>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [], |server, pass| {
            server.slowly(transport, pass, move |s| {
                reply.answer(s.answer(Activity::Fsync, number, |s| s.fsync(handle, data)));
            });
        });
    }

    /// Opens a directory.
    pub fn opendir(&self, caller: Caller, number: u64, reply: impl Reply<Opened>) {
        let answer = move |s: &Server| {
            let opened = s.named(caller.user, Activity::Opendir, number, |s| s.opendir(number));
            opened.map(|handle| Opened { handle, mode: FopenFlags::empty() })
        };
        // `df` opens the root.
        if number == ROOT {
            let _pass = self.server.gate.try_pass();
            return reply.answer(answer(&self.server));
        }
        when_open!(self, caller, reply, [], |server, _pass| { reply.answer(answer(server)) });
    }

    /// Lists names from an offset on.
    pub fn readdir(&self, caller: Caller, number: u64, handle: u64, offset: u64, mut reply: impl Listing) {
        when_open!(self, caller, reply, [], |server, _pass| {
            let fill = |s: &Server| s.fill(handle, offset, &mut reply);
            let filled = server.answer(Activity::Readdir, number, fill);
            reply.answer(filled);
        });
    }

    /// Lists names and attributes from an offset on.
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

    /// The last descriptor of a directory's handle is closed.
    pub fn releasedir(&self, number: u64, handle: u64, reply: impl Reply<()>) {
        let _pass = self.server.gate.try_pass();
        reply.answer(self.server.answer(Activity::Releasedir, number, |s| s.release(handle)));
    }

    /// Makes a directory's entries durable.
    pub fn fsyncdir(&self, caller: Caller, number: u64, handle: u64, reply: impl Reply<()>) {
        let transport = self.transport;
        when_open!(self, caller, reply, [], |server, pass| {
            server.slowly(transport, pass, move |s| {
                reply.answer(s.answer(Activity::Fsyncdir, number, |s| s.fsyncdir(handle)));
            });
        });
    }

    /// Space of the store.
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

    /// An extended attribute, for a caller with so much `room`.
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

    /// Names of the extended attributes, for a caller with so much `room`.
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

    /// Sent for access(2) and chdir(2) where the kernel does not judge by permission bits.
    pub fn access(&self, caller: Caller, number: u64, wanted: AccessFlags, reply: impl Reply<()>) {
        when_open!(self, caller, reply, [], |server, _pass| {
            let judge = |s: &Server| s.access(number, wanted);
            reply.answer(server.named(caller.user, Activity::Access, number, judge));
        });
    }

    /// Allocates, punches or zeroes the `bytes` from an offset on, so many.
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
            server.slowly(transport, pass, move |s| {
                let work = |s: &Server| s.fallocate(handle, bytes.0, bytes.1, mode, caller);
                reply.answer(s.answer(Activity::Fallocate, number, work));
            });
        });
    }

    /// Looks for data or a hole. Not served while the kernel gathers writes: it asks without having written them, so what
    /// lies there could not be said. It then takes a file for data from its beginning to its end.
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

    /// Copies from one handle and offset to another; `number` is the node that is written.
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
            server.slowly(transport, pass, move |s| {
                let copied = s.answer(Activity::Copy, number, |s| s.copy(from, to, len, caller));
                reply.answer(copied.map(Written));
            });
        });
    }
}

impl Server {
    /// Runs a request that is soon done, unless others share the vault: one of them may have the directory locked.
    fn beside_others<P: Send + 'static>(
        self: &Arc<Self>,
        transport: Transport,
        pass: P,
        job: impl FnOnce(&Server) + Send + 'static,
    ) {
        if self.vault.is_shared() { self.slowly(transport, pass, job) } else { job(self) }
    }

    /// Does `work` for a `caller` that reaches `node` by a name, and tells of the node that it returns.
    fn entry(
        &self,
        caller: Caller,
        activity: Activity,
        node: u64,
        work: impl FnOnce(&Self) -> crate::vault::Result<Entry>,
    ) -> Answer<Found> {
        self.named(caller.user, activity, node, work).map(|entry| self.found_entry(&entry))
    }

    fn found_entry(&self, Entry { id, stat }: &Entry) -> Found {
        let told = self.tell(id.number, stat);
        Found { told, generation: id.generation, name_ttl: self.name_ttl() }
    }

    /// Tells of a file that was made, with its handle and how the kernel is to treat that.
    fn created(&self, (Entry { id, stat }, handle, mode): (Entry, u64, FopenFlags)) -> Created {
        let told = self.tell(id.number, &stat);
        let name_ttl = told.ttl;
        let found = Found { told, generation: id.generation, name_ttl };
        Created { found, opened: Opened { handle, mode } }
    }

    /// Node 0 says that there is none, and for how long that may be relied on.
    fn no_entry(&self) -> Found {
        let told = Told { number: 0, stat: attr::unknown(Kind::File, 0), ttl: Duration::ZERO };
        Found { told, generation: 0, name_ttl: self.absent_ttl() }
    }
}

#[cfg(test)]
mod tests;
