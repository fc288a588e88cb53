//! Space reservation in a nearly full store, before a write is accepted.

use crate::{error::Result, record::OnDisk, state::State, write::ContentWriter};
use format::layout::{self, PAGE};
use std::{io, ops::Range};

impl ContentWriter<'_> {
    /// Runs `take`, which puts these bytes into the buffer. If space is scarce, reserves it in the store
    /// first.
    ///
    /// # Errors
    /// Those of `take`; the store's (ENOSPC, EDQUOT), in which case nothing was accepted.
    pub(super) fn take(
        &self,
        st: &mut State,
        bytes: Range<u64>,
        take: impl FnOnce(&mut State) -> Result<()>,
    ) -> Result<()> {
        if !self.core.backing.context.space.is_scarce() || self.reserve(st, &bytes)? {
            return take(st);
        }
        self.take_through(st, take)
    }

    /// Reserves space for bytes of the file and for the metadata that describes them. False if the store
    /// does not support that.
    fn reserve(&self, st: &mut State, bytes: &Range<u64>) -> Result<bool> {
        if !self.core.backing.context.overwrites_in_place {
            return Ok(false);
        }
        // Reserve nothing that the next flush would truncate.
        if st.stored.records.on_disk == OnDisk::Nothing && !self.core.backing.store.is_empty()? {
            self.flusher().flush_record(st)?;
        }
        if st.stored.overhangs {
            self.committer().complete_all(st);
            st.stored.cut_overhang(&*self.core.backing.store)?;
        }
        st.remember_mtime(&*self.core.backing.store)?;
        for place in places(st, bytes) {
            // A failed call may have reserved part of it.
            st.dirty.reserved = st.dirty.reserved.max(place.end);
            match self.core.backing.store.reserve(place.start, place.end - place.start) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Unsupported => return Ok(false),
                Err(e) => {
                    // Releases what was reserved in vain.
                    if let Err(e) = self.flusher().flush_all(st) {
                        log::debug!("a flush on a full store: {e}");
                    }
                    st.restore_mtime(&*self.core.backing.store);
                    return Err(e.into());
                }
            }
        }
        Ok(true)
    }

    /// For a store that cannot reserve space: flushes what `take` puts into the buffer, which is empty
    /// before. If that fails, nothing was accepted, unless the flush has happened and only its data is
    /// still to be written.
    ///
    /// # Errors
    /// Those of `take`, or the store's.
    fn take_through(&self, st: &mut State, take: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        self.flusher().flush_all(st)?;
        st.dirty.flushes_through = true;
        let taken = take(st).and_then(|()| self.flusher().flush_all(st));
        st.dirty.flushes_through = false;
        if taken.is_err() && st.fault.is_none() && st.dirty.unfinished.is_empty() {
            self.committer().complete_all(st);
            st.dirty.buffer.cut(0);
            st.dirty.size = st.stored.tree.size();
            st.dirty.write_failed = false;
        }
        taken
    }
}

/// Ranges in the store for these bytes and the metadata that describes them: the chunks with entries and
/// nodes between them, the header, the entries before the first chunk, and the nodes above. If the file
/// grows, also its last chunk, which gets another length. Ranges already allocated are included, since
/// reserving them costs little.
fn places(st: &State, bytes: &Range<u64>) -> Vec<Range<u64>> {
    let page = |offset: u64| offset - offset % PAGE..offset - offset % PAGE + PAGE;
    let chunk = |index: u64| layout::chunk_offset(index);
    let mut places = vec![page(0)];
    let mut groups = vec![0];
    if bytes.start > st.dirty.size && !st.dirty.size.is_multiple_of(layout::CHUNK) {
        places.push(page(chunk(st.dirty.size / layout::CHUNK)));
    }
    if !bytes.is_empty() {
        let (first, last) = (bytes.start / layout::CHUNK, (bytes.end - 1) / layout::CHUNK);
        places.push(page(layout::entries_offset(layout::group_of(first))));
        places.push(chunk(first)..chunk(last) + layout::CHUNK);
        groups.extend([layout::group_of(first), layout::group_of(last)]);
    }
    let levels = layout::levels(layout::groups(st.dirty.size.max(bytes.end)));
    for group in groups {
        let mut k = group;
        for level in 1..=levels {
            k /= layout::FANOUT;
            places.push(page(layout::node_offset(level, k)));
        }
    }
    merged(places)
}

/// The union of these ranges, ascending.
fn merged(mut places: Vec<Range<u64>>) -> Vec<Range<u64>> {
    places.sort_unstable_by_key(|place| place.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(places.len());
    for place in places {
        match merged.last_mut() {
            Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
            Some(_) | None => merged.push(place),
        }
    }
    merged
}
