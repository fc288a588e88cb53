//! Verifying what a read does not come to: the length of the stored file, and the entries of a group.

use super::File;
use crate::vault::Result;

impl File {
    /// Whether the stored file has the length that its record gives it.
    ///
    /// # Errors
    /// `Damaged` if not.
    pub fn check_length(&self) -> Result<()> {
        let st = self.state.read();
        st.check_readable(st.dirty.size)
    }

    /// Verifies the entries of a group of chunks.
    ///
    /// # Errors
    /// `Damaged` if they do not, or the nodes above them.
    pub fn check_group(&self, group: u64) -> Result<()> {
        let mut st = self.state.write();
        let Some(identity) = st.stored.identity.clone() else { return Ok(()) };
        st.stored.tree.trim_cache();
        st.stored.tree.load(self.source(&identity), group)
    }
}
