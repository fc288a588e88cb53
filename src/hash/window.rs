//! Which files are mapped instead of read, and how they are looked at a window at a time. Whatever is seen in a window
//! counts only if the file still has it afterwards; if not, it is read, which says why.

use super::{mapping::Mapping, source::Content};
use rustix::{fs, param::page_size};
use std::{
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Bytes of a window, at most: each one that is unmapped interrupts all processors.
const LONGEST: u64 = 128 << 20;
/// Shorter files are read: copying them costs less than mapping and unmapping them.
const SHORTEST: u64 = 32 << 20;
/// With fewer processors all files are read: only many that copy at once wait for memory, and looking costs more than
/// copying then (for SHA-3 and MD6 on two).
const MANY: usize = 8;
/// The type of a tmpfs, as statfs(2) has it.
const TMPFS: i64 = 0x0102_1994;

/// Bytes of a file that can be looked at without being copied.
pub struct Window {
    offset: u64,
    mapping: Mapping,
}

impl Window {
    /// A window of a file in memory, from about `offset` on; nothing if reading it is better. Files on other
    /// filesystems are read, for reading is what has the system read ahead and tells errors apart. So are files with
    /// holes: looking at them would fill them.
    pub fn of_memory(file: impl AsFd, offset: u64) -> Option<Self> {
        let stat = fs::fstat(&file).ok()?;
        let (size, stored) = (stat.st_size as u64, 512 * stat.st_blocks as u64);
        let whole = size >= SHORTEST && stored >= size;
        let in_memory = whole && fs::fstatfs(&file).ok()?.f_type as i64 == TMPFS;
        // Last, for it reads files of the system's.
        let in_memory = in_memory && thread::available_parallelism().is_ok_and(|count| count.get() >= MANY);
        in_memory.then(|| Window::new(file, offset, (size - offset.min(size)).min(LONGEST)))?
    }

    /// A window of at least `len` bytes from `offset` on, if the file can be mapped.
    pub(super) fn new(file: impl AsFd, offset: u64, len: u64) -> Option<Self> {
        let begin = offset - offset % page_size() as u64;
        let len = usize::try_from(offset - begin + len).ok()?;
        Some(Window { offset: begin, mapping: Mapping::new(file.as_fd(), begin, len)? })
    }

    /// These bytes, if it has them all.
    pub(super) fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let begin = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.mapping.bytes().get(begin..begin.checked_add(len)?)
    }

    /// Whether all that was seen before `end` was the file's.
    pub(super) fn was_right(&self, content: &impl Content, end: u64) -> bool {
        // Behind the end of a file its last page is zeros, which nobody is told.
        !self.mapping.is_lost() && content.size().is_ok_and(|size| size >= end)
    }
}

/// A file that is seen from its beginning to its end.
#[derive(Default)]
pub(super) struct Sight {
    window: Option<Arc<Window>>,
    /// It is to be read.
    refused: bool,
}

impl Sight {
    /// These bytes and the window that they are in; nothing if they are to be read, or `stop` is set.
    pub(super) fn look(
        &mut self,
        content: &impl Content,
        offset: u64,
        len: usize,
        stop: &AtomicBool,
    ) -> Option<(&Arc<Window>, &[u8])> {
        if self.refused || stop.load(Ordering::Relaxed) {
            return None;
        }
        let is_behind = |window: &Arc<Window>| offset >= window.offset && window.bytes(offset, len).is_none();
        if self.window.as_ref().is_none_or(is_behind) {
            // Not two at once.
            self.window = None;
            self.window = content.window(offset).map(Arc::new);
            self.refused = self.window.is_none();
        }
        let window = self.window.as_ref()?;
        Some((window, window.bytes(offset, len)?))
    }

    /// As `Window::was_right`.
    pub(super) fn was_right(&self, content: &impl Content, end: u64) -> bool {
        self.window.as_ref().is_some_and(|window| window.was_right(content, end))
    }

    /// Has all that follows read.
    pub(super) fn refuse(&mut self) {
        *self = Sight { window: None, refused: true };
    }
}
