//! Free space in the store. Once a write is accepted, its bytes have a place there, even if the store
//! fills up meanwhile.
//!
//! While the store has far more free space than the buffers need, it is only queried now and then. When
//! it has less, all buffers are flushed, and from then on each write reserves its space before it is
//! accepted (`write::reserve`).

use super::buffer::Buffered;
use crate::sync::Mutex;
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
mod tests {
    use super::*;
    use std::sync::{Arc, atomic::AtomicUsize};

    /// A store with a given number of free bytes. Counts queries and flushes of all files.
    struct Store {
        space: Space,
        free: Arc<AtomicU64>,
        asked: Arc<AtomicUsize>,
        flushed: Arc<AtomicUsize>,
    }

    impl Store {
        fn new(free: u64) -> Store {
            let (free, asked, flushed) = (
                Arc::new(AtomicU64::new(free)),
                Arc::<AtomicUsize>::default(),
                Arc::<AtomicUsize>::default(),
            );
            let (told, count, flushes) = (free.clone(), asked.clone(), flushed.clone());
            let space = Space::of(Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(told.load(Ordering::Relaxed))
            }));
            space.flush_with(Box::new(move || _ = flushes.fetch_add(1, Ordering::Relaxed)));
            Store { space, free, asked, flushed }
        }

        /// Sets the free bytes, and returns whether space is scarce and the number of flushes so far.
        fn with(&self, free: u64) -> (bool, usize) {
            self.free.store(free, Ordering::Relaxed);
            self.space.forget();
            self.space.prepare(1, &Buffered::default());
            (self.space.is_scarce(), self.flushed.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn the_store_is_not_asked_for_each_write() {
        let store = Store::new(1 << 40);
        for _ in 0..10_000 {
            store.space.prepare(4096, &Buffered::default());
        }
        let asked = store.asked.load(Ordering::Relaxed) as u128;
        let in_time = store.space.start.elapsed().as_millis() / VALID.as_millis();
        let in_bytes = 10_000 * u128::from(most_stored(4096)) / u128::from(STEP - most_stored(4096));
        assert!((1..=in_bytes + in_time + 2).contains(&asked), "{asked}, {in_bytes}, {in_time}");
    }

    #[test]
    fn all_files_are_flushed_when_scarcity_begins() {
        let (store, plenty) = (Store::new(0), MARGIN + STEP);
        let short = MARGIN + most_stored(1) - 1;
        let steps = [plenty, short, 0, plenty - 1, plenty, short + 1, short].map(|free| store.with(free));
        let expected = [(false, 0), (true, 1), (true, 1), (true, 1), (false, 1), (false, 1), (true, 2)];
        assert_eq!(steps, expected);
    }

    #[test]
    fn what_is_buffered_needs_its_room() {
        let buffered = Buffered::default();
        buffered.pooled.store(1000, Ordering::Relaxed);
        let needs = MARGIN + 1000 * PAGES_A_CHUNK * layout::PAGE + most_stored(1);
        for (free, scarce) in [(needs, false), (needs - 1, true)] {
            let store = Store::new(free);
            store.space.prepare(1, &buffered);
            assert_eq!(store.space.is_scarce(), scarce);
        }
    }

    #[test]
    fn a_store_that_does_not_tell_has_room() {
        let space = Space::of(Box::new(|| Err(io::ErrorKind::Unsupported.into())));
        space.prepare(1 << 20, &Buffered::default());
        assert!(!space.is_scarce());
    }
}
