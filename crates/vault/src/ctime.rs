//! Change times of files that the vault itself wrote to the store.
//!
//! The store stamps every write with its own clock, and unlike a modification time, that stamp cannot be
//! set back. An application's data reaches the store when the application closes the file, and the clean
//! record some seconds later. The file would seem changed each time, and programs that rely on change
//! times (git) would consider it modified. So the vault remembers which time to show instead: here while
//! the vault is open, and from one mount to the next in a file (`ctime_file`).

use super::open_file::{Key, OpenFile};
use content::Time;
use format::change_times::{ChangeTime, TIMES_MAX};
use parking_lot::RwLock;
use std::{collections::HashMap, os::fd::AsFd};

/// Maximum number of files remembered. Beyond it, the half that changed longest ago is forgotten; those
/// files seem changed once.
const MOST_PINS: usize = TIMES_MAX;

/// `shown` replaces every change time from `first` to `last`, and every later one while work on the file
/// is in progress.
struct PinnedTime {
    shown: Time,
    first: Time,
    last: Time,
    /// Number of pieces of work in progress.
    working: usize,
}

/// Change times shown in place of the store's.
#[derive(Default)]
pub(super) struct ChangeTimes {
    pins: RwLock<HashMap<Key, PinnedTime>>,
}

impl ChangeTimes {
    /// The change time to show for a file whose change time in the store is `stored`.
    pub(super) fn shown(&self, key: Key, stored: Time) -> Time {
        self.pins.read().get(&key).map_or(stored, |pin| pin.seen(stored))
    }

    /// Runs `work`, which changes nothing that an application sees, and keeps the file's change time;
    /// also for observers during the work.
    pub(super) fn keep<T>(&self, open: &OpenFile, work: impl FnOnce() -> T) -> T {
        let Some(before) = stored(open) else { return work() };
        self.begin(open.key, before, open.file.times().written_at());
        let result = work();
        self.end(open.key, stored(open).unwrap_or(before));
        result
    }

    fn begin(&self, key: Key, before: Time, written: Option<Time>) {
        let mut pins = self.pins.write();
        if pins.len() >= MOST_PINS {
            forget_half(&mut pins);
        }
        let pin =
            pins.entry(key).or_insert(PinnedTime { shown: before, first: before, last: before, working: 0 });
        pin.shown = pin.seen(before).max(written.unwrap_or_default());
        pin.first = pin.shown.min(before); // the store's stamp of a write can precede its recorded time
        pin.last = pin.last.max(before);
        pin.working += 1;
    }

    fn end(&self, key: Key, after: Time) {
        let mut pins = self.pins.write();
        let Some(pin) = pins.get_mut(&key) else { return }; // the inode is gone
        pin.last = pin.last.max(after);
        pin.working = pin.working.saturating_sub(1);
        if pin.working == 0 && pin.last == pin.shown {
            pins.remove(&key);
        }
    }

    /// An application changed the file other than by writing: from now on the store's stamp is shown
    /// again.
    pub(super) fn changed(&self, key: Key) {
        if !self.pins.read().contains_key(&key) {
            return;
        }
        let mut pins = self.pins.write();
        match pins.get_mut(&key) {
            // Work in progress will change the stamp again.
            Some(pin) if pin.working > 0 => pin.shown = pin.shown.max(Time::now()),
            _ => {
                pins.remove(&key);
            }
        }
    }

    /// Forgets an inode that was removed.
    pub(super) fn forget(&self, key: Key) {
        self.pins.write().remove(&key);
    }

    /// The remembered times of files on `device` without work in progress, sorted by inode number.
    pub(super) fn remembered(&self, device: u64) -> Vec<ChangeTime> {
        let pins = self.pins.read();
        let at_rest = pins.iter().filter(|((of, _), pin)| *of == device && pin.working == 0);
        let mut times = Vec::from_iter(at_rest.map(|((_, inode), pin)| ChangeTime {
            inode: *inode,
            stored: pin.last.moment(),
            shown: pin.shown.moment(),
        }));
        times.sort_unstable_by_key(|time| time.inode);
        times
    }

    /// Loads the times that an earlier session stored. Nothing may be remembered yet.
    pub(super) fn recall(&self, device: u64, times: &[ChangeTime]) {
        let pin = |time: &ChangeTime| {
            // With any other stored change time, another program has changed the file.
            let stored = Time::from_moment(time.stored);
            let pin =
                PinnedTime { shown: Time::from_moment(time.shown), first: stored, last: stored, working: 0 };
            ((device, time.inode), pin)
        };
        *self.pins.write() = times.iter().map(pin).collect();
    }
}

impl PinnedTime {
    fn seen(&self, stored: Time) -> Time {
        let ours = self.first <= stored && (self.working > 0 || stored <= self.last);
        if ours { self.shown } else { stored }
    }
}

/// Forgets the half of the files that changed longest ago.
fn forget_half(pins: &mut HashMap<Key, PinnedTime>) {
    let mut shown = Vec::from_iter(pins.values().map(|pin| pin.shown));
    let middle = shown.len() / 2;
    let (_, median, _) = shown.select_nth_unstable(middle);
    pins.retain(|_, pin| pin.working > 0 || pin.shown > *median);
}

