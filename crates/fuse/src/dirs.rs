//! Cache of open directories. It is limited, because each one costs a descriptor.

use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use vault::Dir;

/// Divisor for the part of the table that is evicted at once when it is full.
const EVICT: usize = 8;

struct CachedDir<D> {
    dir: Arc<D>,
    used: u64,
}

struct DirTable<D> {
    open: HashMap<u64, CachedDir<D>>,
    clock: u64,
}

/// Open directories by their node's number, with least recently used eviction.
pub struct Dirs<D = Dir> {
    table: Mutex<DirTable<D>>,
    room: usize,
}

impl<D> Dirs<D> {
    /// Creates a cache for `room` directories, with a small minimum.
    pub fn new(room: usize) -> Self {
        Dirs { table: Mutex::new(DirTable { open: HashMap::new(), clock: 0 }), room: room.max(EVICT) }
    }

    /// Looks up an open directory and marks it as used.
    pub fn get(&self, number: u64) -> Option<Arc<D>> {
        let mut table = self.table.lock();
        table.clock += 1;
        let now = table.clock;
        let open = table.open.get_mut(&number)?;
        open.used = now;
        Some(open.dir.clone())
    }

    /// Adds a directory, and evicts old ones if the cache is full.
    pub fn put(&self, number: u64, dir: Arc<D>) {
        let mut table = self.table.lock();
        table.clock += 1;
        let used = table.clock;
        table.open.insert(number, CachedDir { dir, used });
        if table.open.len() > self.room {
            let mut ages: Vec<u64> = table.open.values().map(|o| o.used).collect();
            let place = self.room / EVICT;
            let (_, &mut oldest_kept, _) = ages.select_nth_unstable(place);
            table.open.retain(|_, o| o.used >= oldest_kept);
        }
    }

    /// Removes a directory.
    pub fn drop_dir(&self, number: u64) {
        self.table.lock().open.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_leave_first() {
        let dirs = Dirs::new(16);
        for number in 0..16 {
            dirs.put(number, Arc::new(number));
        }
        assert!(dirs.get(0).is_some(), "used again");
        dirs.put(16, Arc::new(16));
        assert_eq!(dirs.table.lock().open.len(), 15);
        assert!(dirs.get(1).is_none() && dirs.get(2).is_none());
        assert!(dirs.get(0).is_some() && dirs.get(3).is_some() && dirs.get(16).is_some());
    }

    #[test]
    fn a_dropped_directory_is_gone() {
        let dirs = Dirs::new(16);
        dirs.put(5, Arc::new(()));
        dirs.drop_dir(5);
        assert!(dirs.get(5).is_none());
    }
}
