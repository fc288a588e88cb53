//! How requests follow one another at an event loop: whether it should look for the next one before it sleeps, and
//! whether it has worked without a pause for so long that it needs help.
//!
//! A loop that sleeps has to be woken, which takes longer than to serve a small request. A lone program that works
//! on small files, or reads a few bytes here and there, asks again within microseconds: for so long the loop looks
//! for the next request. Where none comes that soon, it is tried less and less often; and for a good while it is not
//! tried where other programs want the processor, whose time the loop would waste.

use std::time::{Duration, Instant};

/// How long a loop looks for the next request.
const LINGER: Duration = Duration::from_micros(30);
/// Pauses that pass at most until it tries again.
const MOST_SKIPPED: u32 = 64;
/// A look that took so long was interrupted: another program had the processor.
const INTERRUPTED: Duration = Duration::from_micros(300);
/// Pauses that pass after that.
const CROWDED: u32 = 2048;
/// Work without a pause that is more than a lone program's: its next request comes while the loop still ends
/// something that nobody waits for.
const LONG: Duration = Duration::from_micros(200);

/// The pace at one loop.
#[derive(Debug, Default)]
pub struct Pace {
    /// When the work began that has had no pause since.
    since: Option<Instant>,
    /// Pauses that pass before the loop looks again.
    skip: u32,
    /// As many passed before it looked last, without success.
    skipped: u32,
}

impl Pace {
    /// A request begins.
    pub fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// Whether the loop has worked for long.
    pub fn is_long(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= LONG)
    }

    /// No request waits.
    pub fn pause(&mut self) {
        self.since = None;
    }

    /// Looks for the next request for a moment, if that is likely to come so soon.
    pub fn linger(&mut self, waits: impl Fn() -> bool) {
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
            if passed >= LINGER {
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

    /// How many of so many pauses were looked through.
    fn looks(pace: &mut Pace, pauses: u32, comes: bool) -> u32 {
        let count = Cell::new(0);
        for _ in 0..pauses {
            let before = count.get();
            pace.linger(|| {
                count.set(before + 1);
                comes
            });
        }
        count.get()
    }

    #[test]
    fn who_is_disappointed_looks_less_often() {
        let mut pace = Pace::default();
        assert_eq!(looks(&mut pace, 1, false), 1);
        // Each look takes longer than this only if the processor is wanted elsewhere, and then fewer follow:
        // after 1, 2, 4, … pauses, 64 at most.
        let rare = looks(&mut pace, 10 * MOST_SKIPPED, false);
        assert!(rare <= 20, "{rare}");
        // After a look that succeeds, none is left out.
        pace.skip = 0;
        looks(&mut pace, 1, true);
        assert!(pace.skip == CROWDED || pace.skip == 0 && pace.skipped == 0);
    }

    #[test]
    fn who_is_interrupted_does_not_look_for_long() {
        let mut pace = Pace::default();
        pace.linger(|| {
            thread::sleep(INTERRUPTED);
            true
        });
        assert_eq!(looks(&mut pace, CROWDED, true), 0);
        assert_eq!(looks(&mut pace, 1, true), 1);
    }

    #[test]
    fn a_pause_ends_a_stretch_of_work() {
        let mut pace = Pace { since: Instant::now().checked_sub(LONG), ..Pace::default() };
        pace.begin();
        assert!(pace.is_long());
        pace.pause();
        assert!(!pace.is_long());
    }
}
