//! The router's view of one engine: measured times, and how much work it has.

use super::profile::{Curve, Function, Profile};
use std::sync::{
    OnceLock,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// A batch, as far as its time is concerned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub function: Function,
    pub bytes: usize,
}

/// An engine's times and load.
pub(super) struct EngineLoad {
    /// By function. Without a curve, every byte counts as one nanosecond.
    curves: Vec<OnceLock<Curve>>,
    /// Estimated nanoseconds of work given to the engine and not yet finished.
    pending: AtomicU64,
    /// Batches in flight.
    active: AtomicUsize,
}

impl EngineLoad {
    /// The load of an idle engine with this profile.
    pub fn new(profile: &Profile) -> Self {
        let known = |function| profile.curve(function).cloned().map(OnceLock::from).unwrap_or_default();
        EngineLoad {
            curves: Function::all().map(known).collect(),
            pending: AtomicU64::new(0),
            active: AtomicUsize::new(0),
        }
    }

    /// The measured curve of a function.
    pub fn curve(&self, function: Function) -> Option<&Curve> {
        self.curves[function.number()].get()
    }

    /// Records the measured curve of a function. The first measurement is kept.
    pub fn know(&self, function: Function, curve: Curve) {
        let _ = self.curves[function.number()].set(curve);
    }

    /// Nanoseconds until a batch should finish, after all work that the engine already has.
    pub fn ends(&self, work: Work) -> u64 {
        let alone =
            self.curve(work.function).map_or(work.bytes as u64, |curve| curve.nanoseconds(work.bytes));
        alone.saturating_add(self.pending.load(Relaxed))
    }

    /// Minimum nanoseconds for which a batch keeps the engine from running others.
    pub fn occupied(&self, work: Work) -> u64 {
        (work.bytes as f64 * self.curve(work.function).map_or(1.0, Curve::per_byte)) as u64
    }

    /// Batches in flight.
    pub fn active(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// Counts a batch given to the engine, until the guard is dropped.
    pub fn begin(&self, work: Work) -> LoadGuard<'_> {
        let occupied = self.occupied(work);
        self.pending.fetch_add(occupied, Relaxed);
        self.active.fetch_add(1, Relaxed);
        LoadGuard { load: self, occupied }
    }
}

/// A batch in flight on an engine.
pub(super) struct LoadGuard<'a> {
    load: &'a EngineLoad,
    occupied: u64,
}

impl Drop for LoadGuard<'_> {
    fn drop(&mut self) {
        self.load.active.fetch_sub(1, Relaxed);
        self.load.pending.fetch_sub(self.occupied, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Op, *};
    use crypto::{cipher::Cipher, integrity::Integrity};

    const FUNCTION: Function =
        Function { cipher: Cipher::Aes256, integrity: Integrity::Kmac128, op: Op::Seal };

    fn work(bytes: usize) -> Work {
        Work { function: FUNCTION, bytes }
    }

    /// One megabyte takes one millisecond.
    fn load() -> EngineLoad {
        let mut profile = Profile::new();
        for function in Function::all() {
            profile.put(function, Curve { points: vec![(1000, 1000), (1_000_000, 1_000_000)] });
        }
        EngineLoad::new(&profile)
    }

    #[test]
    fn a_turn_counts_until_it_ends() {
        let load = load();
        let ends = |bytes| load.ends(work(bytes));
        assert_eq!(ends(500_000), 500_000);
        let first = load.begin(work(1_000_000));
        let second = load.begin(work(2_000_000));
        assert_eq!((ends(500_000), load.active()), (3_500_000, 2));
        drop(first);
        assert_eq!(ends(500_000), 2_500_000);
        drop(second);
        assert_eq!((ends(500_000), load.active()), (500_000, 0));
    }

    #[test]
    fn a_function_is_known_once_it_was_measured() {
        let load = EngineLoad::new(&Profile::new());
        assert!(load.curve(FUNCTION).is_none());
        assert_eq!(load.ends(work(5000)), 5000, "a nanosecond a byte");
        let of = |nanoseconds| Curve { points: vec![(1000, nanoseconds), (2000, 2 * nanoseconds)] };
        load.know(FUNCTION, of(10));
        load.know(FUNCTION, of(99));
        assert_eq!(load.curve(FUNCTION), Some(&of(10)));
        assert!(load.curve(Function { op: Op::Open, ..FUNCTION }).is_none());
        assert_eq!((load.ends(work(1000)), load.occupied(work(1000))), (10, 10));
    }
}
