//! Verification beyond what reads do: the length of the stored file, the entries of a group, and chunks
//! under slots that no root has proven.

use super::file::File;
use crate::error::Result;

impl File {
    /// Checks that the stored file has the length that its record implies.
    ///
    /// # Errors
    /// `Damaged` if not.
    pub fn check_length(&self) -> Result<()> {
        let st = self.core.state.read();
        st.check_readable(st.dirty.size)
    }

    /// Verifies the entries of a group of chunks.
    ///
    /// # Errors
    /// `Damaged` if the entries, or the nodes above them, do not verify.
    pub fn check_group(&self, group: u64) -> Result<()> {
        let mut st = self.core.state.write();
        let Some(identity) = st.stored.identity.clone() else { return Ok(()) };
        st.stored.tree.trim_cache();
        st.stored.tree.load(self.core.backing.source(&identity), group)
    }
}
