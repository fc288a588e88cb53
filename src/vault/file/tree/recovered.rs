//! How the stored entries of a file are seen after a crash, until that is written down.

use crate::format::{
    entry::{Entry, Slot},
    layout,
    record::Version,
};
use std::collections::HashMap;

/// What is kept of a dirty file.
pub(in crate::vault::file) struct Recovered {
    base: Version,
    /// Plaintext bytes.
    pub(in crate::vault::file) size: u64,
    /// Slots of a higher epoch do not count.
    limit: u64,
    /// Of each group the slots above the base that are kept: a bit for each chunk, by the slot's place in its entry.
    kept: HashMap<u64, [u64; 2]>,
    /// Chunks of which such a slot is kept although its data is not there, ascending.
    unreadable: Vec<u64>,
}

impl Recovered {
    /// Nothing above the base is kept yet of a file of `size` bytes.
    pub(in crate::vault::file) fn new(base: Version, size: u64, limit: u64) -> Self {
        Recovered { base, size, limit, kept: HashMap::new(), unreadable: Vec::new() }
    }

    /// The version that was durable before the crash.
    pub(in crate::vault::file) fn base(&self) -> Version {
        self.base
    }

    /// Slots of a higher epoch do not count.
    pub(in crate::vault::file) fn limit(&self) -> u64 {
        self.limit
    }

    /// Chunks that are lost, and whose slot says so.
    pub(in crate::vault::file) fn unreadable(&self) -> &[u64] {
        &self.unreadable
    }

    /// The entry of a chunk with nothing but the slot that counts, in its place: the newer one that is kept, or the base's.
    pub(in crate::vault::file) fn current(&self, index: u64, stored: &Entry) -> Entry {
        let counts = self.kept_place(index, stored).or_else(|| self.base_place(index, stored));
        Entry([0, 1].map(|place| stored.0[place].filter(|_| counts == Some(place))))
    }

    /// The slot above the base that is kept of a chunk.
    pub(in crate::vault::file) fn kept_slot(&self, index: u64, stored: &Entry) -> Option<Slot> {
        stored.0[self.kept_place(index, stored)?]
    }

    /// The newest slot that counts at the version which is recovered, if that is above the base, and its place.
    pub(in crate::vault::file) fn above_base(&self, index: u64, stored: &Entry) -> Option<(usize, Slot)> {
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

    /// Keeps a slot above the base, by its place in its entry.
    pub(in crate::vault::file) fn keep(&mut self, index: u64, place: usize) {
        let kept = self.kept.entry(layout::group_of(index)).or_default();
        kept[place] |= 1 << layout::place_in_group(index);
    }

    /// The same, although its data is not there. Chunks come in ascending order.
    pub(in crate::vault::file) fn keep_unreadable(&mut self, index: u64, place: usize) {
        self.keep(index, place);
        self.unreadable.push(index);
    }
}
