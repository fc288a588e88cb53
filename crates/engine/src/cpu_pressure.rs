//! CPU pressure: how many threads of the whole machine want a processor, as counted by the kernel, averaged
//! over a few milliseconds.

use parking_lot::Mutex;
use std::{
    fs::File,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

/// Minimum time between two queries of the kernel.
const PAUSE: Duration = Duration::from_millis(1);
/// Observations older than this have almost no weight.
const MEMORY: Duration = Duration::from_millis(10);
/// Maximum weight of one observation in the mean. A kernel thread, or one of ours that is about to sleep,
/// may happen to be running at that moment.
const ONCE: f64 = 0.25;

/// The pressure on the processors.
pub(super) struct CpuPressure {
    /// `/proc/loadavg`, if it exists. Without it, the pressure counts as zero.
    file: Option<File>,
    processors: f64,
    seen: Mutex<(Option<Instant>, Mean)>,
}

impl CpuPressure {
    /// For a machine on which this process may use this many processors.
    pub fn new(processors: usize) -> Self {
        let file = File::open("/proc/loadavg").ok();
        CpuPressure { file, processors: processors.max(1) as f64, seen: Mutex::default() }
    }

    /// The share of the processors, 0 to 1, wanted by threads other than the caller and `own` others.
    pub fn of_others(&self, own: usize) -> f64 {
        let mut seen = self.seen.lock();
        let (now, (at, mean)) = (Instant::now(), &mut *seen);
        let passed = at.map_or(MEMORY, |at| now.saturating_duration_since(at));
        if passed >= PAUSE
            && let Some(running) = self.file.as_ref().and_then(running)
        {
            mean.add((running - 1.0 - own as f64).max(0.0), passed);
            *at = Some(now);
        }
        (mean.value / self.processors).min(1.0)
    }
}

/// A weighted mean in which older observations count less.
#[derive(Default)]
struct Mean {
    value: f64,
}

impl Mean {
    /// Adds an observation, made `passed` after the previous one.
    fn add(&mut self, seen: f64, passed: Duration) {
        let weight = (passed.as_secs_f64() / MEMORY.as_secs_f64()).min(ONCE);
        self.value += (seen - self.value) * weight;
    }
}

/// Number of running threads, as the kernel reports it now.
fn running(file: &File) -> Option<f64> {
    let mut text = [0; 128];
    let len = file.read_at(&mut text, 0).ok()?;
    parse(std::str::from_utf8(&text[..len]).ok()?)
}

/// Parses the fourth field, `running/all`.
fn parse(text: &str) -> Option<f64> {
    text.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        hint,
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread,
    };

    #[test]
    fn the_fourth_field_counts() {
        assert_eq!(parse("0.66 0.36 0.20 7/342 1234\n"), Some(7.0));
        for odd in ["", "0.66 0.36 0.20", "0.66 0.36 0.20 7 1234", "a b c d/e f"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn busy_threads_are_seen() {
        let pressure = CpuPressure::new(1);
        assert!(pressure.file.is_some(), "tests run where there is a kernel to ask");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        hint::spin_loop()
                    }
                });
            }
            // After such a pause, each observation gets the maximum weight.
            let look = |own| {
                thread::sleep(2 * MEMORY);
                pressure.of_others(own)
            };
            let shares: Vec<f64> = (0..50).map(|_| look(0)).collect();
            let mut without = 1.0;
            for _ in 0..50 {
                without = look(100_000);
            }
            stop.store(true, Relaxed);
            assert!(shares.contains(&1.0) && without < 0.01, "{shares:?} {without}");
        });
    }

    #[test]
    fn without_a_kernel_to_ask_nobody_wants_any() {
        let pressure = CpuPressure { file: None, ..CpuPressure::new(4) };
        assert_eq!(pressure.of_others(0), 0.0);
    }

    #[test]
    fn a_mean_forgets() {
        let mut mean = Mean::default();
        mean.add(8.0, MEMORY / 8);
        assert_eq!(mean.value, 1.0);
        mean.add(9.0, MEMORY / 4);
        assert_eq!(mean.value, 3.0);
        mean.add(7.0, 3 * MEMORY);
        assert_eq!(mean.value, 4.0, "one look is not all");
    }
}
