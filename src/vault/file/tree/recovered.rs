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
    /// Of each group the slots above the base that are kept: a bit for each chunk, by the slot's place in its entry.
    kept: HashMap<u64, [u64; 2]>,
}

impl Recovered {
    /// Nothing above the base is kept yet of a file of `size` bytes.
    pub(in crate::vault::file) fn new(base: Version, size: u64) -> Self {
        Recovered { base, size, kept: HashMap::new() }
    }

    /// The version that was durable before the crash.
    pub(in crate::vault::file) fn base(&self) -> &Version {
        &self.base
    }

    /// The entry of a chunk with nothing but the base's slot and the newer one that is kept, each in its place.
    pub(in crate::vault::file) fn retained(&self, index: u64, stored: &Entry) -> Entry {
        self.only(stored, [self.base_place(index, stored), self.kept_place(index, stored)])
    }

    /// The same once the recovery is written down: the newer one, or the only one.
    pub(in crate::vault::file) fn current(&self, index: u64, stored: &Entry) -> Entry {
        let kept = self.kept_place(index, stored);
        self.only(stored, [kept.or_else(|| self.base_place(index, stored)), None])
    }

    /// The slot above the base that is kept of a chunk.
    pub(in crate::vault::file) fn kept_slot(&self, index: u64, stored: &Entry) -> Option<Slot> {
        stored.0[self.kept_place(index, stored)?]
    }

    fn only(&self, stored: &Entry, places: [Option<usize>; 2]) -> Entry {
        Entry([0, 1].map(|place| stored.0[place].filter(|_| places.contains(&Some(place)))))
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
}
