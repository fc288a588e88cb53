//! The numbers themselves, several times over: threads that count at once write to different cache lines.

use super::activity::{ACTIVITIES, Activity, CACHES, Cache};
use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// Copies of the numbers; threads share them in turn.
const SHARDS: usize = 16;
/// Numbers of an activity.
const EACH: usize = 4;
/// Numbers in all.
const NUMBERS: usize = ACTIVITIES * EACH + CACHES * 2;

/// One of the numbers.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Count(Activity),
    Bytes(Activity),
    Nanoseconds(Activity),
    Failures(Activity),
    Hits(Cache),
    Misses(Cache),
}

impl Number {
    fn place(self) -> usize {
        let caches = ACTIVITIES * EACH;
        match self {
            Number::Count(activity) => activity as usize * EACH,
            Number::Bytes(activity) => activity as usize * EACH + 1,
            Number::Nanoseconds(activity) => activity as usize * EACH + 2,
            Number::Failures(activity) => activity as usize * EACH + 3,
            Number::Hits(cache) => caches + cache as usize * 2,
            Number::Misses(cache) => caches + cache as usize * 2 + 1,
        }
    }
}

/// Two cache lines: processors fetch them in pairs.
#[repr(align(128))]
struct Shard([AtomicU64; NUMBERS]);

static ALL: [Shard; SHARDS] = [const { Shard([const { AtomicU64::new(0) }; NUMBERS]) }; SHARDS];

thread_local! {
    static MINE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS)
    };
}

/// Adds to a number.
pub(super) fn add(number: Number, value: u64) {
    // A thread that is ending has no place of its own any more.
    let mine = MINE.try_with(Cell::get).unwrap_or(0);
    ALL[mine].0[number.place()].fetch_add(value, Ordering::Relaxed);
}

/// What was added to a number by all threads together.
pub(super) fn sum(number: Number) -> u64 {
    ALL.iter().fold(0, |sum, shard| sum.wrapping_add(shard.0[number.place()].load(Ordering::Relaxed)))
}
