//! Space allocation, and the search for data and holes.

use crate::{
    error::{Error, Result},
    file::File,
};
use format::layout;

impl File {
    /// fallocate(2): reserves space in the store. Grows the file unless `keep_size`.
    ///
    /// # Errors
    /// `TooLarge`, or the store's (ENOSPC, EOPNOTSUPP).
    pub fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= layout::MAX_SIZE).ok_or(Error::TooLarge)?;
        // Buffered data must get its space first, in case this allocation takes all that is left.
        self.find_space(len);
        let mut st = self.state_to_change()?;
        self.renew(&mut st)?;
        self.committer().complete_all(&mut st);
        self.committer().begin_change(&mut st)?;
        st.remember_mtime(&*self.core.backing.store)?;
        let first = layout::chunk_offset(offset / layout::CHUNK);
        // The entries of the first chunk are before it, perhaps with other chunks between.
        let entries = layout::entries_offset(layout::group_of(offset / layout::CHUNK));
        self.core.backing.store.reserve(entries - entries % layout::PAGE, layout::PAGE)?;
        let reserved = self.core.backing.store.reserve(first, layout::stored_size(end).saturating_sub(first));
        self.core.backing.context.space.forget();
        reserved?;
        if !keep_size && end > st.dirty.size {
            self.take(&mut st, end..end, |st| self.grow(st, end))?;
            st.times.note_write();
        }
        st.restore_mtime(&*self.core.backing.store);
        Ok(())
    }

    /// SEEK_DATA (`data`) or SEEK_HOLE from `offset`, at chunk granularity; the end of the file counts as
    /// a hole. Flushes first, because only the stored version knows its holes.
    ///
    /// # Errors
    /// `NoData` past the end, or if there is no more data.
    pub fn seek(&self, offset: u64, data: bool) -> Result<u64> {
        self.retry_under_lease(|| self.try_seek(offset, data))
    }

    /// Like `seek`, for a file treated as data throughout.
    ///
    /// # Errors
    /// `NoData` past the end; EIO if the content is lost.
    pub fn seek_in_data(&self, offset: u64, data: bool) -> Result<u64> {
        let st = self.core.state.read();
        st.check_readable(0)?;
        match (offset < st.dirty.size, data) {
            (false, _) => Err(Error::NoData),
            (true, true) => Ok(offset),
            (true, false) => Ok(st.dirty.size),
        }
    }

    fn try_seek(&self, offset: u64, data: bool) -> Result<u64> {
        let mut st = self.core.state.write();
        // If content was lost, report no holes: a copying program would take them for zeros.
        st.check_readable(0)?;
        if offset >= st.dirty.size {
            return Err(Error::NoData);
        }
        self.flusher().flush_all(&mut st)?;
        st.check_readable(0)?;
        let found = match st.stored.identity.clone() {
            Some(identity) => {
                st.stored.tree.trim_cache();
                st.stored.tree.seek(self.core.backing.source(&identity), offset / layout::CHUNK, data)?
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
