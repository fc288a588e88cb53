//! Free space in the store. Once a write is accepted, its bytes have a place there, even if the store
//! fills up meanwhile.
//!
//! While the store has far more free space than the buffers need, it is only queried now and then. When
//! it has less, all buffers are flushed, and from then on each write reserves its space before it is
//! accepted (`write::reserve`).

use super::{buffer::Buffered, sync::Mutex};
use format::layout;
use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Free bytes left for names, attributes and other programs.
const MARGIN: u64 = 64 << 20;
/// Free bytes beyond the margin that end scarcity. Also the most bytes taken before the store is queried
/// again.
const STEP: u64 = 32 << 20;
/// Interval after which the store is queried again, since other programs write, too.
const VALID: Duration = Duration::from_millis(100);
/// Maximum pages that a chunk takes in the store: its own, its group's entries, and nodes above them.
const PAGES_A_CHUNK: u64 = 4;
/// Maximum pages that a request takes beside its chunks and their entries: partial chunks at both ends,
/// and pages above them.
const PAGES_A_REQUEST: u64 = 8;

/// Returns the free bytes of the store.
pub type Free = Box<dyn Fn() -> io::Result<u64> + Send + Sync>;
/// Flushes all files.
pub type FlushAll = Box<dyn Fn() + Send + Sync>;

/// Tracks the store's free space. Shared by all files.
pub struct Space {
    /// `None` if the space never runs out.
    free: Option<Free>,
    flush_all: OnceLock<FlushAll>,
    scarce: AtomicBool,
    /// Bytes that may be taken before the store is queried again.
    left: AtomicU64,
    /// Time of the next query, in nanoseconds since `start`.
    ask_at: AtomicU64,
    start: Instant,
    /// Held while the store is queried and all files are flushed. Its holder locks the states of files.
    asking: Mutex<()>,
}

impl Space {
    /// For a store that reports its free bytes.
    pub fn of(free: Free) -> Self {
        Space { free: Some(free), ..Space::endless() }
    }

    /// For a store that never runs full.
    pub fn endless() -> Self {
        Space {
            free: None,
            flush_all: OnceLock::new(),
            scarce: AtomicBool::new(false),
            left: AtomicU64::new(0),
            ask_at: AtomicU64::new(0),
            start: Instant::now(),
            asking: Mutex::new(()),
        }
    }

    /// Sets the function that flushes all files. Only the first call has an effect.
    pub fn flush_with(&self, flush_all: FlushAll) {
        _ = self.flush_all.set(flush_all);
    }

    /// Whether a write must reserve its space. Called under the lock of the file's state: data accepted
    /// earlier without a reservation is flushed under that lock.
    pub(super) fn is_scarce(&self) -> bool {
        self.scarce.load(Ordering::Acquire)
    }

    /// Called before a write of `len` bytes, without the lock of any state: checks whether there is space
    /// for it.
    pub(super) fn prepare(&self, len: u64, buffered: &Buffered) {
        let Some(free) = &self.free else { return };
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let cost = most_stored(len);
        if self.is_known(now, cost) {
            return;
        }
        let _asking = self.asking.lock();
        if self.is_known(now, cost) {
            return; // Another thread has queried the store.
        }
        let buffered = (buffered.chunks() as u64).saturating_mul(PAGES_A_CHUNK * layout::PAGE);
        // If the store reports nothing, assume that it has room.
        let room = free().unwrap_or(u64::MAX).saturating_sub(buffered.saturating_add(MARGIN));
        let was_scarce = self.scarce.load(Ordering::Relaxed);
        let scarce = room < if was_scarce { STEP.max(cost) } else { cost };
        self.left.store(room.min(STEP).saturating_sub(cost), Ordering::Relaxed);
        self.scarce.store(scarce, Ordering::Release);
        if scarce && !was_scarce {
            log::info!("the store is nearly full: reserving space before accepting writes");
            if let Some(flush_all) = self.flush_all.get() {
                flush_all();
            }
        }
        let valid = u64::try_from(VALID.as_nanos()).unwrap_or(u64::MAX);
        self.ask_at.store(now.saturating_add(valid), Ordering::Relaxed);
    }

    /// Called when something else took space: forces a query before the next write.
    pub(super) fn forget(&self) {
        self.ask_at.store(0, Ordering::Relaxed);
    }

    /// Whether the last query suffices for a write that takes up to `cost` bytes. If so, deducts them.
    fn is_known(&self, now: u64, cost: u64) -> bool {
        let take = |left: u64| left.checked_sub(cost);
        now < self.ask_at.load(Ordering::Relaxed)
            && (self.scarce.load(Ordering::Relaxed)
                || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok())
    }
}

/// Maximum bytes that a write of `len` takes in the store.
fn most_stored(len: u64) -> u64 {
    let chunks = len.div_ceil(layout::CHUNK);
    (chunks + chunks.div_ceil(layout::GROUP0) + PAGES_A_REQUEST) * layout::PAGE
}

#[cfg(test)]
mod tests;
