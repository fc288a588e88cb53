//! The pace of requests at one event loop: whether it should spin before it blocks, and whether it has been busy without
//! a pause for so long that it needs help.
//!
//! To wake a blocked loop takes longer than to serve a small request. A lone program that works on small files, or
//! reads a few bytes here and there, asks again within microseconds, so the loop spins that long. If no request
//! comes, it spins less and less often. If other programs want the processor, it does not spin for a good while, as
//! that would waste their time.

use std::time::{Duration, Instant};

/// How long a loop spins.
const SPIN: Duration = Duration::from_micros(30);
/// Pauses that pass at most until it spins again.
const MOST_SKIPPED: u32 = 64;
/// A spin that took so long was interrupted: another program had the processor.
const INTERRUPTED: Duration = Duration::from_micros(300);
/// Pauses that pass after that.
const CROWDED: u32 = 2048;
/// Busy for longer than a lone program keeps a loop. (Its next request may come without a pause: while the loop is
/// still finishing something that the program does not wait for.)
const LONG: Duration = Duration::from_micros(200);

/// The pace at one loop.
#[derive(Debug, Default)]
pub struct Pace {
    /// Since when the loop has been busy without a pause.
    since: Option<Instant>,
    /// Pauses that pass before the loop spins again.
    skip: u32,
    /// As many passed before it last spun in vain.
    skipped: u32,
}

impl Pace {
    /// A request begins.
    pub fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// Whether the loop has been busy for long.
    pub fn is_long(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= LONG)
    }

    /// No request waits.
    pub fn pause(&mut self) {
        self.since = None;
    }

    /// Spins until `waits` says that a request waits, for a moment at most, if one is likely to come so soon.
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

    /// In how many of so many pauses the loop spun.
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
        // They are 1, 2, 4, … pauses apart, 64 at most; further if another program had the processor.
        let rare = spins(&mut pace, 10 * MOST_SKIPPED, false);
        assert!(rare <= 20, "{rare}");
        // After a spin that succeeds, none is skipped.
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
