//! The choice of slots made by recovery, in effect until it is written down.

use format::{
    entry::{Entry, Slot},
    layout,
    record::Version,
};
use std::collections::HashMap;

/// The slots of a dirty file that are kept.
pub(crate) struct Recovered {
    base: Version,
    /// Size of the plaintext in bytes.
    pub(crate) size: u64,
    /// Slots with a higher epoch do not count.
    limit: u64,
    /// For each group, the kept slots above the base: a bit for each chunk, by the slot's position in its
    /// entry.
    kept: HashMap<u64, [u64; 2]>,
    /// Chunks, ascending, for which such a slot is kept although the data is missing.
    unreadable: Vec<u64>,
}

impl Recovered {
    /// A file of `size` bytes for which nothing above the base is kept yet.
    pub(crate) fn new(base: Version, size: u64, limit: u64) -> Self {
        Recovered { base, size, limit, kept: HashMap::new(), unreadable: Vec::new() }
    }

    /// The version that was durable before the crash.
    pub(crate) fn base(&self) -> Version {
        self.base
    }

    /// Slots with a higher epoch do not count.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Chunks that are lost. Their slots are kept to mark them.
    pub(crate) fn unreadable(&self) -> &[u64] {
        &self.unreadable
    }

    /// The entry of a chunk reduced to the slot that counts, in its position: the kept slot above the
    /// base, or else the base's.
    pub(crate) fn current(&self, index: u64, stored: &Entry) -> Entry {
        let counts = self.kept_place(index, stored).or_else(|| self.base_place(index, stored));
        Entry([0, 1].map(|place| stored.0[place].filter(|_| counts == Some(place))))
    }

    /// The kept slot above the base of a chunk.
    pub(crate) fn kept_slot(&self, index: u64, stored: &Entry) -> Option<Slot> {
        stored.0[self.kept_place(index, stored)?]
    }

    /// The newest slot that counts at the version being recovered, with its position, if it is above the
    /// base.
    pub(crate) fn above_base(&self, index: u64, stored: &Entry) -> Option<(usize, Slot)> {
        let newest = stored.current(Some(self.limit), None).filter(|_| index < layout::chunks(self.size));
        newest.filter(|(_, slot)| slot.epoch > self.base.epoch)
    }

    fn base_place(&self, index: u64, stored: &Entry) -> Option<usize> {
        let end = layout::chunks(self.size.min(self.base.size));
        stored.current(Some(self.base.epoch), None).filter(|_| index < end).map(|(place, _)| place)
    }

    fn kept_place(&self, index: u64, stored: &Entry) -> Option<usize> {
        let kept = self.kept.get(&layout::group_of(index)).filter(|_| index < layout::chunks(self.size))?;
        let place = kept.iter().position(|bits| bits >> layout::place_in_group(index) & 1 == 1)?;
        stored.0[place].filter(|slot| slot.epoch > self.base.epoch).map(|_| place)
    }

    /// Keeps a slot above the base, given by its position in the entry.
    pub(crate) fn keep(&mut self, index: u64, place: usize) {
        let kept = self.kept.entry(layout::group_of(index)).or_default();
        kept[place] |= 1 << layout::place_in_group(index);
    }

    /// Like `keep`, for a chunk whose data is missing. Chunks must be added in ascending order.
    pub(crate) fn keep_unreadable(&mut self, index: u64, place: usize) {
        self.keep(index, place);
        self.unreadable.push(index);
    }
}
