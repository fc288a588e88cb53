//! Room in the store. A byte that a write took finds a place there, also if the store runs full meanwhile.
//!
//! As long as the store has far more room than is buffered, it is only asked for its free space now and then. Once it has not, all
//! that is buffered is flushed, and from then on each write reserves its places before it takes a byte (`write::reserve`).

use super::Buffered;
use crate::{format::layout, vault::sync::Mutex};
use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Free bytes that are left to names, attributes and other programs.
const MARGIN: u64 = 64 << 20;
/// Free bytes beyond the margin that end scarcity, and are taken before the store is asked again, at most.
const STEP: u64 = 32 << 20;
/// The store is asked again after so long: other programs write, too.
const VALID: Duration = Duration::from_millis(100);
/// Pages that a chunk takes in the store at most: its own, its group's entries, and nodes above them.
const PAGES_A_CHUNK: u64 = 4;
/// Pages that a request takes beside its chunks and their entries: parts of chunks at both ends, and what is above them.
const PAGES_A_REQUEST: u64 = 8;

/// Asks the store for its free bytes.
pub type Free = Box<dyn Fn() -> io::Result<u64> + Send + Sync>;
/// Flushes all files.
pub type FlushAll = Box<dyn Fn() + Send + Sync>;

/// How much room the store has. Shared by all files.
pub struct Space {
    /// `None` where it never ends.
    free: Option<Free>,
    flush_all: OnceLock<FlushAll>,
    scarce: AtomicBool,
    /// Bytes that may be taken before the store is asked again.
    left: AtomicU64,
    /// When the store is asked again, in nanoseconds since `start`.
    ask_at: AtomicU64,
    start: Instant,
    /// Held while the store is asked, and all files are flushed. Its holder takes the states of files.
    asking: Mutex<()>,
}

impl Space {
    /// Of a store that says its free bytes.
    pub fn of(free: Free) -> Self {
        Space { free: Some(free), ..Space::endless() }
    }

    /// Of a store that never runs full.
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

    /// Says how all files are flushed. The first call counts.
    pub fn flush_with(&self, flush_all: FlushAll) {
        _ = self.flush_all.set(flush_all);
    }

    /// Whether a write has to reserve its places. To be asked under the lock of its file's state: all that was taken before
    /// without places is flushed under that lock.
    pub(super) fn is_scarce(&self) -> bool {
        self.scarce.load(Ordering::Acquire)
    }

    /// Before a write of `len` bytes, without the lock of any state: finds out whether there is room for it.
    pub(super) fn prepare(&self, len: u64, buffered: &Buffered) {
        let Some(free) = &self.free else { return };
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let cost = most_stored(len);
        if self.is_known(now, cost) {
            return;
        }
        let _asking = self.asking.lock();
        if self.is_known(now, cost) {
            return; // Another thread has asked.
        }
        let buffered = (buffered.chunks() as u64).saturating_mul(PAGES_A_CHUNK * layout::PAGE);
        // A store that does not tell is taken for one that has room.
        let room = free().unwrap_or(u64::MAX).saturating_sub(buffered.saturating_add(MARGIN));
        let was_scarce = self.scarce.load(Ordering::Relaxed);
        let scarce = room < if was_scarce { STEP.max(cost) } else { cost };
        self.left.store(room.min(STEP).saturating_sub(cost), Ordering::Relaxed);
        self.scarce.store(scarce, Ordering::Release);
        if scarce && !was_scarce {
            log::info!("the store is nearly full: space is reserved before a write is taken");
            if let Some(flush_all) = self.flush_all.get() {
                flush_all();
            }
        }
        let valid = u64::try_from(VALID.as_nanos()).unwrap_or(u64::MAX);
        self.ask_at.store(now.saturating_add(valid), Ordering::Relaxed);
    }

    /// Something else took space: the store is asked before the next write.
    pub(super) fn forget(&self) {
        self.ask_at.store(0, Ordering::Relaxed);
    }

    /// Whether what the store said last is enough for a write that takes `cost` bytes at most.
    fn is_known(&self, now: u64, cost: u64) -> bool {
        let take = |left: u64| left.checked_sub(cost);
        now < self.ask_at.load(Ordering::Relaxed)
            && (self.scarce.load(Ordering::Relaxed)
                || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok())
    }
}

/// Bytes that a write of `len` takes in the store at most.
fn most_stored(len: u64) -> u64 {
    let chunks = len.div_ceil(layout::CHUNK);
    (chunks + chunks.div_ceil(layout::GROUP0) + PAGES_A_REQUEST) * layout::PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, atomic::AtomicUsize};

    /// A store that has so many bytes free, and how often it was asked and all files were flushed.
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

        /// Whether it is scarce with so many bytes free, and how often all files were flushed so far.
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
