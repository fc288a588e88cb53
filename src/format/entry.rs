//! Entries: two slots a chunk, so that an overwrite never destroys what was durable.

use crate::crypto::chunk::{Nonce, Tag};

/// Bytes of a slot.
pub const SLOT: usize = 32;
/// Bytes of an entry.
pub const ENTRY: usize = 64;

/// One version of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// All zero for a punched hole.
    pub nonce: Nonce,
    /// 1 to 2^48 - 1.
    pub epoch: u64,
    /// Of the ciphertext, or of the hole.
    pub tag: Tag,
}

impl Slot {
    /// Whether the slot stands for a hole punched over data.
    pub fn is_hole(&self) -> bool {
        self.nonce == [0; 10]
    }
}

/// Two slots; either may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry(pub [Option<Slot>; 2]);

impl Entry {
    /// From 64 bytes. A slot of epoch 0 is empty (whatever its other bytes).
    pub fn decode(_bytes: &[u8; ENTRY]) -> Self {
        todo!()
    }

    /// To 64 bytes; an empty slot is zeros.
    pub fn encode(&self, _out: &mut [u8; ENTRY]) {
        todo!()
    }

    /// Place and slot of the largest epoch that is not above `base` (if given) or equals `target` (if given).
    pub fn current(&self, base: Option<u64>, target: Option<u64>) -> Option<(usize, Slot)> {
        let mut best: Option<(usize, Slot)> = None;
        for (place, slot) in self.0.iter().enumerate() {
            let Some(slot) = *slot else { continue };
            let counts = base.is_some_and(|e| slot.epoch <= e) || target == Some(slot.epoch);
            if counts && best.is_none_or(|(_, b)| slot.epoch > b.epoch) {
                best = Some((place, slot));
            }
        }
        best
    }
}
