//! What the router knows of one engine: how long it takes, as measured and as learned since, and how much it
//! has been given.

use super::measure::{Function, Profile};
use std::{
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Sizes are told apart by their powers of two, from this one on, in so many classes.
const SMALLEST_CLASS: u32 = 16;
const CLASSES: usize = 11;
/// Share of a new observation in what is learned.
const SHARE: f32 = 1.0 / 4.0;
/// An observation counts as at most so many times what was expected, or as that part of it: a batch whose thread
/// was put aside for a while says nothing about the next.
const STEP: f32 = 2.0;
/// Bounds of what is learned: times the measurement, or that part of it.
const FARTHEST: f32 = 16.0;

/// A batch, as far as its time goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub function: Function,
    pub bytes: usize,
}

impl Work {
    fn class(self) -> usize {
        let power = self.bytes.max(1).ilog2().saturating_sub(SMALLEST_CLASS) as usize;
        self.function.number() * CLASSES + power.min(CLASSES - 1)
    }
}

/// An engine's times and load.
pub(super) struct Line {
    profile: Option<Profile>,
    /// By class, what batches took since, as a multiple of what was measured; bits of an `f32`.
    learned: Vec<AtomicU32>,
    /// By class, how often it was asked how long it takes.
    asked: Vec<AtomicU32>,
    /// Nanoseconds of work that it has been given and not finished, as far as one can tell.
    load: AtomicU64,
    /// Batches that it has, and that it ever had.
    active: AtomicUsize,
    begun: AtomicU64,
}

impl Line {
    /// Without a profile every byte counts for a nanosecond.
    pub fn new(profile: Option<Profile>) -> Self {
        let learned = (0..Function::COUNT * CLASSES).map(|_| AtomicU32::new(1f32.to_bits())).collect();
        Line {
            profile,
            learned,
            asked: (0..Function::COUNT * CLASSES).map(|_| AtomicU32::new(0)).collect(),
            load: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
        }
    }

    /// Nanoseconds that it is expected to take for a batch alone.
    pub fn takes(&self, work: Work) -> u64 {
        (self.measured(work) as f64 * f64::from(self.factor(work))) as u64
    }

    /// The same after what it has been given before.
    pub fn ends(&self, work: Work) -> u64 {
        self.takes(work).saturating_add(self.load.load(Relaxed))
    }

    /// Counts how often this was asked for a class, from one on.
    pub fn asked(&self, work: Work) -> u32 {
        self.asked[work.class()].fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Counts a batch that it is given, until the turn is dropped.
    pub fn begin(&self, work: Work) -> Turn<'_> {
        let per_byte = self.profile.as_ref().map_or(1.0, |profile| profile.curve(work.function).per_byte());
        let occupied = (work.bytes as f64 * per_byte) as u64;
        self.load.fetch_add(occupied, Relaxed);
        let alone = self.active.fetch_add(1, Relaxed) == 0;
        let number = self.begun.fetch_add(1, Relaxed) + 1;
        Turn { line: self, work, occupied, number: alone.then_some(number), start: Instant::now() }
    }

    fn measured(&self, work: Work) -> u64 {
        let profile = self.profile.as_ref();
        profile.map_or(work.bytes as u64, |profile| profile.curve(work.function).nanoseconds(work.bytes))
    }

    fn factor(&self, work: Work) -> f32 {
        f32::from_bits(self.learned[work.class()].load(Relaxed))
    }

    /// Moves what is known of this class towards what a batch took. Two that do so at once may lose one of the
    /// observations, no more.
    fn learn(&self, work: Work, took: Duration) {
        let known = self.factor(work);
        let seen = took.as_nanos() as f32 / (self.measured(work) as f32).max(1.0);
        let seen = seen.clamp(known / STEP, known * STEP);
        let next = (known + (seen - known) * SHARE).clamp(1.0 / FARTHEST, FARTHEST);
        self.learned[work.class()].store(next.to_bits(), Relaxed);
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
    use super::{
        super::{Op, measure::Curve},
        *,
    };
    use crate::crypto::{cipher::Cipher, mac::Integrity};

    const FUNCTION: Function =
        Function { cipher: Cipher::Aes256, integrity: Integrity::Kmac128, op: Op::Seal };

    fn work(bytes: usize) -> Work {
        Work { function: FUNCTION, bytes }
    }

    /// A megabyte takes a millisecond.
    fn line() -> Line {
        Line::new(Some(Profile::of(&Curve { points: vec![(1000, 1000), (1_000_000, 1_000_000)] })))
    }

    #[test]
    fn a_turn_counts_until_it_ends() {
        let line = line();
        assert_eq!((line.takes(work(500_000)), line.ends(work(500_000))), (500_000, 500_000));
        let first = line.begin(work(1_000_000));
        let second = line.begin(work(2_000_000));
        assert_eq!(line.ends(work(500_000)), 3_500_000);
        drop(first);
        assert_eq!(line.ends(work(500_000)), 2_500_000);
        second.done();
        assert_eq!(line.ends(work(500_000)), 500_000);
    }

    #[test]
    fn what_is_learned_follows_the_batches_of_its_class() {
        let line = line();
        (0..100).for_each(|_| line.learn(work(1_000_000), Duration::from_millis(3)));
        let near = |found: u64, expected: f64| (found as f64 / expected - 1.0).abs() < 0.01;
        assert!(near(line.takes(work(1_000_000)), 3e6), "{}", line.takes(work(1_000_000)));
        assert_eq!(line.takes(work(4_000_000)), 4_000_000, "another size");
        let opening = Work { function: Function { op: Op::Open, ..FUNCTION }, bytes: 1_000_000 };
        assert_eq!(line.takes(opening), 1_000_000, "another function");
        (0..100).for_each(|_| line.learn(work(1_000_000), Duration::from_millis(1)));
        assert!(near(line.takes(work(1_000_000)), 1e6));
    }

    #[test]
    fn one_odd_batch_moves_little_and_nothing_moves_without_bound() {
        let line = line();
        line.learn(work(1_000_000), Duration::from_secs(3600));
        assert!(line.takes(work(1_000_000)) <= 1_250_001);
        (0..10_000).for_each(|_| line.learn(work(1_000_000), Duration::from_secs(3600)));
        assert_eq!(line.takes(work(1_000_000)), 16_000_000);
        (0..10_000).for_each(|_| line.learn(work(1_000_000), Duration::ZERO));
        assert_eq!(line.takes(work(1_000_000)), 62_500);
    }

    #[test]
    fn batches_that_share_the_engine_teach_nothing() {
        let line = line();
        let first = line.begin(work(1_000_000));
        line.begin(work(1_000_000)).done();
        first.done();
        assert_eq!(line.takes(work(1_000_000)), 1_000_000);
        line.begin(work(1_000_000)).done();
        assert!(line.takes(work(1_000_000)) < 1_000_000);
    }
}
