//! Search for data and holes.

use super::Flusher;
use crate::{
    error::{Error, Result},
    state::State,
};
use format::layout;

impl Flusher<'_> {
    /// SEEK_DATA (`data`) or SEEK_HOLE from `offset`, at chunk granularity; the end of the file counts as
    /// a hole. Flushes first, because only the stored version knows its holes.
    ///
    /// # Errors
    /// `NoData` past the end, or if there is no more data.
    pub(crate) fn seek(&self, st: &mut State, offset: u64, data: bool) -> Result<u64> {
        // If content was lost, report no holes: a copying program would take them for zeros.
        st.check_readable(0)?;
        if offset >= st.dirty.size {
            return Err(Error::NoData);
        }
        self.flush_all(st)?;
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
