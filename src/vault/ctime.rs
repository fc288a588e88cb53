//! Change times of files that the vault itself wrote to the store.
//!
//! The store stamps every write with the time of its own clock, and that stamp cannot be set back as a
//! modification time can. A file that is brought to rest some seconds after the application closed it
//! would seem changed once more: programs that keep a file's change time to know it again (git) would
//! then find it dirty. So it is remembered what the application is to see instead, for as long as the
//! vault is open.

use super::{
    Time,
    table::{Key, OpenFile},
};
use parking_lot::Mutex;
use std::{collections::HashMap, os::fd::AsFd};

/// Files remembered at most; beyond, all are forgotten, and seem changed once.
const MOST: usize = 200_000;
/// Later than any time of a store: while the work is under way.
const FOREVER: Time = Time { seconds: i64::MAX, nanoseconds: 0 };

/// What is shown in place of every change time from `shown` to `last`.
struct Pin {
    shown: Time,
    last: Time,
}

/// The change times that are not the store's.
#[derive(Default)]
pub(super) struct ChangeTimes {
    pins: Mutex<HashMap<Key, Pin>>,
}

impl ChangeTimes {
    /// What to show for a file whose change time in the store is `stored`.
    pub(super) fn shown(&self, key: Key, stored: Time) -> Time {
        match self.pins.lock().get(&key) {
            Some(pin) if pin.shown <= stored && stored <= pin.last => pin.shown,
            _ => stored,
        }
    }

    /// Does work on a file that the application did not ask for, so that its change time stays: for those
    /// who look meanwhile too.
    pub(super) fn keep<T>(&self, open: &OpenFile, work: impl FnOnce() -> T) -> T {
        let Some(before) = stored(open) else { return work() };
        let shown = self.shown(open.key, before).max(open.file.written_at().unwrap_or_default());
        let earlier = self.pin(open.key, Pin { shown, last: FOREVER });
        let result = work();
        match (stored(open), earlier) {
            (Some(last), _) if last != before => {
                self.pin(open.key, Pin { shown, last });
            }
            (_, Some(earlier)) => {
                self.pin(open.key, earlier);
            }
            (_, None) => self.forget(open.key),
        }
        result
    }

    fn pin(&self, key: Key, pin: Pin) -> Option<Pin> {
        let mut pins = self.pins.lock();
        if pins.len() >= MOST {
            pins.clear();
        }
        pins.insert(key, pin)
    }

    /// Forgets an inode that is gone.
    pub(super) fn forget(&self, key: Key) {
        self.pins.lock().remove(&key);
    }
}

fn stored(open: &OpenFile) -> Option<Time> {
    let raw = rustix::fs::fstat(open.store.fd().as_fd()).ok()?;
    Some(Time::from_store(raw.st_ctime, raw.st_ctime_nsec))
}
