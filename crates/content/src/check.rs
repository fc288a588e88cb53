//! Verification beyond what reads do: the length of the stored file, the entries of a group, and chunks
//! under slots that no root has proven.

use super::{File, record::FileIdentity};
use crate::Result;
use crypto::chunk::{CHUNK, ChunkId};
use format::{entry::Slot, layout};

impl File {
    /// Checks that the stored file has the length that its record implies.
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
    /// `Damaged` if the entries, or the nodes above them, do not verify.
    pub fn check_group(&self, group: u64) -> Result<()> {
        let mut st = self.state.write();
        let Some(identity) = st.stored.identity.clone() else { return Ok(()) };
        st.stored.tree.trim_cache();
        st.stored.tree.load(self.source(&identity), group)
    }

    /// Whether the `len` stored bytes of a chunk verify under this slot.
    pub(super) fn verifies(
        &self,
        identity: &FileIdentity,
        index: u64,
        slot: Slot,
        len: usize,
    ) -> Result<bool> {
        let keys = &identity.keys.chunk;
        let id = ChunkId { index, epoch: slot.epoch, nonce: slot.nonce };
        if slot.is_hole() {
            return Ok(keys.verify_hole(&id, &slot.tag).is_ok());
        }
        let mut bytes = [0; CHUNK];
        let bytes = &mut bytes[..len];
        let whole = self.store.read_at(bytes, layout::chunk_offset(index))? == bytes.len();
        Ok(whole && keys.verify(&id, &slot.tag, bytes).is_ok())
    }
}
