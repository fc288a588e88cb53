//! The hash tree over a file's current slots.

use super::entry::Slot;
use crate::crypto::kdf::FileKeys;

/// A digest; all zero for a subtree of holes.
pub type Digest = [u8; 32];
/// The digest of a subtree without a slot.
pub const ALL_HOLES: Digest = [0; 32];

/// Digest of a group: its number and the current slot of each chunk (48 or 64 of them). Zero if all are `None`.
pub fn leaf_digest(_keys: &FileKeys, _group: u64, _slots: &[Option<Slot>]) -> Digest {
    todo!()
}

/// Digest of node page `k` of `level` (1 and up) over its 128 children. Zero if all are zero.
pub fn node_digest(_keys: &FileKeys, _level: u32, _k: u64, _children: &[Digest; 128]) -> Digest {
    todo!()
}
