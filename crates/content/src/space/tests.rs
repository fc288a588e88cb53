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
        let (free, asked, flushed) =
            (Arc::new(AtomicU64::new(free)), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
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
