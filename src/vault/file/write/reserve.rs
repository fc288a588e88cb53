//! Places in a store that is nearly full: reserved before a write takes a byte.

use crate::{
    format::layout::{self, PAGE},
    vault::{
        Result,
        file::{File, record::OnDisk, state::State},
    },
};
use std::{io, ops::Range};

impl File {
    /// Does `take`, which puts these bytes into the buffer, if the store keeps a place for all of them.
    ///
    /// # Errors
    /// What `take` returned; the store's (ENOSPC, EDQUOT), and then nothing was taken.
    pub(super) fn take(
        &self,
        st: &mut State,
        bytes: Range<u64>,
        take: impl FnOnce(&mut State) -> Result<()>,
    ) -> Result<()> {
        if !self.context.space.is_scarce() || self.reserve(st, &bytes)? {
            return take(st);
        }
        self.take_through(st, take)
    }

    /// Reserves places for bytes of the file, and for all that describes them; false if the store cannot.
    fn reserve(&self, st: &mut State, bytes: &Range<u64>) -> Result<bool> {
        if !self.context.overwrites_in_place {
            return Ok(false);
        }
        // Reserve nothing that the next flush would cut off.
        if st.stored.records.on_disk == OnDisk::Nothing && !self.store.is_empty()? {
            self.flush_record(st)?;
        }
        if st.stored.overhangs {
            self.complete_all(st);
            self.cut_overhang(st)?;
        }
        self.remember_mtime(st)?;
        for place in places(st, bytes) {
            // A call that fails may have reserved a part.
            st.dirty.reserved = st.dirty.reserved.max(place.end);
            match self.store.reserve(place.start, place.end - place.start) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Unsupported => return Ok(false),
                Err(e) => {
                    // Gives back what was reserved in vain.
                    if let Err(e) = self.flush_all(st) {
                        log::debug!("a flush on a full store: {e}");
                    }
                    self.restore_mtime(st);
                    return Err(e.into());
                }
            }
        }
        Ok(true)
    }

    /// For a store that reserves nothing: flushes what `take` puts into the buffer, which holds nothing else. If that fails,
    /// nothing was taken, unless the flush has happened and its data is still to be written.
    ///
    /// # Errors
    /// What `take` returned, or the store's.
    fn take_through(&self, st: &mut State, take: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        self.flush_all(st)?;
        st.dirty.flushes_through = true;
        let taken = take(st).and_then(|()| self.flush_all(st));
        st.dirty.flushes_through = false;
        if taken.is_err() && st.fault.is_none() && st.dirty.unfinished.is_empty() {
            self.complete_all(st);
            st.dirty.buffer.cut(0);
            st.dirty.size = st.stored.tree.size();
            st.dirty.write_failed = false;
        }
        taken
    }

    /// Gives back places behind the end of the stored file that nothing buffered needs any more.
    pub(in crate::vault::file) fn give_back_places(&self, st: &mut State) {
        let end = layout::stored_size(st.stored.tree.size()).next_multiple_of(PAGE);
        if std::mem::take(&mut st.dirty.reserved) <= end || (self.context.guard)().is_err() {
            return;
        }
        // To the length that it has: what is behind that is freed.
        if let Err(e) = self.store.len().and_then(|len| self.store.set_len(len)) {
            log::debug!("reserved space could not be given back: {e}");
        }
        self.restore_mtime(st);
    }
}

/// Places in the store of these bytes and of all that describes them: the chunks with entries and nodes between them, the
/// header, the entries before the first chunk, and the nodes above. If the file grows, also its last chunk, which gets another
/// length. Nothing is left out that is already there: to reserve that costs little.
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

/// The union of these places, ascending.
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
