//! Policy for direct I/O instead of the kernel's page cache, and a record of the file content that the
//! kernel holds.
//!
//! With direct I/O a request passes from the program's memory straight to the vault, however large it is.
//! Nothing is copied into pages first, and several writes to one file are served concurrently. But every
//! read is a request, however small. A file that is only written gets the benefit without the cost.
//!
//! The kernel keeps its pages coherent: a direct write first writes back dirty (mapped) pages of its
//! range, and drops the range's pages before and after. (For asynchronous writes, `stale` drops the pages
//! afterwards.) There are two exceptions. A read of the last page through the cache during a direct
//! append may find zeros beyond the old end. And if one program writes a page directly while another
//! changes it through a mapping, one change may be lost. So while a file is open in one way, the mount
//! opens it in the same way, unless a program asks otherwise.
//!
//! With `WriteBack` the kernel collects writes in its page cache and writes them back when it chooses, at
//! the latest on fsync, close or truncation. For all files it then relies on its own sizes and
//! modification times. It takes ours only on a name's first lookup, and sends us new times. It does not
//! notice the times of direct writes through handles with direct I/O, so no handle uses direct I/O in
//! this mode.

use fuser::{OpenAccMode, OpenFlags, Version};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use vault::OpenFile;

/// Protocol version of the first kernel (Linux 6.14) that reliably drops pages after a direct write as
/// well. Earlier kernels drop them only before it: a page that is read during the write stays, and is
/// stale.
const COHERENT: Version = Version(7, 42);

/// Page-cache policy for open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// In the kernel, except for files opened for writing only, and files already open with direct I/O.
    #[default]
    Auto,
    /// In the kernel, except for handles opened with O_DIRECT.
    Kernel,
    /// No caching: every read and write is a request. The kernel caches only mapped pages.
    Direct,
    /// In the kernel, including writes (write-back).
    WriteBack,
}

/// The caching policy of a mount.
#[derive(Debug)]
pub struct Caching {
    mode: CacheMode,
    coherent: AtomicBool,
    gathers: AtomicBool,
}

impl Caching {
    /// Creates the policy for `mode`, before the kernel's protocol version is known.
    pub fn new(mode: CacheMode) -> Self {
        Caching { mode, coherent: AtomicBool::new(false), gathers: AtomicBool::new(false) }
    }

    /// Whether to request the kernel's write-back cache.
    pub fn wants_gathering(&self) -> bool {
        self.mode == CacheMode::WriteBack
    }

    /// Records the kernel's protocol version, and whether it uses its write-back cache.
    pub fn agreed(&self, protocol: Version, gathers: bool) {
        self.coherent.store(protocol >= COHERENT, Ordering::Relaxed);
        self.gathers.store(gathers, Ordering::Relaxed);
    }

    /// Whether the kernel uses its write-back cache, and so relies on its own sizes and modification
    /// times.
    pub fn gathers(&self) -> bool {
        self.gathers.load(Ordering::Relaxed)
    }

    /// Whether a file opened with `flags` uses direct I/O.
    pub fn direct_io(&self, flags: OpenFlags, in_use: &InUse) -> bool {
        let chosen = match self.mode {
            CacheMode::Direct => true,
            CacheMode::Kernel | CacheMode::WriteBack => false,
            CacheMode::Auto => {
                let better = flags.acc_mode() == OpenAccMode::O_WRONLY || in_use.direct_io > 0;
                better && in_use.cached == 0 && self.coherent.load(Ordering::Relaxed)
            }
        };
        // With its write-back cache the kernel handles O_DIRECT by itself.
        chosen || flags.0 & libc::O_DIRECT != 0 && !self.gathers()
    }
}

/// A file's open handles, and the kernel's cached content.
#[derive(Debug, Default)]
pub struct InUse {
    /// Handles that use the page cache.
    cached: usize,
    /// Handles that use direct I/O.
    direct_io: usize,
    /// Handles that may write.
    writers: usize,
    /// Size changes in progress.
    cuts: usize,
    /// Whether the file was opened or resized since the kernel looked it up, or since its last handle was
    /// closed after direct I/O. If so, the kernel may hold content, or may be about to request some.
    touched: bool,
    /// Whether the file was open with direct I/O since it last had no handle.
    had_direct_io: bool,
    /// Keeps the file open for an open request that was sent back for a new lookup.
    sent_back: Option<KeptFile>,
    /// The file's size when a handle was last closed. The kernel relies on it.
    size_at_close: Option<u64>,
    /// Whether the size had changed in the store when the first of the open handles was opened.
    resized: bool,
    /// The part of its salt that distinguishes it from every other file; `None` before it has one.
    salt: Option<u64>,
}

struct KeptFile(Arc<OpenFile>);

impl fmt::Debug for KeptFile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.0.key).finish()
    }
}

impl InUse {
    /// Keeps `file` open while its open request is sent back to be retried. False if one was sent back
    /// already.
    pub fn send_back(&mut self, file: &Arc<OpenFile>) -> bool {
        self.sent_back.replace(KeptFile(file.clone())).is_none()
    }

    /// Called when an open request succeeds. Returns whether it was sent back before.
    pub fn came_back(&mut self) -> bool {
        self.sent_back.take().is_some()
    }

    /// Whether the kernel holds no content and is not about to request any.
    pub fn untouched(&self) -> bool {
        !self.touched
    }

    /// Whether there is at most one handle with direct I/O, and none that uses the page cache.
    pub fn is_of_one(&self) -> bool {
        self.cached == 0 && self.direct_io <= 1
    }

