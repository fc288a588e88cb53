//! Pace of requests at one event loop. It decides whether the loop spins before it blocks, and whether
//! the loop has been busy without a pause for so long that it needs help.
//!
//! Waking a blocked loop takes longer than serving a small request. A single program that works on small
//! files, or reads a few bytes at random, sends its next request within microseconds, so the loop spins
//! that long. If no request arrives, it spins less and less often. If other programs need the processor,
//! it stops spinning for a long time, because that would waste theirs.

use std::time::{Duration, Instant};

/// How long a loop spins.
const SPIN: Duration = Duration::from_micros(30);
/// Maximum number of pauses skipped before the next spin.
const MOST_SKIPPED: u32 = 64;
/// A spin that took this long was interrupted: another program had the processor.
const INTERRUPTED: Duration = Duration::from_micros(300);
/// Number of pauses skipped after an interrupted spin.
const CROWDED: u32 = 2048;
/// Longer than a single program keeps a loop busy. Its next request may arrive without a pause, while the
/// loop is still finishing work that the program does not wait for.
const LONG: Duration = Duration::from_micros(200);

/// The pace at one loop.
#[derive(Debug, Default)]
pub struct Pace {
    /// Start of the current busy period without a pause.
    since: Option<Instant>,
    /// Pauses to skip before the next spin.
    skip: u32,
    /// Number of pauses skipped after the last unsuccessful spin; 0 after a successful one.
    skipped: u32,
}

impl Pace {
    /// Called when a request begins.
    pub fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// Whether the loop has been busy for long.
    pub fn is_long(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= LONG)
    }

    /// Called when no request waits.
    pub fn pause(&mut self) {
        self.since = None;
    }

    /// Spins until `waits` reports a waiting request, at most for a moment. Does nothing if a request is
    /// unlikely to arrive so soon.
    pub fn spin(&mut self, waits: impl Fn() -> bool) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let start = Instant::now();
        loop {
            let (came, passed) = (waits(), start.elapsed());
            if passed >= INTERRUPTED {
                self.skip = CROWDED;
                return;
            }
            if came {
                self.skipped = 0;
                return;
            }
            if passed >= SPIN {
                self.skipped = (2 * self.skipped).clamp(1, MOST_SKIPPED);
                self.skip = self.skipped;
                return;
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, thread};

    /// Counts the spins in `pauses` pauses.
    fn spins(pace: &mut Pace, pauses: u32, comes: bool) -> u32 {
        let count = Cell::new(0);
        for _ in 0..pauses {
            let before = count.get();
            pace.spin(|| {
                count.set(before + 1);
                comes
            });
        }
        count.get()
    }

    #[test]
    fn a_loop_that_spins_in_vain_does_so_less_often() {
        let mut pace = Pace::default();
        assert_eq!(spins(&mut pace, 1, false), 1);
        // Spins are 1, 2, 4, … pauses apart, at most 64, or further if another program had the processor.
        let rare = spins(&mut pace, 10 * MOST_SKIPPED, false);
        assert!(rare <= 20, "{rare}");
        // After a successful spin, none is skipped.
        pace.skip = 0;
        spins(&mut pace, 1, true);
        assert!(pace.skip == CROWDED || pace.skip == 0 && pace.skipped == 0);
    }

    #[test]
    fn an_interrupted_loop_does_not_spin_for_a_good_while() {
        let mut pace = Pace::default();
        pace.spin(|| {
            thread::sleep(INTERRUPTED);
            true
        });
        assert_eq!(spins(&mut pace, CROWDED, true), 0);
        assert_eq!(spins(&mut pace, 1, true), 1);
    }

    #[test]
    fn a_pause_ends_a_busy_time() {
        let mut pace = Pace { since: Instant::now().checked_sub(LONG), ..Pace::default() };
        pace.begin();
        assert!(pace.is_long());
        pace.pause();
        assert!(!pace.is_long());
    }
}
