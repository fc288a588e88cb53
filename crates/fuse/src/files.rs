//! Requests on open files: open, read, write, fsync, allocate, seek and copy.

use super::{
    attr,
    caching::InUse,
    caller::Caller,
    errno,
    handles::FileHandle,
    inodes::Node,
    scratch,
    server::{Server, Transport},
};
use content::{Error, Result};
use fuser::{FopenFlags, OpenAccMode, OpenFlags, WriteFlags};
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};
use vault::{Kind, OpenFile, SetAttr, Target};
use zeroize::Zeroize;

/// Maximum bytes of one copy_file_range request; the kernel sends another request for the rest.
const COPY_MOST: u64 = 64 << 20;
/// Bytes copied per step.
const COPY_PIECE: usize = 1 << 20;

/// Whether a handle uses direct I/O.
fn direct_io(mode: FopenFlags) -> bool {
    mode.contains(FopenFlags::FOPEN_DIRECT_IO)
}

/// Whether a file opened with these flags may be written.
fn writes(flags: OpenFlags) -> bool {
    flags.acc_mode() != OpenAccMode::O_RDONLY
}

/// Whether a write request is direct I/O. On a handle without direct I/O this happens if the program has
/// set O_DIRECT later, or if the kernel writes on its own behalf (a loop device). The request then
/// carries a lock owner, which a write of cached pages never does.
fn is_direct(handle: bool, flags: WriteFlags) -> bool {
    let named = flags.contains(WriteFlags::FUSE_WRITE_LOCKOWNER);
    !flags.contains(WriteFlags::FUSE_WRITE_CACHE) && (handle || named)
}