fn stored(open: &OpenFile) -> Option<Time> {
    let raw = rustix::fs::fstat(open.store.fd().as_fd()).ok()?;
    Some(Time::from_store(raw.st_ctime, raw.st_ctime_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (1, 2);

    fn at(seconds: i64) -> Time {
        Time { seconds, nanoseconds: 0 }
    }

    #[test]
    fn work_of_ours_is_not_seen_during_and_after_it() {
        let times = ChangeTimes::default();
        times.begin(KEY, at(10), None);
        assert_eq!(times.shown(KEY, at(15)), at(10));
        times.begin(KEY, at(15), Some(at(12)));
        times.end(KEY, at(16));
        assert_eq!(times.shown(KEY, at(17)), at(12), "the other is still at work");
        times.end(KEY, at(20));
        assert_eq!([10, 12, 20, 21].map(|t| times.shown(KEY, at(t))), [10, 12, 12, 21].map(at));
        times.begin(KEY, at(25), None);
        times.end(KEY, at(26));
        assert_eq!(times.shown(KEY, at(26)), at(25), "a change between two pieces of work is seen");
    }

    #[test]
    fn work_that_wrote_nothing_leaves_nothing_behind() {
        let times = ChangeTimes::default();
        times.begin(KEY, at(10), Some(at(9)));
        times.end(KEY, at(10));
        assert!(times.pins.read().is_empty());
        times.begin(KEY, at(10), None);
        times.forget(KEY);
        times.end(KEY, at(11));
        assert!(times.pins.read().is_empty());
    }

    #[test]
    fn a_change_by_the_application_is_seen_even_while_work_is_under_way() {
        let times = ChangeTimes::default();
        times.begin(KEY, at(10), None);
        times.end(KEY, at(20));
        times.changed(KEY);
        assert_eq!(times.shown(KEY, at(20)), at(20));
        times.begin(KEY, at(20), None);
        let before = Time::now();
        times.changed(KEY);
        let later = Time { seconds: before.seconds + 100, nanoseconds: 0 };
        times.end(KEY, later);
        let shown = times.shown(KEY, later);
        assert!(before <= shown && shown < later);
    }

    #[test]
    fn a_stamp_from_before_the_write_is_not_seen() {
        let times = ChangeTimes::default();
        times.begin(KEY, at(10), Some(at(11)));
        times.end(KEY, at(10));
        assert_eq!([9, 10, 12].map(|t| times.shown(KEY, at(t))), [9, 11, 12].map(at));
        times.begin(KEY, at(10), Some(at(11)));
        times.end(KEY, at(15));
        assert_eq!([10, 15, 16].map(|t| times.shown(KEY, at(t))), [11, 11, 16].map(at));
    }

    #[test]
    fn what_another_opening_remembered_counts_for_the_very_same_change() {
        let times = ChangeTimes::default();
        times.begin(KEY, at(10), Some(at(12)));
        times.end(KEY, at(20));
        times.begin((1, 1), at(30), None);
        times.end((1, 1), at(31));
        times.begin((7, 7), at(1), None);
        times.end((7, 7), at(2));
        times.begin((1, 5), at(1), None);
        let remembered = times.remembered(1);
        let [one, other] = [(1, 31, 30), (2, 20, 12)].map(|(inode, stored, shown)| ChangeTime {
            inode,
            stored: (stored, 0),
            shown: (shown, 0),
        });
        assert_eq!(remembered, [one, other], "not of another device, nor of what is under way");

        let times = ChangeTimes::default();
        times.recall(1, &remembered);
        assert_eq!(times.remembered(1), remembered);
        assert_eq!([19, 20, 21].map(|t| times.shown(KEY, at(t))), [19, 12, 21].map(at));
        times.begin(KEY, at(20), None);
        times.end(KEY, at(25));
        assert_eq!([20, 25, 26].map(|t| times.shown(KEY, at(t))), [12, 12, 26].map(at));
        times.begin((1, 1), at(40), None);
        times.end((1, 1), at(41));
        assert_eq!(
            [31, 41].map(|t| times.shown((1, 1), at(t))),
            [31, 40].map(at),
            "it was changed meanwhile"
        );
    }

    #[test]
    fn those_that_changed_last_are_remembered_longest() {
        let times = ChangeTimes::default();
        for inode in 0..MOST_PINS as u64 + 1 {
            let changed = at(2 * inode as i64);
            times.begin((9, inode), changed, None);
            times.end((9, inode), at(2 * inode as i64 + 1));
        }
        let left = times.remembered(9);
        assert!(left.len() >= MOST_PINS / 2 && left.len() < MOST_PINS);
        assert_eq!(left.last().unwrap().inode, MOST_PINS as u64);
        assert_eq!(left[0].inode, MOST_PINS as u64 + 1 - left.len() as u64);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_work_under_way_is_never_forgotten() {
        let times = ChangeTimes::default();
        times.begin(KEY, at(10), None);
        for inode in 0..MOST_PINS as u64 {
            times.begin((9, inode), at(1), None);
            times.end((9, inode), at(2));
        }
        assert!(times.pins.read().len() <= MOST_PINS);
        assert_eq!(times.shown(KEY, at(30)), at(10));
    }
}
