//! The stored file under an open file, and what all steps need to work on it.

use super::{
    context::Context,
    damage::damaged_chunk,
    error::Result,
    lease::Lease,
    lease_rules::{LeaseRule, holds},
    record::FileIdentity,
    tree::{LeafSource, read_entries},
};
use crypto::chunk::{CHUNK, ChunkId};
use format::{entry::Slot, layout, record::KeyId};
use std::sync::Arc;
use store::BackingFile;

/// A stored file, the vault that it belongs to, and its lease.
pub(super) struct Backing {
    pub(super) context: Arc<Context>,
    pub(super) store: Arc<dyn BackingFile>,
    pub(super) lease: Lease,
}

impl Backing {
    pub(super) fn new(store: Arc<dyn BackingFile>, context: Arc<Context>) -> Self {
        Backing { context, store, lease: Lease::default() }
    }

    /// Store and keys from which the file's tree is loaded and verified.
    pub(super) fn source<'a>(&'a self, identity: &'a FileIdentity) -> LeafSource<'a> {
        LeafSource { store: &*self.store, keys: &identity.keys }
    }

    /// The keys for a salt; `None` if the vault does not have those of its generation.
    pub(super) fn derive(&self, id: KeyId) -> Option<Arc<FileIdentity>> {
        self.context.keys.of_file(id).map(FileIdentity::new)
    }

    /// Whether the file is shared and this process may not write it now.
    pub(super) fn lacks_lease(&self) -> bool {
        self.context.sharing.is_some() && !self.lease.is_held()
    }

    /// Whether recovery may write.
    pub(super) fn may_write(&self) -> bool {
        let allowed = !self.context.read_only && (self.context.guard)().is_ok();
        allowed
            && (self.context.sharing.is_none() || self.lease.is_locked() || !holds(LeaseRule::RecoverLocked))
    }

    /// Checks whether the store has space for `len` bytes. The caller must not hold the lock of any
    /// file's state.
    pub(super) fn find_space(&self, len: u64) {
        self.context.space.prepare(len, &self.context.buffered);
    }

    /// Reads the first `out.len()` stored bytes of a chunk.
    ///
    /// # Errors
    /// `Damaged` if there are fewer; otherwise the store's.
    pub(super) fn read_ciphertext(&self, index: u64, out: &mut [u8]) -> Result<()> {
        if self.store.read_at(out, layout::chunk_offset(index))? < out.len() {
            return Err(damaged_chunk(index));
        }
        Ok(())
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

    /// Calls `take` with the stored entries of each group below `end`, skipping groups in holes of the
    /// stored file.
    pub(super) fn each_group(&self, end: u64, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut group = 0;
        while group < end {
            take(group, &read_entries(&*self.store, group)?)?;
            let next = group + 1;
            if next >= end {
                break;
            }
            let Some(data) = self.store.next_data(layout::entries_offset(next))? else { break };
            // The first group whose entry page does not end before the data.
            let before = |group: u64| layout::entries_offset(group) + layout::PAGE <= data;
            let (mut low, mut high) = (next, end);
            while low < high {
                let middle = low + (high - low) / 2;
                if before(middle) { low = middle + 1 } else { high = middle }
            }
            group = low;
        }
        Ok(())
    }
}
