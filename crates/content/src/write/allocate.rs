//! Space allocation.

use crate::{error::Result, state::State, write::ContentWriter};
use format::layout;

impl ContentWriter<'_> {
    /// Reserves space in the store up to `end`. Grows the file unless `keep_size`.
    ///
    /// # Errors
    /// The store's (ENOSPC, EOPNOTSUPP).
    pub(crate) fn allocate(&self, st: &mut State, offset: u64, end: u64, keep_size: bool) -> Result<()> {
        self.committer().complete_all(st);
        self.committer().begin_change(st)?;
        st.remember_mtime(&*self.core.backing.store)?;
        let first = layout::chunk_offset(offset / layout::CHUNK);
        // The entries of the first chunk are before it, perhaps with other chunks between.
        let entries = layout::entries_offset(layout::group_of(offset / layout::CHUNK));
        self.core.backing.store.reserve(entries - entries % layout::PAGE, layout::PAGE)?;
        let reserved = self.core.backing.store.reserve(first, layout::stored_size(end).saturating_sub(first));
        self.core.backing.context.space.forget();
        reserved?;
        if !keep_size && end > st.dirty.size {
            self.take(st, end..end, |st| self.grow(st, end))?;
            st.times.note_write();
        }
        st.restore_mtime(&*self.core.backing.store);
        Ok(())
    }
}
