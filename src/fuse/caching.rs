//! Which open files go past the kernel's page cache, and what the kernel holds of a file's content.
//!
//! Past the cache a request goes from the program's memory to the vault at once, however large: nothing is
//! copied into pages first, and several writes of one file are under way together. But then every read is a
//! request, however small. What is only written gains from the one and has no part in the other.
//!
//! The kernel keeps its pages right: a write past the cache brings written pages of the range (mapped ones) to the
//! vault first, and drops the range's pages before and after (for writes that a program only begins we do the latter:
//! `stale`). Two things it cannot do. Who reads the last page
//! through the cache while it is appended to past it may find zeros behind the old end; and where a program
//! writes past the cache while another changes the same page in its mapping, one change may be lost. So while a
//! file is open one way, it is opened the same way by our own choice.

use crate::vault::OpenFile;
use fuser::{OpenAccMode, OpenFlags, Version};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The protocol of the first kernel (Linux 6.14) that certainly drops pages after a write past the cache too.
/// Earlier ones drop them only before: a page that is read meanwhile stays, out of date.
const COHERENT: Version = Version(7, 42);

/// Where the contents of open files are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// In the kernel, but for files that are opened only to be written, and that are open so.
    #[default]
    Auto,
    /// In the kernel, but for what is opened with O_DIRECT.
    Kernel,
    /// Nowhere: every read and write is a request. Mapped pages alone are the kernel's.
    Direct,
}

/// A mount's rule.
#[derive(Debug)]
pub struct Caching {
    mode: CacheMode,
    coherent: AtomicBool,
}

impl Caching {
    /// The rule of `mode`, for a kernel that is not known yet.
    pub fn new(mode: CacheMode) -> Self {
        Caching { mode, coherent: AtomicBool::new(false) }
    }

    /// Learns the kernel's protocol.
    pub fn agreed(&self, protocol: Version) {
        self.coherent.store(protocol >= COHERENT, Ordering::Relaxed);
    }

    /// Whether a file opened with `flags` goes past the cache.
    pub fn past(&self, flags: OpenFlags, in_use: &InUse) -> bool {
        let chosen = match self.mode {
            CacheMode::Direct => true,
            CacheMode::Kernel => false,
            CacheMode::Auto => {
                let better = flags.acc_mode() == OpenAccMode::O_WRONLY || in_use.past > 0;
                better && in_use.cached == 0 && self.coherent.load(Ordering::Relaxed)
            }
        };
        chosen || flags.0 & libc::O_DIRECT != 0
    }
}

/// The handles of a file, and what the kernel holds of its content.
#[derive(Debug, Default)]
pub struct InUse {
    /// Handles through the page cache.
    cached: usize,
    /// Handles past it.
    past: usize,
    /// Changes of size that are under way.
    cuts: usize,
    /// Whether the file was opened or cut since the kernel knows it, or since it was last closed by all after
    /// it was written past the cache. Then the kernel may hold content, or be about to ask for some.
    touched: bool,
    /// Whether it was open past the cache since it was last closed by all.
    went_past: bool,
    /// Kept open for an opening that was sent back to look the file up again.
    sent_back: Option<Kept>,
}

struct Kept(Arc<OpenFile>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.0.key).finish()
    }
}

impl InUse {
    /// An opening is to be sent back, and `file` to stay open until it comes again. False if it did already.
    pub fn send_back(&mut self, file: &Arc<OpenFile>) -> bool {
        self.sent_back.replace(Kept(file.clone())).is_none()
    }

    /// An opening succeeds. Returns whether it was sent back before.
    pub fn came_back(&mut self) -> bool {
        self.sent_back.take().is_some()
    }

    /// Whether the kernel holds nothing of the content, and asks for nothing.
    pub fn untouched(&self) -> bool {
        !self.touched
    }

    /// Whether there is one handle past the cache at most, and none through it.
    pub fn is_of_one(&self) -> bool {
        self.cached == 0 && self.past <= 1
    }

    /// A handle is given out.
    pub fn opened(&mut self, past: bool) {
        self.touched = true;
        self.went_past |= past;
        *if past { &mut self.past } else { &mut self.cached } += 1;
    }

    /// A handle is taken back: no request of it is under way any more.
    pub fn closed(&mut self, past: bool) {
        *if past { &mut self.past } else { &mut self.cached } -= 1;
        self.rest();
    }

    /// A change of size begins.
    pub fn cut(&mut self) {
        self.touched = true;
        self.cuts += 1;
    }

    /// A change of size has ended.
    pub fn cut_done(&mut self) {
        self.cuts -= 1;
        self.rest();
    }

    fn rest(&mut self) {
        if self.cached + self.past + self.cuts == 0 && self.went_past {
            self.touched = false;
            self.went_past = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(mode: CacheMode, protocol: Version) -> Caching {
        let rule = Caching::new(mode);
        rule.agreed(protocol);
        rule
    }

    #[test]
    fn what_is_only_written_goes_past_the_cache_and_all_go_the_way_that_a_file_is_open() {
        let auto = rule(CacheMode::Auto, COHERENT);
        let (write, both) = (OpenFlags(libc::O_WRONLY), OpenFlags(libc::O_RDWR));
        let mut in_use = InUse::default();
        assert!(auto.past(write, &in_use));
        assert!(!auto.past(both, &in_use) && !auto.past(OpenFlags(libc::O_RDONLY), &in_use));
        in_use.opened(true);
        assert!(auto.past(write, &in_use) && auto.past(both, &in_use));
        in_use.closed(true);
        in_use.opened(false);
        assert!(!auto.past(write, &in_use));
        assert!(auto.past(OpenFlags(libc::O_RDWR | libc::O_DIRECT), &in_use));
        in_use.closed(false);
        assert!(auto.past(write, &in_use) && !auto.past(both, &in_use));
        assert!(!rule(CacheMode::Auto, Version(7, 41)).past(write, &in_use));
        assert!(!rule(CacheMode::Kernel, COHERENT).past(write, &in_use));
        assert!(rule(CacheMode::Direct, Version(7, 41)).past(both, &in_use));
    }

    #[test]
    fn a_file_is_untouched_again_when_all_who_went_past_the_cache_are_done() {
        let mut file = InUse::default();
        assert!(file.untouched());
        file.opened(true);
        file.opened(false);
        file.cut();
        file.closed(true);
        file.closed(false);
        assert!(!file.untouched());
        file.cut_done();
        assert!(file.untouched());
        // What went through the cache is there already.
        file.opened(false);
        file.closed(false);
        assert!(!file.untouched());
    }
}
