//! What the router knows of one engine: how long it takes, as measured and as learned since, and how much it
//! has been given.

use super::{
    choice::Offer,
    profile::{Curve, Function, Profile},
};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Sizes are told apart by their two highest bits, from this power of two on, in so many classes.
const SMALLEST_CLASS: u32 = 16;
const CLASSES: usize = 22;
/// Batches of a class that are remembered. Their median counts: one whose thread was put aside for a while
/// says nothing about the next.
const REMEMBERED: usize = 7;

/// A batch, as far as its time goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub function: Function,
    pub bytes: usize,
}

impl Work {
    fn class(self) -> usize {
        let bytes = self.bytes.max(1 << SMALLEST_CLASS);
        let power = bytes.ilog2();
        let class = 2 * (power - SMALLEST_CLASS) as usize + (bytes >> (power - 1) & 1);
        self.function.number() * CLASSES + class.min(CLASSES - 1)
    }
}

/// What the latest batches of a class took, as multiples of what was measured; bits of an `f32` each.
struct Seen {
    factors: [AtomicU32; REMEMBERED],
    next: AtomicUsize,
}

impl Seen {
    /// As if all had taken what was measured.
    fn new() -> Self {
        Seen { factors: [const { AtomicU32::new(1f32.to_bits()) }; REMEMBERED], next: AtomicUsize::new(0) }
    }

    fn put(&self, factor: f32) {
        let place = self.next.fetch_add(1, Relaxed) % REMEMBERED;
        self.factors[place].store(factor.to_bits(), Relaxed);
    }

    fn median(&self) -> f32 {
        let mut all = self.factors.each_ref().map(|factor| f32::from_bits(factor.load(Relaxed)));
        all.sort_by(f32::total_cmp);
        all[REMEMBERED / 2]
    }

    fn last(&self) -> f32 {
        let place = self.next.load(Relaxed).wrapping_sub(1) % REMEMBERED;
        f32::from_bits(self.factors[place].load(Relaxed))
    }
}

/// An engine's times and load.
pub(super) struct Line {
    /// By function. Without one every byte counts for a nanosecond.
    curves: Vec<OnceLock<Curve>>,
    /// By class.
    seen: Vec<Seen>,
    /// By class, how often it was asked how long it takes.
    asked: Vec<AtomicU32>,
    /// Nanoseconds of work that it has been given and not finished, as far as one can tell.
    load: AtomicU64,
    /// Batches that it has, and that it ever had.
    active: AtomicUsize,
    begun: AtomicU64,
}

impl Line {
    /// Of an engine of which that is known.
    pub fn new(profile: &Profile) -> Self {
        let known = |function| profile.curve(function).cloned().map(OnceLock::from).unwrap_or_default();
        Line {
            curves: Function::all().map(known).collect(),
            seen: (0..Function::COUNT * CLASSES).map(|_| Seen::new()).collect(),
            asked: (0..Function::COUNT * CLASSES).map(|_| AtomicU32::new(0)).collect(),
            load: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
        }
    }

    /// What was measured of a function.
    pub fn curve(&self, function: Function) -> Option<&Curve> {
        self.curves[function.number()].get()
    }

    /// Takes note of a function that was measured. The first measurement stays: what is learned refers to it.
    pub fn know(&self, function: Function, curve: Curve) {
        let _ = self.curves[function.number()].set(curve);
    }

    /// What it offers for a batch.
    pub fn offer(&self, work: Work) -> Offer {
        let (measured, seen) = (self.measured(work) as f64, &self.seen[work.class()]);
        let [usual, last] = [seen.median(), seen.last()].map(|factor| (measured * f64::from(factor)) as u64);
        let load = self.load.load(Relaxed);
        Offer {
            ends: usual.saturating_add(load),
            at_last: last.saturating_add(load),
            idle: self.active() == 0,
        }
    }

    /// Nanoseconds that a batch keeps it from doing others, at least.
    pub fn occupied(&self, work: Work) -> u64 {
        (work.bytes as f64 * self.curve(work.function).map_or(1.0, Curve::per_byte)) as u64
    }

    /// Batches that it has.
    pub fn active(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// Counts how often this was asked for a class, from one on.
    pub fn asked(&self, work: Work) -> u32 {
        self.asked[work.class()].fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Counts a batch that it is given, until the turn is dropped.
    pub fn begin(&self, work: Work) -> Turn<'_> {
        let occupied = self.occupied(work);
        self.load.fetch_add(occupied, Relaxed);
        let alone = self.active.fetch_add(1, Relaxed) == 0;
        let number = self.begun.fetch_add(1, Relaxed) + 1;
        Turn { line: self, work, occupied, number: alone.then_some(number), start: Instant::now() }
    }

    fn measured(&self, work: Work) -> u64 {
        self.curve(work.function).map_or(work.bytes as u64, |curve| curve.nanoseconds(work.bytes))
    }

    fn learn(&self, work: Work, took: Duration) {
        let measured = (self.measured(work) as f32).max(1.0);
        self.seen[work.class()].put(took.as_nanos() as f32 / measured);
    }
}

/// A batch with an engine.
pub(super) struct Turn<'a> {
    line: &'a Line,
    work: Work,
    occupied: u64,
    /// Its number among the engine's, if the engine had no other when it came.
    number: Option<u64>,
    start: Instant,
}