impl Server {
    /// Tells the kernel how to treat a file opened with `flags`. Its page cache stays valid across opens
    /// only while no other process writes. Closing a handle that cannot write needs no flush.
    pub fn open_mode(&self, flags: OpenFlags, in_use: &InUse) -> FopenFlags {
        let mut mode = FopenFlags::empty();
        if self.caching.direct_io(flags, in_use) {
            mode |= FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        }
        if self.changes_alone() {
            mode |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        if !writes(flags) {
            mode |= FopenFlags::FOPEN_NOFLUSH;
        }
        mode
    }

    /// Opens a node. Returns the handle, and how the kernel must treat it.
    pub fn open(&self, number: u64, flags: OpenFlags) -> Result<(u64, FopenFlags)> {
        let write = writes(flags);
        if write {
            self.writable()?;
        }
        let node = self.inodes.get(number)?;
        let mut in_use = node.in_use.lock();
        let file = self.file_to_open(&node, write)?;
        let has_left = in_use.is_closed() && node.has_left.load(Ordering::Relaxed);
        if !in_use.is_same_file(&file) || has_left {
            // Another process replaced or renamed the stored file. The kernel may have cached pages of
            // the old one.
            node.was_replaced();
            return Err(errno::stale());
        }
        let mut mode = self.open_mode(flags, &in_use);
        if self.caching.gathers() {
            let lost = in_use.is_closed() && node.writes_lost.load(Ordering::Relaxed);
            if lost || node.kernel_size.other_than(file.file.size()) {
                // The kernel would keep its size for this inode. Under a new number it takes the size
                // again.
                self.inodes.renumber(&node, &file);
                return Err(errno::stale());
            }
        } else if !self.vault.is_shared() && node.kernel_size.other_than(file.file.size()) {
            // Not for a shared vault, where the kernel asks for the size before every read.
            //
            // The kernel has a different size. With that it would end reads early, pad them with zeros,
            // or append in the wrong place. On this error it looks the name up again and learns the size
            // of the file, which stays open. Then it retries the open.
            if in_use.send_back(&file) {
                return Err(errno::stale());
            }
            // An open without a name (/proc/PID/fd) is not retried. So make the kernel request the
            // attributes again, and every byte.
            self.attributes_changed(number);
            mode = (mode - FopenFlags::FOPEN_KEEP_CACHE) | FopenFlags::FOPEN_DIRECT_IO;
        }
        node.kernel_size.by_file();
        // If the size was wrong, cached content may be wrong, too.
        if in_use.came_back() || node.pages.are_stale() {
            mode -= FopenFlags::FOPEN_KEEP_CACHE;
        }
        if in_use.untouched() && !write && self.changes_alone() && !direct_io(mode) {
            self.preload(number, &file);
        }
        // When the kernel requests attributes, it also learns the size. If another process changed the
        // size in the store, the kernel would silently end reads of its cached content there.
        if !in_use.changed_since_close(file.file.size()) {
            self.note_access(number, &file, flags);
        }
        Ok((self.give_out(&node, &mut in_use, file, flags, mode), mode))
    }

    /// Counts an open for reading as a read, because the kernel does not report reads from its cache.
    fn note_access(&self, number: u64, file: &OpenFile, flags: OpenFlags) {
        let reads = flags.acc_mode() != OpenAccMode::O_WRONLY && flags.0 & libc::O_NOATIME == 0;
        // Do not refuse access to the content only because a time cannot be set.
        if self.counts_reads && reads && self.vault.read_begins(file).unwrap_or(false) {
            self.attributes_changed(number);
        }
    }

    /// Hands out a handle of a file opened with `flags`. `mode` tells the kernel how to treat it.
    pub fn give_out(
        &self,
        node: &Arc<Node>,
        in_use: &mut InUse,
        file: Arc<OpenFile>,
        flags: OpenFlags,
        mode: FopenFlags,
    ) -> u64 {
        in_use.opened(direct_io(mode), writes(flags), file.file.size());
        if !direct_io(mode) {
            node.pages.begin();
        }
        let (node, write) = (node.clone(), writes(flags));
        self.handles.add_file(FileHandle { node, file, write, direct_io: direct_io(mode) })
    }

    fn file_to_open(&self, node: &Node, write: bool) -> Result<Arc<OpenFile>> {
        match node.kind {
            Kind::File => {}
            Kind::Dir => return Err(errno::is_dir()),
            _ => return Err(Error::Invalid("type of node")),
        }
        let opened = self.with_some_name(node, |dir, name| self.vault.open_file(dir, name, write));
        match opened {
            Ok(file) if self.is_node(node, file.key, Target::File(&file)) => Ok(file),
            Ok(_) => Err(errno::stale()),
            // A file without a name can still be opened if it is open already (through /proc/PID/fd).
            Err(e) if errno::is_no_entry(&e) => {
                self.open_file(node.key).filter(|f| !write || f.store.writable()).ok_or(e)
            }
            Err(e) => Err(e),
        }
    }

    /// Reads up to `size` bytes of a file and passes them to `give`.
    pub fn read_file(
        &self,
        file: &OpenFile,
        offset: u64,
        size: usize,
        give: impl FnOnce(&[u8]),
    ) -> Result<()> {
        scratch::with(|few| file.file.read_to(offset, size, few, give))
    }

    /// Whether a write may have to wait for another machine to return a file's lease.
    pub fn may_wait_to_write(&self, handle: u64) -> bool {
        self.vault.is_shared() && self.handles.file(handle).is_ok_and(|handle| handle.file.file.is_clean())
    }

    /// Writes all of `data`. The flags are those of the request, and the file's current open flags.
    pub fn write(
        &self,
        handle: u64,
        offset: u64,
        data: &[u8],
        (flags, open): (WriteFlags, OpenFlags),
        caller: Caller,
        transport: Transport,
    ) -> Result<()> {
        self.writable()?;
        let handle = self.handles.file(handle)?;
        if flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            // The kernel has already checked whether the caller may keep these bits.
            self.take_privileges(handle.node.number, &handle.file, caller, || false)?;
        }
        if handle.direct_io {
            self.take_capabilities(&handle.node)?;
        }
        let written = match self.caching.gathers() {
            true => handle.file.file.write_gathered(offset, data),
            false => handle.file.file.write(offset, data),
        };
        if written.is_err() && flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            handle.node.writes_lost.store(true, Ordering::Relaxed);
        }
        // A failed write may have been carried out in part.
        if is_direct(handle.direct_io, flags) {
            self.overtaken(&handle.node, offset..offset.saturating_add(data.len() as u64), transport);
        }
        written?;
        // The kernel sends an fsync after cached writes. The durability of direct writes is left to us.
        if handle.direct_io && open.0 & libc::O_DSYNC != 0 && !flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            self.vault.sync_data(&handle.file)?;
        }
        Ok(())
    }

    /// Flushes buffered writes to the store, so that close(2) can report errors.
    pub fn flush(&self, handle: u64) -> Result<()> {
        let handle = self.handles.file(handle)?;
        if handle.write { self.vault.files().flush_at_close(&handle.file) } else { Ok(()) }
    }

    /// Makes a file and its names durable, and also its attributes unless only `data` is requested.
    pub fn fsync(&self, handle: u64, data: bool) -> Result<()> {
        let handle = self.handles.file(handle)?;
        match data {
            _ if self.read_only => Ok(()),
            true => self.vault.sync_data(&handle.file),
            false => self.vault.sync_file(&handle.file),
        }
    }

    /// Implements fallocate(2): allocation, zeroing a range, and punching holes.
    pub fn fallocate(&self, handle: u64, offset: u64, len: u64, mode: i32, caller: Caller) -> Result<()> {
        self.writable()?;
        let handle = self.handles.file(handle)?;
        let file = &handle.file.file;
        let keep = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let mode = mode & !libc::FALLOC_FL_KEEP_SIZE;
        match mode {
            0 | libc::FALLOC_FL_ZERO_RANGE => {}
            libc::FALLOC_FL_PUNCH_HOLE if keep => {}
            _ => return Err(Error::NotSupported("fallocate mode")),
        }
        self.take_privileges(handle.node.number, &handle.file, caller, || caller.keeps_set_id())?;
        self.take_capabilities(&handle.node)?;
        // Do the step that can be refused first, so that the data is still intact after an error.
        if mode != libc::FALLOC_FL_PUNCH_HOLE {
            file.allocate(offset, len, keep)?;
        }
        if mode == 0 { Ok(()) } else { file.punch(offset, len) }
    }

    /// Handles SEEK_DATA and SEEK_HOLE; the kernel handles the other modes.
    pub fn lseek(&self, handle: u64, offset: i64, whence: i32) -> Result<i64> {
        let handle = self.handles.file(handle)?;
        let data = match whence {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return Err(Error::Invalid("whence")),
        };
        let offset = u64::try_from(offset).map_err(|_| Error::NoData)?;
        let file = &handle.file.file;
        // The kernel does not write back changes in mappings before this request.
        let found = if handle.node.pages.were_read() && handle.node.in_use.lock().has_writers() {
            file.seek_in_data(offset, data)?
        } else {
            file.seek(offset, data)?
        };
        i64::try_from(found).map_err(|_| Error::TooLarge)
    }

    /// Copies bytes from one open file to another, or within one, and returns the number copied.
    pub fn copy(&self, from: (u64, u64), to: (u64, u64), len: u64, caller: Caller) -> Result<u32> {
        self.writable()?;
        let (source, target) = (self.handles.file(from.0)?, self.handles.file(to.0)?);
        self.take_privileges(target.node.number, &target.file, caller, || caller.keeps_set_id())?;
        self.take_capabilities(&target.node)?;
        let len = len.min(COPY_MOST);
        let mut copied = 0;
        while copied < len {
            let piece = (len - copied).min(COPY_PIECE as u64) as usize;
            let step = scratch::with(|buffer| {
                if buffer.len() < piece {
                    buffer.zeroize(); // Growing the buffer would leave its content behind.
                    buffer.resize(piece, 0);
                }
                let buffer = &mut buffer[..piece];
                let read = source.file.file.read(offset(from.1, copied)?, buffer)?;
                target.file.file.write(offset(to.1, copied)?, &buffer[..read])?;
                Ok(read)
            });
            match step {
                Ok(0) => break,
                Ok(read) => copied += read as u64,
                Err(e) if copied == 0 => return Err(e),
                Err(_) => break, // Report the copied bytes first; the next call returns the error.
            }
        }
        Ok(copied as u32) // At most COPY_MOST.
    }

    /// Drops the kernel's pages of `bytes` after a direct write.
    fn overtaken(&self, node: &Arc<Node>, bytes: Range<u64>, transport: Transport) {
        if let Some(kernel) = self.kernel() {
            // Before the kernel drops dirty pages, it writes them back.
            let may_wait = self.may_wait(transport) && !self.caching.gathers();
            self.dropper.overtaken(kernel, node, bytes, may_wait);
        }
    }

    /// Clears set-user-id and set-group-id on a file changed by a caller without the right to keep them.
    fn take_privileges(
        &self,
        number: u64,
        file: &OpenFile,
        caller: Caller,
        keeps: impl FnOnce() -> bool,
    ) -> Result<()> {
        let now = self.vault.stat(Target::File(file))?;
        let mode = attr::without_privileges(now.mode, || caller.is_in(now.gid));
        if mode.is_some() && !keeps() {
            self.vault.set_attr(Target::File(file), &SetAttr { mode, ..SetAttr::default() })?;
            self.attributes_changed(number);
        }
        Ok(())
    }
}

fn offset(start: u64, done: u64) -> Result<u64> {
    start.checked_add(done).ok_or(Error::TooLarge)
}
