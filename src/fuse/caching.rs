//! Which handles use direct I/O instead of the kernel's page cache, and what the kernel holds of a file's content.
//!
//! With direct I/O a request goes from the program's memory straight to the vault, however large it is. Nothing is
//! copied into pages first, and several writes of one file are served at once. But every read is a request, however
//! small. A file that is only written has the benefit and not the cost.
//!
//! The kernel keeps its pages coherent: a direct write first brings written pages of the range (mapped ones) to the
//! vault, and drops the range's pages before and after. (For writes that a program only begins, `stale` does the
//! latter.) Two things it cannot do. A read of the last page through the cache during a direct append may find zeros
//! beyond the old end. And if one program writes a page directly while another changes it in a mapping, one change
//! may be lost. So while a file is open in one way, the mount opens it in the same way, unless a program asks
//! otherwise.
//!
//! With `WriteBack` the kernel gathers what programs write in its pages, and writes them when it likes, at the latest at
//! an fsync, a close or a truncation. For all files it then goes by the sizes and modification times that it has itself:
//! it takes ours only when a name is looked up for the first time, and tells us new times. It does not notice times of
//! direct writes by handles with direct I/O, so no handle has that.

use crate::vault::OpenFile;
use fuser::{OpenAccMode, OpenFlags, Version};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The protocol of the first kernel (Linux 6.14) that certainly drops pages after a direct write, too. Earlier ones
/// drop them only before: a page that is read meanwhile stays, and is stale.
const COHERENT: Version = Version(7, 42);

/// Where the contents of open files are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// In the kernel, except for files that are opened only to be written, or are open so already.
    #[default]
    Auto,
    /// In the kernel, except for what is opened with O_DIRECT.
    Kernel,
    /// Nowhere: every read and write is a request. The kernel has mapped pages only.
    Direct,
    /// In the kernel, which gathers writes, too.
    WriteBack,
}

/// A mount's rule.
#[derive(Debug)]
pub struct Caching {
    mode: CacheMode,
    coherent: AtomicBool,
    gathers: AtomicBool,
}

impl Caching {
    /// The rule of `mode`, before the kernel's protocol is known.
    pub fn new(mode: CacheMode) -> Self {
        Caching { mode, coherent: AtomicBool::new(false), gathers: AtomicBool::new(false) }
    }

    /// Whether the kernel is to gather writes.
    pub fn wants_gathering(&self) -> bool {
        self.mode == CacheMode::WriteBack
    }

    /// Learns the kernel's protocol, and whether it gathers writes.
    pub fn agreed(&self, protocol: Version, gathers: bool) {
        self.coherent.store(protocol >= COHERENT, Ordering::Relaxed);
        self.gathers.store(gathers, Ordering::Relaxed);
    }

    /// Whether the kernel gathers writes, and so goes by its own sizes and modification times.
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
        // While it gathers, the kernel serves O_DIRECT by itself.
        chosen || flags.0 & libc::O_DIRECT != 0 && !self.gathers()
    }
}

/// The handles of a file, and what the kernel holds of its content.
#[derive(Debug, Default)]
pub struct InUse {
    /// Handles through the page cache.
    cached: usize,
    /// Handles with direct I/O.
    direct_io: usize,
    /// Handles that may write.
    writers: usize,
    /// Changes of size in progress.
    cuts: usize,
    /// Whether the file was opened or cut since the kernel knows it, or since the last handle was closed after
    /// direct I/O. Then the kernel may hold content, or be about to ask for some.
    touched: bool,
    /// Whether it was open with direct I/O since the last time that it had no handle.
    had_direct_io: bool,
    /// Kept open for an open request that was sent back to look the file up again.
    sent_back: Option<Kept>,
    /// Its size when a handle was closed last, which the kernel goes by.
    size_at_close: Option<u64>,
    /// The part of its salt that tells it from every other file; `None` before it has one.
    salt: Option<u64>,
}

struct Kept(Arc<OpenFile>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.0.key).finish()
    }
}

impl InUse {
    /// Keeps `file` open, as its open request is sent back and will come again. False if one was sent back already.
    pub fn send_back(&mut self, file: &Arc<OpenFile>) -> bool {
        self.sent_back.replace(Kept(file.clone())).is_none()
    }

    /// An open request succeeds. Returns whether it was sent back before.
    pub fn came_back(&mut self) -> bool {
        self.sent_back.take().is_some()
    }

    /// Whether the kernel holds no content and is not about to ask for any.
    pub fn untouched(&self) -> bool {
        !self.touched
    }

    /// Whether there is at most one handle with direct I/O, and none through the cache.
    pub fn is_of_one(&self) -> bool {
        self.cached == 0 && self.direct_io <= 1
    }

    /// Whether a handle may write.
    pub fn has_writers(&self) -> bool {
        self.writers > 0
    }

    /// Notes the salt of the file that is opened or closed. False if it was another file before.
    pub fn is_same_file(&mut self, file: &OpenFile) -> bool {
        let salt = file.file.salt(false).ok().flatten();
        let Some(salt) = salt.and_then(|salt| salt.first_chunk().copied()).map(u64::from_ne_bytes) else {
            return true;
        };
        self.salt.replace(salt).is_none_or(|known| known == salt)
    }

    /// Whether no handle is left.
    pub fn is_closed(&self) -> bool {
        self.cached + self.direct_io == 0
    }

    /// A handle is given out.
    pub fn opened(&mut self, direct_io: bool, write: bool) {
        self.touched = true;
        self.writers += usize::from(write);
        self.had_direct_io |= direct_io;
        *self.handles(direct_io) += 1;
    }

    /// A handle is taken back: none of its requests is left.
    pub fn closed(&mut self, direct_io: bool, write: bool, size: u64) {
        self.writers -= usize::from(write);
        *self.handles(direct_io) -= 1;
        self.size_at_close = Some(size);
        self.forget_if_unused();
    }

    fn handles(&mut self, direct_io: bool) -> &mut usize {
        if direct_io { &mut self.direct_io } else { &mut self.cached }
    }

    /// Whether it has another size than when it was closed last: somebody changed it in the store, perhaps.
    pub fn changed_since_close(&self, size: u64) -> bool {
        self.size_at_close.is_some_and(|closed| closed != size)
    }

    /// A change of size begins.
    pub fn cut(&mut self) {
        self.touched = true;
        self.cuts += 1;
    }

    /// A change of size has ended.
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
        in_use.opened(true, true);
        assert!(auto.direct_io(write, &in_use) && auto.direct_io(both, &in_use));
        in_use.closed(true, true, 0);
        in_use.opened(false, false);
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
        file.opened(true, true);
        file.opened(false, false);
        file.cut();
        file.closed(true, true, 0);
        file.closed(false, false, 0);
        assert!(!file.untouched());
        file.cut_done();
        assert!(file.untouched());
        // The kernel has what went through the cache.
        file.opened(false, false);
        file.closed(false, false, 0);
        assert!(!file.untouched());
    }

    #[test]
    fn writers_are_counted() {
        let mut file = InUse::default();
        file.opened(false, true);
        assert!(file.has_writers() && !file.is_closed());
        file.closed(false, true, 0);
        assert!(!file.has_writers() && file.is_closed());
    }
}
