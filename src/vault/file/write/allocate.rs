//! Space: reserved in the store, and looked for as data and holes.

use crate::{
    format::layout,
    vault::{Error, Result, file::File},
};

impl File {
    /// fallocate(2): reserves space in the store; grows the size unless `keep_size`.
    ///
    /// # Errors
    /// `TooLarge`, or the store's (ENOSPC, EOPNOTSUPP).
    pub fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= layout::MAX_SIZE).ok_or(Error::TooLarge)?;
        // Buffered bytes find their place first if this takes all the room that is left.
        self.find_space(len);
        let mut st = self.state_to_change()?;
        self.renew(&mut st)?;
        self.complete_all(&mut st);
        self.begin_change(&mut st)?;
        self.remember_mtime(&mut st)?;
        let first = layout::chunk_offset(offset / layout::CHUNK);
        // The entries of the first chunk lie before it, and perhaps others between.
        let entries = layout::entries_offset(layout::group_of(offset / layout::CHUNK));
        self.store.reserve(entries - entries % layout::PAGE, layout::PAGE)?;
        let reserved = self.store.reserve(first, layout::stored_size(end).saturating_sub(first));
        self.context.space.forget();
        reserved?;
        if !keep_size && end > st.dirty.size {
            self.take(&mut st, end..end, |st| self.grow(st, end))?;
            st.times.note_write();
        }
        self.restore_mtime(&st);
        Ok(())
    }

    /// SEEK_DATA (`data`) or SEEK_HOLE from `offset`, in steps of a chunk; the end of the file is a hole. Flushes first: only
    /// the store's version knows its holes.
    ///
    /// # Errors
    /// `NoData` past the end, or when there is no data any more.
    pub fn seek(&self, offset: u64, data: bool) -> Result<u64> {
        self.settled(|| self.try_seek(offset, data))
    }

    /// The same of a file that may have data everywhere.
    ///
    /// # Errors
    /// `NoData` past the end; EIO if content was lost.
    pub fn seek_in_data(&self, offset: u64, data: bool) -> Result<u64> {
        let st = self.state.read();
        st.check_readable(0)?;
        match (offset < st.dirty.size, data) {
            (false, _) => Err(Error::NoData),
            (true, true) => Ok(offset),
            (true, false) => Ok(st.dirty.size),
        }
    }

    fn try_seek(&self, offset: u64, data: bool) -> Result<u64> {
        let mut st = self.state.write();
        // Where content was lost there are no holes: a program that copies would take them for zeros.
        st.check_readable(0)?;
        if offset >= st.dirty.size {
            return Err(Error::NoData);
        }
        self.flush_all(&mut st)?;
        st.check_readable(0)?;
        let found = match st.stored.identity.clone() {
            Some(identity) => {
                st.stored.tree.trim_cache();
                st.stored.tree.seek(self.source(&identity), offset / layout::CHUNK, data)?
            }
            None => (!data).then_some(0),
        };
        match found {
            Some(index) => Ok(offset.max(index * layout::CHUNK)),
            None if data => Err(Error::NoData),
            None => Ok(st.dirty.size),
        }
    }
}
