//! Entries: two slots per chunk, so that overwriting a chunk never destroys its durable version.

use crypto::chunk::{Nonce, Tag};

/// Size of a slot in bytes.
pub const SLOT: usize = 32;
/// Size of an entry in bytes.
pub const ENTRY: usize = 64;
/// Upper bound (exclusive) of an epoch: a slot has 48 bits for it.
pub const EPOCH_LIMIT: u64 = 1 << 48;

/// Offsets of epoch and tag in a slot.
const EPOCH_AT: usize = 10;
const TAG_AT: usize = 16;

/// A version of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// All zeros for a punched hole.
    pub nonce: Nonce,
    /// 1 to 2^48 - 1.
    pub epoch: u64,
    /// Tag of the ciphertext, or of the hole.
    pub tag: Tag,
}

impl Slot {
    /// Whether the slot represents a hole punched over data. A random nonce is zero with probability
    /// 2^-80; such a chunk would fail to authenticate as a hole, and would never be read as one.
    #[inline]
    pub fn is_hole(&self) -> bool {
        self.nonce == [0; 10]
    }

    /// Decodes 32 bytes; `None` if the epoch is 0, regardless of the other bytes.
    #[inline]
    pub fn decode(bytes: &[u8; SLOT]) -> Option<Self> {
        let mut epoch = [0; 8];
        epoch[2..].copy_from_slice(&bytes[EPOCH_AT..TAG_AT]);
        let epoch = u64::from_be_bytes(epoch);
        if epoch == 0 {
            return None;
        }
        let (mut nonce, mut tag) = ([0; 10], [0; 16]);
        nonce.copy_from_slice(&bytes[..EPOCH_AT]);
        tag.copy_from_slice(&bytes[TAG_AT..]);
        Some(Slot { nonce, epoch, tag })
    }

    /// Encodes to 32 bytes: nonce, epoch (48 bits, big-endian), tag.
    #[inline]
    pub fn encode(&self) -> [u8; SLOT] {
        debug_assert!(self.epoch > 0 && self.epoch < EPOCH_LIMIT);
        let mut out = [0; SLOT];
        out[..EPOCH_AT].copy_from_slice(&self.nonce);
        out[EPOCH_AT..TAG_AT].copy_from_slice(&self.epoch.to_be_bytes()[2..]);
        out[TAG_AT..].copy_from_slice(&self.tag);
        out
    }
}

/// The two slots of a chunk; either may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry(pub [Option<Slot>; 2]);

impl Entry {
    /// Decodes 64 bytes. A slot with epoch 0 is empty, regardless of its other bytes.
    #[inline]
    pub fn decode(bytes: &[u8; ENTRY]) -> Self {
        let (first, second) = bytes.split_at(SLOT);
        let slot = |half: &[u8]| half.try_into().ok().and_then(Slot::decode);
        Entry([slot(first), slot(second)])
    }

    /// Encodes to 64 bytes; an empty slot is all zeros.
    #[inline]
    pub fn encode(&self, out: &mut [u8; ENTRY]) {
        for (half, slot) in out.chunks_exact_mut(SLOT).zip(&self.0) {
            half.copy_from_slice(&slot.map_or([0; SLOT], |slot| slot.encode()));
        }
    }

    /// The slot with the highest epoch.
    #[inline]
    pub fn newest(&self) -> Option<&Slot> {
        match &self.0 {
            [Some(a), Some(b)] => Some(if b.epoch > a.epoch { b } else { a }),
            [a, b] => a.as_ref().or(b.as_ref()),
        }
    }

    /// Index and content of the slot with the highest epoch, among those whose epoch is at most `base`
    /// (if given) or equals `target` (if given).
    #[inline]
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slot(epoch: u64) -> Slot {
        Slot { nonce: [7; 10], epoch, tag: [9; 16] }
    }

    #[test]
    fn bytes_stand_where_the_document_says() {
        let mut bytes = [0; ENTRY];
        let second = Slot { nonce: [1; 10], epoch: 0x0203_0405_0607, tag: [8; 16] };
        Entry([None, Some(second)]).encode(&mut bytes);
        assert_eq!(bytes[..32], [0; 32]);
        assert_eq!(bytes[32..42], [1; 10]);
        assert_eq!(bytes[42..48], [2, 3, 4, 5, 6, 7]);
        assert_eq!(bytes[48..], [8; 16]);
    }

    #[test]
    fn zeros_are_an_empty_entry() {
        assert_eq!(Entry::decode(&[0; ENTRY]), Entry::default());
    }

    #[test]
    fn epoch_zero_is_empty_whatever_stands_beside_it() {
        let mut bytes = [0xff; ENTRY];
        bytes[10..16].fill(0);
        let entry = Entry::decode(&bytes);
        assert_eq!(entry.0[0], None);
        assert_eq!(entry.0[1].map(|s| s.epoch), Some(EPOCH_LIMIT - 1));
    }

    #[test]
    fn the_largest_epoch_that_counts_is_current() {
        let entry = Entry([Some(slot(5)), Some(slot(9))]);
        let epoch = |base, target| entry.current(base, target).map(|(place, s)| (place, s.epoch));
        assert_eq!(epoch(Some(4), None), None);
        assert_eq!(epoch(Some(8), None), Some((0, 5)));
        assert_eq!(epoch(Some(9), None), Some((1, 9)));
        assert_eq!(epoch(None, Some(5)), Some((0, 5)));
        assert_eq!(epoch(None, Some(6)), None);
        assert_eq!(epoch(Some(8), Some(9)), Some((1, 9)));
        assert_eq!(epoch(Some(8), Some(10)), Some((0, 5)));
    }

    #[test]
    fn the_newest_slot_is_found_in_either_place() {
        for slots in [[None, None], [Some(5), None], [None, Some(5)], [Some(5), Some(9)], [Some(9), Some(5)]]
        {
            let entry = Entry(slots.map(|epoch| epoch.map(slot)));
            assert_eq!(entry.newest().map(|slot| slot.epoch), slots.into_iter().flatten().max());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_and_the_entry_survives_a_round_trip(bytes in prop::array::uniform32(any::<u8>()),
                                                               more in prop::array::uniform32(any::<u8>())) {
            let mut raw = [0; ENTRY];
            raw[..32].copy_from_slice(&bytes);
            raw[32..].copy_from_slice(&more);
            let entry = Entry::decode(&raw);
            let mut again = [0; ENTRY];
            entry.encode(&mut again);
            prop_assert_eq!(Entry::decode(&again), entry);
            if entry.0.iter().all(Option::is_some) {
                prop_assert_eq!(again, raw);
            }
        }
    }
}