    /// Whether any handle may write.
    pub fn has_writers(&self) -> bool {
        self.writers > 0
    }

    /// Records the salt of the file being opened or closed. False if it was a different file before.
    pub fn is_same_file(&mut self, file: &OpenFile) -> bool {
        let salt = file.file.salt(false).ok().flatten();
        let Some(salt) = salt.and_then(|salt| salt.first_chunk().copied()).map(u64::from_ne_bytes) else {
            return true;
        };
        self.salt.replace(salt).is_none_or(|known| known == salt)
    }

    /// Whether no handle is open.
    pub fn is_closed(&self) -> bool {
        self.cached + self.direct_io == 0
    }

    /// Counts a handle that is handed out for a file of `size` bytes.
    pub fn opened(&mut self, direct_io: bool, write: bool, size: u64) {
        self.resized = self.changed_since_close(size);
        self.touched = true;
        self.writers += usize::from(write);
        self.had_direct_io |= direct_io;
        *self.handles(direct_io) += 1;
    }

    /// Removes a handle that has no requests left.
    pub fn closed(&mut self, direct_io: bool, write: bool, size: u64) {
        self.writers -= usize::from(write);
        *self.handles(direct_io) -= 1;
        self.size_at_close = Some(size);
        self.forget_if_unused();
    }

    fn handles(&mut self, direct_io: bool) -> &mut usize {
        if direct_io { &mut self.direct_io } else { &mut self.cached }
    }

    /// Whether the size differs from the one at the last close, or did when the first of the open handles
    /// was opened. Another process may then have changed the file in the store. While there are handles,
    /// the present size says nothing, because writes through them change it.
    pub fn changed_since_close(&self, size: u64) -> bool {
        match self.is_closed() {
            true => self.size_at_close.is_some_and(|closed| closed != size),
            false => self.resized,
        }
    }

    /// Called when a size change begins.
    pub fn cut(&mut self) {
        self.touched = true;
        self.cuts += 1;
    }

    /// Called when a size change has ended.
    pub fn cut_done(&mut self) {
        self.cuts -= 1;
        self.forget_if_unused();
    }

    fn forget_if_unused(&mut self) {
        if self.cached + self.direct_io + self.cuts == 0 && self.had_direct_io {
            self.touched = false;
            self.had_direct_io = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(mode: CacheMode, protocol: Version) -> Caching {
        let rule = Caching::new(mode);
        rule.agreed(protocol, mode == CacheMode::WriteBack);
        rule
    }

    #[test]
    fn write_only_handles_use_direct_io_and_later_ones_follow_the_first() {
        let auto = rule(CacheMode::Auto, COHERENT);
        let (write, both) = (OpenFlags(libc::O_WRONLY), OpenFlags(libc::O_RDWR));
        let mut in_use = InUse::default();
        assert!(auto.direct_io(write, &in_use));
        assert!(!auto.direct_io(both, &in_use) && !auto.direct_io(OpenFlags(libc::O_RDONLY), &in_use));
        in_use.opened(true, true, 0);
        assert!(auto.direct_io(write, &in_use) && auto.direct_io(both, &in_use));
        in_use.closed(true, true, 0);
        in_use.opened(false, false, 0);
        assert!(!auto.direct_io(write, &in_use));
        assert!(auto.direct_io(OpenFlags(libc::O_RDWR | libc::O_DIRECT), &in_use));
        in_use.closed(false, false, 0);
        assert!(auto.direct_io(write, &in_use) && !auto.direct_io(both, &in_use));
        assert!(!rule(CacheMode::Auto, Version(7, 41)).direct_io(write, &in_use));
        assert!(!rule(CacheMode::Kernel, COHERENT).direct_io(write, &in_use));
        assert!(rule(CacheMode::Direct, Version(7, 41)).direct_io(both, &in_use));
        let past = OpenFlags(libc::O_RDWR | libc::O_DIRECT);
        assert!(!rule(CacheMode::WriteBack, COHERENT).direct_io(past, &in_use));
        let refused = Caching::new(CacheMode::WriteBack);
        assert!(refused.direct_io(past, &in_use) && !refused.direct_io(both, &in_use));
    }

    #[test]
    fn a_file_is_untouched_again_after_the_last_handle_with_direct_io() {
        let mut file = InUse::default();
        assert!(file.untouched());
        file.opened(true, true, 0);
        file.opened(false, false, 0);
        file.cut();
        file.closed(true, true, 0);
        file.closed(false, false, 0);
        assert!(!file.untouched());
        file.cut_done();
        assert!(file.untouched());
        // The kernel caches what was read or written through the page cache.
        file.opened(false, false, 0);
        file.closed(false, false, 0);
        assert!(!file.untouched());
    }

    #[test]
    fn a_size_changed_elsewhere_is_remembered_until_the_last_handle_is_closed() {
        let mut file = InUse::default();
        assert!(!file.changed_since_close(7), "never closed");
        file.opened(false, true, 7);
        assert!(!file.changed_since_close(8), "written");
        file.closed(false, true, 8);
        assert!(file.changed_since_close(0));
        file.opened(false, false, 0);
        assert!(file.changed_since_close(8) && file.changed_since_close(0));
        file.closed(false, false, 0);
        assert!(!file.changed_since_close(0) && file.changed_since_close(8));
    }

    #[test]
    fn writers_are_counted() {
        let mut file = InUse::default();
        file.opened(false, true, 0);
        assert!(file.has_writers() && !file.is_closed());
        file.closed(false, true, 0);
        assert!(!file.has_writers() && file.is_closed());
    }
}
