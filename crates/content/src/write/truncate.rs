//! Truncation: shortens the buffered and the stored content, or adds a hole at the end.

use crate::{
    error::{Error, Result},
    file::File,
    state::State,
};
use format::layout;

impl File {
    /// Truncates the file, or extends it with a hole.
    ///
    /// # Errors
    /// `TooLarge`, or the store's.
    pub fn truncate(&self, size: u64) -> Result<()> {
        if size > layout::MAX_SIZE {
            return Err(Error::TooLarge);
        }
        self.find_space(0);
        let mut st = self.state_to_change()?;
        self.renew(&mut st)?;
        let resized = self.resize(&mut st, size);
        self.recheck_lease_on_error(&mut st, resized)
    }

    fn resize(&self, st: &mut State, size: u64) -> Result<()> {
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