impl Turn<'_> {
    /// It ended well. If the engine had no other meanwhile, its time is that of such a batch.
    pub fn done(self) {
        if self.number == Some(self.line.begun.load(Relaxed)) {
            self.line.learn(self.work, self.start.elapsed());
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.line.active.fetch_sub(1, Relaxed);
        self.line.load.fetch_sub(self.occupied, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Op, *};
    use crate::crypto::{cipher::Cipher, mac::Integrity};

    const FUNCTION: Function =
        Function { cipher: Cipher::Aes256, integrity: Integrity::Kmac128, op: Op::Seal };

    fn work(bytes: usize) -> Work {
        Work { function: FUNCTION, bytes }
    }

    /// A megabyte takes a millisecond.
    fn line() -> Line {
        let mut profile = Profile::new();
        for function in Function::all() {
            profile.put(function, Curve { points: vec![(1000, 1000), (1_000_000, 1_000_000)] });
        }
        Line::new(&profile)
    }

    #[test]
    fn a_turn_counts_until_it_ends() {
        let line = line();
        let ends = |bytes| line.offer(work(bytes)).ends;
        assert_eq!((ends(500_000), line.offer(work(1)).idle), (500_000, true));
        let first = line.begin(work(1_000_000));
        let second = line.begin(work(2_000_000));
        assert_eq!((ends(500_000), line.active(), line.offer(work(1)).idle), (3_500_000, 2, false));
        drop(first);
        assert_eq!(ends(500_000), 2_500_000);
        second.done();
        assert_eq!((ends(500_000), line.active()), (500_000, 0));
    }

    #[test]
    fn what_is_learned_follows_the_batches_of_its_class() {
        let line = line();
        let ends = |work| line.offer(work).ends;
        (0..4).for_each(|_| line.learn(work(1_000_000), Duration::from_millis(3)));
        assert_eq!(ends(work(1_000_000)), 3_000_000);
        assert_eq!(ends(work(4_000_000)), 4_000_000, "another size");
        assert_eq!(ends(work(800_000)), 2_400_000, "as that size");
        assert_eq!(ends(work(700_000)), 700_000, "beyond its class");
        let opening = Work { function: Function { op: Op::Open, ..FUNCTION }, bytes: 1_000_000 };
        assert_eq!(ends(opening), 1_000_000, "another function");
        (0..4).for_each(|_| line.learn(work(1_000_000), Duration::from_millis(1)));
        assert_eq!(ends(work(1_000_000)), 1_000_000);
    }

    #[test]
    fn a_few_odd_batches_move_nothing_but_the_last_is_told() {
        let line = line();
        (0..3).for_each(|_| line.learn(work(1_000_000), Duration::from_secs(3600)));
        let offer = line.offer(work(1_000_000));
        assert_eq!(offer.ends, 1_000_000);
        assert!(offer.at_last > 3_000_000_000_000);
        line.learn(work(1_000_000), Duration::from_micros(500));
        assert_eq!(line.offer(work(1_000_000)).at_last, 500_000);
    }

    #[test]
    fn batches_that_share_the_engine_teach_nothing() {
        let line = line();
        let last = || line.offer(work(1_000_000)).at_last;
        let first = line.begin(work(1_000_000));
        line.begin(work(1_000_000)).done();
        first.done();
        assert_eq!(last(), 1_000_000);
        line.begin(work(1_000_000)).done();
        assert!(last() < 1_000_000);
    }

    #[test]
    fn a_function_is_known_once_it_was_measured() {
        let line = Line::new(&Profile::new());
        assert!(line.curve(FUNCTION).is_none());
        assert_eq!(line.offer(work(5000)).ends, 5000, "a nanosecond a byte");
        let of = |nanoseconds| Curve { points: vec![(1000, nanoseconds), (2000, 2 * nanoseconds)] };
        line.know(FUNCTION, of(10));
        line.know(FUNCTION, of(99));
        assert_eq!(line.curve(FUNCTION), Some(&of(10)));
        assert!(line.curve(Function { op: Op::Open, ..FUNCTION }).is_none());
        assert_eq!((line.offer(work(1000)).ends, line.occupied(work(1000))), (10, 10));
    }
}
