//! Tracks the pages of one file that the kernel may have cached, and the ranges that are stale because of
//! a direct write. [`super::stale`] drops stale pages.

use parking_lot::Mutex;
use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Maximum number of separate ranges per file. Beyond it, all are merged into one.
const MOST_RANGES: usize = 64;

/// The cached pages of a file.
#[derive(Debug, Default)]
pub struct Pages {
    /// Whether the kernel may have any.
    any: AtomicBool,
    /// Whether the kernel has read any.
    read: AtomicBool,
    /// Reads of pages that are not yet answered.
    reads: AtomicUsize,
    stale: Mutex<Stale>,
}

/// Pages to be dropped.
#[derive(Debug, Default)]
struct Stale {
    ranges: Vec<Range<u64>>,
    /// Whether ranges taken from here are being dropped at the moment.
    dropping: bool,
}

impl Stale {
    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && !self.dropping
    }

    fn add(&mut self, new: Range<u64>) {
        let both = |a: &Range<u64>, b: &Range<u64>| a.start.min(b.start)..a.end.max(b.end);
        let full = self.ranges.len() >= MOST_RANGES;
        match self.ranges.last_mut() {
            Some(last) if last.start <= new.end && new.start <= last.end => *last = both(last, &new),
            _ if full => self.ranges = vec![self.ranges.iter().fold(new, |all, range| both(&all, range))],
            _ => self.ranges.push(new),
        }
    }
}

impl Pages {
    /// Called before the kernel may get pages.
    pub fn begin(&self) {
        if !self.any.load(Ordering::SeqCst) {
            self.any.store(true, Ordering::SeqCst);
        }
    }

    /// Called when the kernel drops all pages, and no other handle is open.
    pub fn end(&self) {
        self.any.store(false, Ordering::SeqCst);
        self.read.store(false, Ordering::SeqCst);
    }

    /// Whether the kernel may have any pages.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// Whether the kernel has read any pages, including holes. A program that maps them may have changed
    /// them since.
    pub fn were_read(&self) -> bool {
        self.read.load(Ordering::SeqCst)
    }

    /// Called when a read of pages arrives.
    pub fn begin_read(&self) {
        if !self.were_read() {
            self.read.store(true, Ordering::SeqCst);
        }
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.begin();
    }

    /// Called when a read of pages was answered.
    pub fn end_read(&self) {
        self.reads.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether every read of pages was answered.
    pub fn idle(&self) -> bool {
        self.reads.load(Ordering::SeqCst) == 0
    }

    /// Whether the kernel may have stale pages.
    pub fn are_stale(&self) -> bool {
        !self.stale.lock().is_empty()
    }

    /// Adds a range of stale pages. Returns whether there were none before.
    pub fn add_stale(&self, bytes: Range<u64>) -> bool {
        let mut stale = self.stale.lock();
        let first = stale.is_empty();
        stale.add(bytes);
        first
    }

    /// Takes the ranges to be dropped. The pages count as stale until [`Pages::dropped`].
    pub fn take_stale(&self) -> Vec<Range<u64>> {
        let mut stale = self.stale.lock();
        stale.dropping = true;
        std::mem::take(&mut stale.ranges)
    }

    /// Called when the taken ranges have been dropped. Returns whether more were added meanwhile.
    pub fn dropped(&self) -> bool {
        let mut stale = self.stale.lock();
        stale.dropping = false;
        !stale.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one_and_too_many_do_too() {
        let mut stale = Stale::default();
        assert!(stale.is_empty());
        stale.add(0..10);
        stale.add(10..20);
        stale.add(5..12);
        assert_eq!((stale.ranges.len(), &stale.ranges[0]), (1, &(0..20)));
        for at in 1..MOST_RANGES as u64 {
            stale.add(at * 100..at * 100 + 1);
        }
        assert_eq!(stale.ranges.len(), MOST_RANGES);
        stale.add(50..51);
        assert_eq!((stale.ranges.len(), &stale.ranges[0]), (1, &(0..MOST_RANGES as u64 * 100 - 99)));
    }

    /// Start and end of each range.
    fn ends(ranges: &[Range<u64>]) -> Vec<(u64, u64)> {
        ranges.iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn pages_are_stale_until_what_was_taken_is_dropped() {
        let pages = Pages::default();
        assert!(!pages.are_stale());
        assert!(pages.add_stale(0..1));
        assert_eq!(ends(&pages.take_stale()), [(0, 1)]);
        assert!(pages.are_stale());
        assert!(!pages.add_stale(5..6), "while the first range is being dropped");
        assert!(pages.dropped());
        assert_eq!(ends(&pages.take_stale()), [(5, 6)]);
        assert!(!pages.dropped());
        assert!(!pages.are_stale());
    }
}
