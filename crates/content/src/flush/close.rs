//! Closing a file: flushes data that needs no sync, and leaves the rest to the flusher if the store
//! reserves space for it.

use super::{Flusher, all_changed};
use crate::{
    commit::Changed,
    error::{Error, Result},
    record::OnDisk,
    state::{Fault, State},
};
use crypto::chunk::CHUNK;
use format::{entry::Entry, layout};
use std::ops::Range;

/// Maximum ranges to reserve in the store; each takes a call.
const MOST_PLACES: usize = 8;

impl Flusher<'_> {
    /// Called on close. Flushes, unless that needs a sync, which closing a file does not ask for. Data
    /// that overwrites stored chunks then stays buffered for the flusher. But the store must have
    /// reserved space for it, because close is the last chance to report a full store.
    ///
    /// # Errors
    /// As `flush`; EIO if earlier writes could not be made durable.
    pub(crate) fn flush_at_close(&self, st: &mut State) -> Result<()> {
        self.committer().complete_all(st);
        if matches!(st.fault, Some(Fault::SyncFailed | Fault::Broken)) {
            // Nothing is left that could fail, but the application must learn of the error.
            return Err(Error::os(libc::EIO));
        }
        let changed = all_changed(st);
        if self.may_leave(st)
            && self.load_for_close(st, &changed)?
            && needs_sync(st, &changed)?
            && self.reserve_places(st, &changed)?
        {
            return Ok(());
        }
        self.flush_all(st)
    }

    /// Whether anything may stay buffered at all.
    fn may_leave(&self, st: &State) -> bool {
        self.core.backing.context.buffered.chunks() * CHUNK < self.core.backing.context.budget.left_at_close
            && self.core.backing.context.overwrites_in_place
            && !st.dirty.write_failed
            && st.stored.leftover.is_none()
    }

    /// Loads the stored groups of the changed chunks. Returns false if the file has no key yet.
    fn load_for_close(&self, st: &mut State, changed: &Changed) -> Result<bool> {
        let Some(identity) = st.stored.identity.clone() else { return Ok(false) };
        let size = st.stored.tree.size();
        let is_stored = |index: &u64| layout::group_of(*index) < layout::groups(size);
        st.stored.load_groups(self.core.backing.source(&identity), size, changed.all().filter(is_stored))?;
        Ok(true)
    }

    /// Reserves space for buffered chunks that have none in the store. Returns whether all of them have
    /// it.
    fn reserve_places(&self, st: &mut State, changed: &Changed) -> Result<bool> {
        let places = missing_places(st, &changed.chunks)?;
        if places.is_empty() || places.len() > MOST_PLACES {
            return Ok(places.is_empty());
        }
        st.remember_mtime(&*self.core.backing.store)?;
        // If the store reserves nothing, a flush reports the reason.
        let kept = places
            .iter()
            .all(|place| self.core.backing.store.reserve(place.start, place.end - place.start).is_ok());
        st.restore_mtime(&*self.core.backing.store);
        Ok(kept)
    }
}

/// Whether a flush needs a sync, because of a clean record or because it overwrites stored data.
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

/// Ranges in the store for those of these chunks that have no data there yet, and for the entry pages
/// they need.
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
        // The entries of the first group are in the header page.
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
