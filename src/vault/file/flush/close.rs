//! A close: what needs no sync is flushed, the rest is left to the flusher if the store has a place for it.

use super::all_changed;
use crate::{
    crypto::chunk::CHUNK,
    format::{entry::Entry, layout},
    vault::{
        Error, Result,
        file::{
            File,
            commit::Changed,
            record::OnDisk,
            state::{Fault, State},
        },
    },
};
use std::ops::Range;

/// Places that the store is asked to keep at most: each takes a call.
const MOST_PLACES: usize = 8;

impl File {
    /// What a close does: flushes, unless that needs a sync, which a program that closes a file did not ask for. What
    /// overwrites stored data then stays buffered for the flusher. But the store must keep a place for it: the program that
    /// closes a file is the last to hear that the store is full.
    ///
    /// # Errors
    /// As `flush`; EIO if what was written before could not be made durable.
    pub fn flush_at_close(&self) -> Result<()> {
        let mut st = self.state.write();
        self.complete_all(&mut st);
        if matches!(st.fault, Some(Fault::SyncFailed | Fault::Broken)) {
            // Nothing is left that could fail, but the program has to hear of it.
            return Err(Error::os(libc::EIO));
        }
        let changed = all_changed(&st);
        if self.may_leave(&st)
            && self.load_for_close(&mut st, &changed)?
            && needs_sync(&st, &changed)?
            && self.reserve_places(&mut st, &changed)?
        {
            return Ok(());
        }
        self.flush_all(&mut st)
    }

    /// Whether anything may stay buffered at all.
    fn may_leave(&self, st: &State) -> bool {
        self.context.buffered.chunks() * CHUNK < self.context.budget.left_at_close
            && self.context.overwrites_in_place
            && !st.dirty.write_failed
            && st.stored.leftover.is_none()
    }

    /// Loads the stored groups of the changed chunks; whether the file has a key yet.
    fn load_for_close(&self, st: &mut State, changed: &Changed) -> Result<bool> {
        let Some(identity) = st.stored.identity.clone() else { return Ok(false) };
        let size = st.stored.tree.size();
        let is_stored = |index: &u64| layout::group_of(*index) < layout::groups(size);
        self.load_groups(st, &identity, size, changed.all().filter(is_stored))?;
        Ok(true)
    }

    /// Has the store keep places for what is buffered and has none there yet; whether it does.
    fn reserve_places(&self, st: &mut State, changed: &Changed) -> Result<bool> {
        let places = missing_places(st, &changed.chunks)?;
        if places.is_empty() || places.len() > MOST_PLACES {
            return Ok(places.is_empty());
        }
        self.remember_mtime(st)?;
        // Where the store keeps none, a flush says why.
        let kept =
            places.iter().all(|place| self.store.reserve(place.start, place.end - place.start).is_ok());
        self.restore_mtime(st);
        Ok(kept)
    }
}

/// Whether a flush would have to sync: after a clean record, or to overwrite what is stored.
fn needs_sync(st: &State, changed: &Changed) -> Result<bool> {
    let on_disk = st.stored.records.on_disk;
    if changed.is_empty() || on_disk != OnDisk::Dirty {
        return Ok(on_disk.may_be_clean());
    }
    let end = layout::chunks(st.stored.tree.size());
    let overwrites =
        |index: u64| -> Result<bool> { Ok(index < end && st.stored.tree.slot(index)?.is_some()) };
    changed.all().try_fold(false, |any, index| Ok(any || overwrites(index)?))
}

/// Where in the store these chunks go that have no data there yet, with the pages of entries that they need.
fn missing_places(st: &State, chunks: &[u64]) -> Result<Vec<Range<u64>>> {
    let tree = &st.stored.tree;
    let mut places: Vec<Range<u64>> = Vec::new();
    let mut add = |offset: u64, len: u64| match places.last_mut() {
        Some(last) if last.end == offset => last.end += len,
        Some(_) | None => places.push(offset..offset + len),
    };
    for of_group in chunks.chunk_by(|a, b| layout::group_of(*a) == layout::group_of(*b)) {
        let group = layout::group_of(of_group[0]);
        let is_new = group >= layout::groups(tree.size());
        // Those of the first group lie in the header page.
        let is_hole = || -> Result<bool> { Ok(tree.entries(group)?.iter().all(|e| *e == Entry::default())) };
        if is_new || group > 0 && is_hole()? {
            add(layout::entries_offset(group), layout::PAGE);
        }
        for &index in of_group {
            let grows = layout::chunk_len(st.dirty.size, index) > layout::chunk_len(tree.size(), index);
            if grows || tree.slot(index)?.is_none_or(|slot| slot.is_hole()) {
                add(layout::chunk_offset(index), layout::CHUNK);
            }
        }
    }
    Ok(places)
}
