//! The counters, replicated so that threads which count concurrently write to different cache lines.

use super::activity::{ACTIVITIES, Activity, CACHES, Cache};
use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// Copies of the counters. Threads are assigned to them in turn.
const SHARDS: usize = 16;
/// Counters per activity.
const EACH: usize = 4;
/// Counters per shard.
const NUMBERS: usize = ACTIVITIES * EACH + CACHES * 2;

/// Identifies a counter.
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

/// Aligned to two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Shard([AtomicU64; NUMBERS]);

static ALL: [Shard; SHARDS] = [const { Shard([const { AtomicU64::new(0) }; NUMBERS]) }; SHARDS];

thread_local! {
    static MINE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS)
    };
}

/// Adds to a counter.
pub(super) fn add(number: Number, value: u64) {
    // A thread that is ending may have lost its shard index.
    let mine = MINE.try_with(Cell::get).unwrap_or(0);
    ALL[mine].0[number.place()].fetch_add(value, Ordering::Relaxed);
}

/// Sum of a counter over all shards.
pub(super) fn sum(number: Number) -> u64 {
    ALL.iter().fold(0, |sum, shard| sum.wrapping_add(shard.0[number.place()].load(Ordering::Relaxed)))
}
