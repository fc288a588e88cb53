//! Truncation: shortens the buffered and the stored content, or adds a hole at the end.

use crate::{error::Result, state::State, write::ContentWriter};

impl ContentWriter<'_> {
    /// Truncates the file, or extends it with a hole.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn truncate(&self, st: &mut State, size: u64) -> Result<()> {
        self.committer().complete_all(st);
        self.committer().begin_change(st)?;
        // The kernel flushes its own data before.
        st.dirty.gaps.clear();
        if size > st.dirty.size {
            self.take(st, size..size, |st| self.grow(st, size))?;
        } else if size < st.dirty.size {
            self.cut(st, size)?;
        }
        st.times.note_write();
        Ok(())
    }

    fn cut(&self, st: &mut State, size: u64) -> Result<()> {
        if size < st.stored.tree.size() {
            self.cut_flushed(st, size)?;
        }
        st.dirty.buffer.cut(size);
        st.dirty.size = size;
        Ok(())
    }
}
