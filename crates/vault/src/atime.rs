//! Access times. The vault's own reads leave them alone; a program's reads update them as relatime does.

use super::{OpenFile, SetTime, Stat, Vault};
use content::{Result, Time};
use store::Node;

/// Seconds after which the access time is updated even if nothing changed.
const DAY: i64 = 24 * 60 * 60;

impl Vault {
    /// Whether to maintain access times. Shared stores are too far away to check the times of each file.
    pub fn keeps_atime(&self) -> bool {
        !self.read_only()
            && !self.is_shared()
            && self.root.store.filesystem().is_ok_and(|store| store.keeps_atime())
    }

    /// Updates the access time of a file that a program is about to read, if relatime (mount(8))
    /// requires it. Returns whether it was due.
    ///
    /// # Errors
    /// The store's.
    pub fn read_begins(&self, file: &OpenFile) -> Result<bool> {
        let node = Node::shared(file.store.fd());
        let is_due = || Ok::<_, content::Error>(is_due(&self.present(&node.stat()?)?, Time::now()));
        if !is_due()? {
            return Ok(false);
        }
        file.store.count_read()?;
        // The store does not yet know of buffered writes, and its clock is coarse.
        if is_due()? {
            let now = SetTime::to_store(Some(SetTime::At(Time::now())));
            self.files.keep_ctime(file, || node.set_times(now, SetTime::to_store(None)))?;
        }
        Ok(true)
    }
}

/// Whether a program would consider the content unread, or the access time is a day old.
fn is_due(stat: &Stat, now: Time) -> bool {
    stat.atime <= stat.mtime || stat.atime <= stat.ctime || now.seconds - stat.atime.seconds >= DAY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Fixture;
    use std::ffi::OsStr;

    fn at(seconds: i64) -> Time {
        Time { seconds, nanoseconds: 0 }
    }

    #[test]
    fn a_time_of_access_is_set_once_after_a_change_and_once_a_day() {
        let f = Fixture::new();
        let root = f.vault.stat(crate::Target::Dir(&f.vault.root())).unwrap();
        let stat = |[atime, mtime, ctime]: [i64; 3]| Stat {
            atime: at(atime),
            mtime: at(mtime),
            ctime: at(ctime),
            ..root
        };
        for (times, now, due) in [
            ([5, 5, 4], 6, true),
            ([5, 4, 5], 6, true),
            ([5, 4, 4], 6, false),
            ([5, 4, 4], 4 + DAY, false),
            ([5, 4, 4], 5 + DAY, true),
        ] {
            assert_eq!(is_due(&stat(times), at(now)), due, "{times:?} at {now}");
        }
    }

    #[test]
    fn only_the_first_read_after_a_write_counts_and_none_of_the_vaults() {
        let f = Fixture::new();
        let root = f.vault.root();
        let new = crate::NewNode::plain(0o644, 0, 0);
        let (_, _, file) = f.vault.create(&root, OsStr::new("file"), new).unwrap();
        let stat = || f.vault.stat(crate::Target::File(&file)).unwrap();
        for round in 0..3 {
            file.file.write(round * 100_000, &[7; 100_000]).unwrap();
            let (atime, ctime) = (stat().atime, stat().ctime);
            if round > 0 {
                f.vault.sync_file(&file).unwrap();
            }
            assert!(stat().atime == atime && atime <= stat().mtime, "storing is no reading");
            assert!(f.vault.read_begins(&file).unwrap());
            assert!(stat().atime > stat().mtime && stat().ctime == ctime);
            let read = stat().atime;
            assert!(!f.vault.read_begins(&file).unwrap());
            let mut content = vec![0; 300_000];
            file.file.read(0, &mut content).unwrap();
            assert_eq!(stat().atime, read);
        }
    }
}
