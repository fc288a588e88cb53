//! Metrics of this process: count, bytes, time and failures of each activity, and the hits and misses of
//! caches. A mount is one process, so these are the mount's numbers. Counting takes two clock readings and
//! a few additions to memory shared by few threads; it never blocks. The metrics contain no names, keys or
//! contents.

mod activity;
mod shards;

pub use activity::{Activity, Cache};

use serde_json::{Map, Value, json};
use shards::{Number, add, sum};
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// The extended attribute of a mount's root from which the metrics are read. It appears in no listing.
pub const ATTRIBUTE: &str = "warpcrypt.metrics";

static START: OnceLock<Instant> = OnceLock::new();

/// Starts the process's uptime. Only the first call has an effect.
pub fn start() {
    START.get_or_init(Instant::now);
}

/// Runs `work` and counts it, with its time and `bytes`.
pub fn measure<T>(activity: Activity, bytes: usize, work: impl FnOnce() -> T) -> T {
    let _counted = Counted::start(activity, bytes);
    work()
}

/// Counts an activity with its time, from `start` until the value is dropped.
#[must_use]
pub struct Counted {
    activity: Activity,
    bytes: usize,
    start: Instant,
}

impl Counted {
    /// Starts the time of an activity.
    #[inline]
    pub fn start(activity: Activity, bytes: usize) -> Self {
        Counted { activity, bytes, start: Instant::now() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        count(self.activity, self.bytes, self.start.elapsed());
    }
}

/// Counts a completed activity.
#[inline]
pub fn count(activity: Activity, bytes: usize, time: Duration) {
    add(Number::Count(activity), 1);
    add(Number::Bytes(activity), bytes as u64);
    add(Number::Nanoseconds(activity), u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

/// Adds bytes to an activity whose time is counted elsewhere.
#[inline]
pub fn bytes(activity: Activity, bytes: usize) {
    add(Number::Bytes(activity), bytes as u64);
}

/// Counts a failed activity.
#[inline]
pub fn failed(activity: Activity) {
    add(Number::Failures(activity), 1);
}

/// Counts a cache lookup; `helped` says whether it was a hit.
#[inline]
pub fn asked(cache: Cache, helped: bool) {
    add(if helped { Number::Hits(cache) } else { Number::Misses(cache) }, 1);
}

/// All metrics: the objects `requests`, `fuse`, `store`, `crypto`, `queue` and `caches`, and
/// `uptime_seconds`. Times are in seconds, summed over threads.
pub fn snapshot() -> Map<String, Value> {
    let mut all = Map::new();
    let uptime = START.get().map_or(0.0, |start| start.elapsed().as_secs_f64());
    all.insert("uptime_seconds".to_owned(), json!(uptime));
    let mut put = |group: &str, name: &str, value: Value| {
        let group = all.entry(group).or_insert_with(|| json!({}));
        group[name] = value;
    };
    for activity in Activity::ALL {
        let number = |of: fn(Activity) -> Number| sum(of(activity));
        let value = json!({
            "count": number(Number::Count),
            "bytes": number(Number::Bytes),
            "seconds": number(Number::Nanoseconds) as f64 / 1e9,
            "failures": number(Number::Failures),
        });
        put(activity.group(), activity.name(), value);
    }
    for cache in Cache::ALL {
        let value = json!({ "hits": sum(Number::Hits(cache)), "misses": sum(Number::Misses(cache)) });
        put("caches", cache.name(), value);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn everything_is_added_up_over_threads() {
        let of = |group: &str, name: &str, what: &str| snapshot()[group][name][what].as_f64().unwrap_or(-1.0);
        let before = ["count", "bytes", "failures", "seconds"].map(|what| of("requests", "bmap", what));
        thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    measure(Activity::Bmap, 10, || thread::sleep(Duration::from_millis(1)));
                    failed(Activity::Bmap);
                });
            }
        });
        let after = ["count", "bytes", "failures", "seconds"].map(|what| of("requests", "bmap", what));
        assert_eq!((after[0] - before[0], after[1] - before[1], after[2] - before[2]), (40.0, 400.0, 40.0));
        assert!(after[3] - before[3] >= 0.04);
    }

    #[test]
    fn every_activity_and_cache_has_a_place() {
        let all = snapshot();
        for group in ["requests", "fuse", "store", "crypto", "queue", "caches"] {
            assert!(all[group].as_object().is_some_and(|members| !members.is_empty()), "{group}");
        }
        let places: usize = all.values().filter_map(Value::as_object).map(Map::len).sum();
        assert_eq!(places, Activity::ALL.len() + Cache::ALL.len());
    }
}
