//! Change times of files that the vault itself wrote to the store.
//!
//! The store stamps every write with the time of its own clock, and that stamp cannot be set back as a
//! modification time can. What an application wrote reaches the store when it closes the file, and the
//! clean record some seconds later: the file would seem changed each time, and programs that keep a file's
//! change time to know it again (git) would find it dirty. So it is remembered what the application is to
//! see instead, for as long as the vault is open.

use super::{
    Time,
    open_file::{Key, OpenFile},
};
use parking_lot::RwLock;
use std::{collections::HashMap, os::fd::AsFd};

/// Files remembered at most; beyond, all are forgotten, and seem changed once.
const MOST_PINS: usize = 200_000;

/// What is shown in place of every change time from `shown` to `last`, and of every later one while work
/// on the file is under way.
struct Pin {
    shown: Time,
    last: Time,
    /// Pieces of work under way.
    working: usize,
}

/// The change times that are not the store's.
#[derive(Default)]
pub(super) struct ChangeTimes {
    pins: RwLock<HashMap<Key, Pin>>,
}

impl ChangeTimes {
    /// What to show for a file whose change time in the store is `stored`.
    pub(super) fn shown(&self, key: Key, stored: Time) -> Time {
        self.pins.read().get(&key).map_or(stored, |pin| pin.seen(stored))
    }

    /// Does work on a file that changes nothing an application sees, so that its change time stays: for
    /// those who look meanwhile too.
    pub(super) fn keep<T>(&self, open: &OpenFile, work: impl FnOnce() -> T) -> T {
        let Some(before) = stored(open) else { return work() };
        self.begin(open.key, before, open.file.written_at());
        let result = work();
        self.end(open.key, stored(open).unwrap_or(before));
        result
    }

    fn begin(&self, key: Key, before: Time, written: Option<Time>) {
        let mut pins = self.pins.write();
        if pins.len() >= MOST_PINS {
            pins.retain(|_, pin| pin.working > 0);
        }
        let pin = pins.entry(key).or_insert(Pin { shown: before, last: before, working: 0 });
        pin.shown = pin.seen(before).max(written.unwrap_or_default());
        pin.last = pin.last.max(before);
        pin.working += 1;
    }

    fn end(&self, key: Key, after: Time) {
        let mut pins = self.pins.write();
        let Some(pin) = pins.get_mut(&key) else { return }; // the inode is gone
        pin.last = pin.last.max(after);
        pin.working = pin.working.saturating_sub(1);
        if pin.working == 0 && pin.last <= pin.shown {
            pins.remove(&key);
        }
    }

    /// Says that an application changed a file otherwise than by writing: from here on the store's stamp
    /// counts again.
    pub(super) fn changed(&self, key: Key) {
        if !self.pins.read().contains_key(&key) {
            return;
        }
        let mut pins = self.pins.write();
        match pins.get_mut(&key) {
            // What is under way goes on stamping.
            Some(pin) if pin.working > 0 => pin.shown = pin.shown.max(Time::now()),
            _ => {
                pins.remove(&key);
            }
        }
    }

    /// Forgets an inode that is gone.
    pub(super) fn forget(&self, key: Key) {
        self.pins.write().remove(&key);
    }
}

impl Pin {
    fn seen(&self, stored: Time) -> Time {
        let ours = self.shown <= stored && (self.working > 0 || stored <= self.last);
        if ours { self.shown } else { stored }
    }
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
